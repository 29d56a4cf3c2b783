"""What a model thinks before its answer: the text between `<think>` and `</think>`, or messages of harmony."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from headgate.engine.text.chat_template import ChatTemplate
from headgate.engine.text.harmony import speaks_harmony
from headgate.engine.text.tokenizer import Tokenizer
from headgate.engine.text.tool_calls import overlap

OPEN, CLOSE = "<think>", "</think>"
Thinking = Literal["tags", "harmony"]


def thinks(template: ChatTemplate, tokenizer: Tokenizer) -> Thinking | None:
    """How a model thinks aloud: its chat template knows the marks, and each of them is one token. None: it does not."""
    if speaks_harmony(template, tokenizer):
        return "harmony"
    source = template.source(with_tools=False)
    marked = CLOSE in source or "enable_thinking" in source
    return "tags" if marked and all(tokenizer.token(mark) is not None for mark in (OPEN, CLOSE)) else None


class ReasoningReader:
    """Tells a choice's reasoning from its answer, in text that comes in pieces of any size.

    White space around the reasoning and before the answer is dropped.
    """

    def __init__(self, close_id: int, *, opened: bool) -> None:
        """`close_id`: the token that ends the reasoning. `opened`: the prompt ended with the mark that begins it."""
        self._close_id = close_id
        self._buffer = ""
        self._state = "thinking" if opened else "start"
        self._ended = False
        self._begun = False
        self.tokens = 0
        """Tokens of the reasoning, the marks included."""

    def push(self, text: str, token_ids: Sequence[int] = (), *, last: bool = False) -> tuple[str, str]:
        """The reasoning and the answer that a piece adds. `last`: nothing will come any more."""
        if not self._ended and self._state != "answer":
            self._ended = self._close_id in token_ids
            self.tokens += list(token_ids).index(self._close_id) + 1 if self._ended else len(token_ids)
        self._buffer += text
        if self._state == "start":
            self._start(last=last)
        reasoning = self._think(last=last) if self._state == "thinking" else ""
        return reasoning, self._answer() if self._state in ("closed", "answer") else ""

    def _start(self, *, last: bool) -> None:
        text = self._buffer.lstrip()
        if text.startswith(OPEN):
            self._state, self._buffer = "thinking", text[len(OPEN) :]
        elif last or not OPEN.startswith(text):
            self._state, self.tokens = "answer", 0

    def _think(self, *, last: bool) -> str:
        if not self._begun:
            self._buffer = self._buffer.lstrip()
        before, found, after = self._buffer.partition(CLOSE)
        if found or last:
            self._buffer = after
            self._state = "closed"
            return before.rstrip()
        kept = before[: len(before) - overlap(before, CLOSE)].rstrip()
        self._buffer = before[len(kept) :]
        self._begun = self._begun or bool(kept)
        return kept

    def _answer(self) -> str:
        text, self._buffer = self._buffer, ""
        if self._state == "closed":
            text = text.lstrip()
            self._state = "answer" if text else "closed"
        return text
