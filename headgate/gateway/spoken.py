"""What a local model writes, as an answer's chunks: what it thought, text, and calls of functions."""

from __future__ import annotations

import secrets
import string
from collections.abc import Sequence

from headgate.engine.choice import TextDelta
from headgate.engine.local import LocalModel
from headgate.engine.text.reasoning import ReasoningReader
from headgate.engine.text.tool_calls import CallPiece, ToolCallReader, ToolFormat
from headgate.gateway.request import AnswerFinish, ChatRequest, Chunk, ToolCallDelta
from headgate.gateway.structured import cannot_follow
from headgate.gateway.wire.errors import asleep, out_of_memory, overloaded, server_error

_SHORT, _LETTERS = 9, string.ascii_letters + string.digits
"""What Mistral's chat templates take for the id of a call: just so many letters and digits."""


class Spoken:
    """Reads the choices of one answer."""

    def __init__(self, request: ChatRequest, model: LocalModel, prompt: Sequence[int]) -> None:
        """Begin to read what a model writes after a prompt."""
        self._request = request
        tools = [tool.for_template() for tool in request.callable_tools]
        most = None if request.tool_use.parallel else 1
        fmt = self._fmt = model.info.tool_calls if tools else None
        self.bounded = fmt is not None and most is not None
        """Whether a choice may be complete before the model ends it."""
        self._calls: list[ToolCallReader] = []
        self._thoughts: list[ReasoningReader] = []
        if fmt is not None:
            self._calls = [ToolCallReader(fmt, tools, most=most) for _ in range(request.n)]
        if request.messages:
            thinking = (model.thinking(prompt) for _ in range(request.n))
            self._thoughts = [reader for reader in thinking if reader is not None]

    @property
    def marked(self) -> bool:
        """Whether the marks of calls and of thinking have to be seen."""
        return bool(self._calls or self._thoughts)

    @property
    def reasoning_tokens(self) -> int:
        """Tokens of what was thought, all choices together."""
        return sum(reader.tokens for reader in self._thoughts)

    def complete(self, index: int) -> bool:
        """Whether a choice has said all that it may: after its only call nothing counts."""
        return bool(self._calls) and self._calls[index].full

    def chunk(self, delta: TextDelta) -> Chunk:
        """A piece of the answer. ApiError where the model failed, or cannot go on in the form that is asked for."""
        reason = _reason(delta, self._request)
        chunk = Chunk(delta.index, delta.text, delta.logprobs, reason, delta.token_ids, delta.queue_s, stop=delta.stop)
        if self._thoughts:
            reader = self._thoughts[delta.index]
            chunk.reasoning, chunk.text = reader.push(delta.text, delta.token_ids, last=reason is not None)
            chunk.reasoning_tokens = 0 if reason is None else reader.tokens
        if self._calls:
            self._read_calls(self._calls[delta.index], chunk)
        return chunk

    def _read_calls(self, reader: ToolCallReader, chunk: Chunk) -> None:
        said = reader.push(chunk.text)
        text, pieces = said.text, said.calls
        if chunk.finish_reason is not None:
            # Asked first: what is cut has no end, and finishing forgets that it had begun.
            full = reader.full
            rest = reader.finish()
            text, pieces = text + rest.text, pieces + rest.calls
            if full or (chunk.finish_reason == "stop" and reader.calls):
                chunk.finish_reason = "tool_calls"
        chunk.text, chunk.tool_calls = text, tuple(_identified(piece, self._fmt) for piece in pieces)


def _identified(piece: CallPiece, fmt: ToolFormat | None) -> ToolCallDelta:
    made = None if piece.name is None else _call_id(fmt)
    return ToolCallDelta(piece.index, piece.arguments, made, piece.name)


def _call_id(fmt: ToolFormat | None) -> str:
    if fmt == "mistral":
        return "".join(secrets.choice(_LETTERS) for _ in range(_SHORT))
    return f"call_{secrets.token_hex(12)}"


def _reason(delta: TextDelta, request: ChatRequest) -> AnswerFinish | None:
    reason = None if delta.finish is None else delta.finish.reason
    if delta.finish is not None and delta.finish.cause == "memory":
        raise out_of_memory()
    if delta.finish is not None and delta.finish.cause == "asleep":
        raise asleep("The model is asleep and cannot be woken now; the log says why.", 1.0)
    if delta.finish is not None and delta.finish.cause == "grammar":
        raise cannot_follow(request, delta.finish.error or "it cannot be followed")
    if reason == "error":
        raise server_error("The model failed while generating; the request was not completed.")
    if reason == "cancelled":
        raise overloaded("The request was cancelled because the server is shutting down.")
    return reason
