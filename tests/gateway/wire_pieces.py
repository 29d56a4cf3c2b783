"""Answers in arbitrary pieces, as a model could write them, for tests of how protocols put them on the wire."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from headgate.engine.text.stream import TextLogprob
from headgate.gateway.road.request import Chunk, Joiner, ToolCallDelta

LOGPROBS = st.lists(
    st.builds(lambda token: TextLogprob(token, tuple(token.encode()), -0.5), st.text("aé<", max_size=2)), max_size=2
).map(tuple)
"""Of the tokens of a piece; those of a mark, or of part of a character, come without a text."""
PIECES = st.lists(
    st.one_of(
        st.builds(lambda text, told: Chunk(0, text, told), st.text(max_size=4), LOGPROBS),
        st.builds(lambda text, told: Chunk(0, "", told, reasoning=text), st.text(max_size=4), LOGPROBS),
        st.tuples(st.integers(0, 2), st.text(max_size=4), LOGPROBS),
    ),
    max_size=12,
)


def chunks_of(pieces: list[Any], finish: Any) -> list[Chunk]:
    """Calls begin in order, one after the other, as a model writes them."""
    made: list[Chunk] = []
    begun = -1
    for piece in pieces:
        if isinstance(piece, Chunk):
            made.append(piece)
            continue
        at, text, told = piece
        if at > begun:
            begun += 1
            made.append(Chunk(0, "", told, tool_calls=(ToolCallDelta(begun, text, f"call_{begun}", "find"),)))
        elif made[-1].tool_calls:
            made.append(Chunk(0, "", told, tool_calls=(ToolCallDelta(begun, text),)))
    return [*made, Chunk(0, "", finish_reason=finish, stop="END" if finish == "stop" else None)]


def joined(chunks: list[Chunk]) -> Joiner:
    joiner = Joiner()
    for chunk in chunks:
        joiner.add(chunk)
    return joiner
