"""What a model thinks, told from its answer however both are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.engine.text.reasoning import ReasoningReader

CLOSE = 7


def read(pieces: list[str], *, opened: bool) -> tuple[str, str]:
    reader = ReasoningReader(CLOSE, opened=opened)
    parts = [*(reader.push(piece) for piece in pieces), reader.push("", last=True)]
    return "".join(a for a, _ in parts), "".join(b for _, b in parts)


@pytest.mark.parametrize(
    ("text", "opened", "reasoning", "answer"),
    [
        ("<think>\nHm.\n</think>\n\nYes. ", False, "Hm.", "Yes. "),
        ("\n<think></think>Yes", False, "", "Yes"),
        ("Hm <b> so\n</think>\nYes", True, "Hm <b> so", "Yes"),
        ("Hm", True, "Hm", ""),
        (" Yes <think>no</think>", False, "", " Yes <think>no</think>"),
        ("<thin", False, "", "<thin"),
        ("<think>a </thin", False, "a </thin", ""),
        ("", False, "", ""),
    ],
)
def test_what_is_read(text: str, opened: bool, reasoning: str, answer: str) -> None:
    assert read([text], opened=opened) == (reasoning, answer)
    assert read(list(text), opened=opened) == (reasoning, answer)


FRAGMENTS = ["<think>", "</think>", "<th", "</", ">", " ", "\n", "a", "é"]


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=12), st.booleans(), st.data())
def test_any_cutting_reads_the_same(fragments: list[str], opened: bool, data: st.DataObject) -> None:
    text = "".join(fragments)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert read(pieces, opened=opened) == read([text], opened=opened)


def test_tokens_of_the_reasoning_are_counted_to_the_mark_that_ends_it() -> None:
    reader = ReasoningReader(CLOSE, opened=False)
    reader.push("<think>a b", (1, 2, 3))
    reader.push(" c</think>Yes", (4, CLOSE, 5, 6))
    reader.push(" no", (8,))
    assert reader.tokens == 5
    silent = ReasoningReader(CLOSE, opened=False)
    silent.push("Yes", (1, 2))
    silent.push("!", (3,), last=True)
    assert silent.tokens == 0
