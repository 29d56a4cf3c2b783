"""Which reader the answers of a model need, by how it thinks and calls functions, and by what a prompt has begun."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headgate.engine.text import harmony
from headgate.engine.text.answer_reader import AnswerReader, MarkedReader
from headgate.engine.text.harmony_reader import HarmonyReader
from headgate.engine.text.reasoning import CLOSE, OPEN, ReasoningReader, Thinking
from headgate.engine.text.tokenizer import Tokenizer
from headgate.engine.text.tool_calls import MARKS, CallFormat, ToolCallReader

_HEADER = 64
"""Tokens that a header of harmony is shorter than."""


class AnswerReaders:
    """Makes the readers of one model."""

    def __init__(self, tokenizer: Tokenizer, thinks: Thinking | None, tool_calls: CallFormat | None) -> None:
        """`thinks` and `tool_calls`: as of ModelInfo."""
        self._tokenizer = tokenizer
        self._thinks = thinks
        self._tool_calls = tool_calls
        in_harmony = thinks == "harmony"
        self.marked = tokenizer.showing(harmony.MARKS, harmony.APART) if in_harmony else tokenizer.showing(MARKS)
        """The tokenizer that shows readers the marks, where these are special tokens too."""
        self.free = tokenizer if in_harmony else self.marked
        """The one of texts that have a form: harmony's marks stand beside these, and none may be in one."""

    def reader(
        self, prompt: Sequence[int], tools: Sequence[Mapping[str, Any]], *, most: int | None, stops: tuple[str, ...]
    ) -> AnswerReader | None:
        """Reads a continuation of a conversation's prompt; None where all of it is text.

        Args:
            prompt: of the conversation.
            tools: the functions that it may call, as OpenAI's tool definitions.
            most: calls at most.
            stops: stop strings that `LocalModel.generate` does not look for.
        """
        if self._thinks == "harmony":
            names = {tool["function"]["name"] for tool in tools}
            return HarmonyReader(self.marked, names, self._begun(prompt), most=most, stops=stops)
        thoughts, calls = None, None
        close = self._tokenizer.token(CLOSE)
        if self._thinks and close is not None:
            thoughts = ReasoningReader(close, opened=self.opens_thinking(prompt))
        if tools and self._tool_calls is not None and self._tool_calls != "harmony":
            calls = ToolCallReader(self._tool_calls, tools, most=most)
        return None if thoughts is None and calls is None else MarkedReader(thoughts, calls)

    def opens_thinking(self, prompt: Sequence[int]) -> bool:
        """Whether the prompt ends with the mark that begins thinking."""
        opened = harmony.OPENED if self._thinks == "harmony" else OPEN
        return self.marked.decode(prompt[-4:]).rstrip().endswith(opened)

    def _begun(self, prompt: Sequence[int]) -> Sequence[int]:
        """The end of a prompt, from the message on that the answer goes on with."""
        tail, start = prompt[-_HEADER:], self._tokenizer.token(harmony.START)
        return next((tail[at:] for at in range(len(tail) - 1, -1, -1) if tail[at] == start), ())
