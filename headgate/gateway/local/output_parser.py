"""What a local model writes, as an answer's chunks: what it thought, text, and calls of functions."""

from __future__ import annotations

import secrets
import string
from collections.abc import Sequence

from headgate.engine.front.choice import TextDelta
from headgate.engine.front.local import LocalModel
from headgate.engine.text.answer_reader import AnswerReader
from headgate.engine.text.tool_calls import CallFormat, CallPiece, Said
from headgate.gateway.local.structured import cannot_follow
from headgate.gateway.road.request import AnswerFinish, ChatRequest, Chunk, ToolCallDelta
from headgate.gateway.wire.errors import adapter_gone, asleep, out_of_memory, overloaded, server_error

_SHORT, _LETTERS = 9, string.ascii_letters + string.digits
"""What Mistral's chat templates take for the id of a call: just so many letters and digits."""


class OutputParser:
    """Reads the choices of one answer."""

    def __init__(self, request: ChatRequest, model: LocalModel, prompt: Sequence[int]) -> None:
        """Begin to read what a model writes after a prompt."""
        self._request = request
        tools = [tool.for_template() for tool in request.callable_tools]
        most = None if request.tool_use.parallel else 1
        fmt = self._fmt = model.info.tool_calls if tools else None
        # In harmony stop strings would be found in headers and marks, too: its reader looks for them.
        apart = bool(request.messages) and model.info.thinks == "harmony"
        stops = request.stop if apart else ()
        self.stop = () if apart else request.stop
        """Stop strings that the model's own stream has to look for."""
        self.bounded = (fmt is not None and most is not None) or bool(stops)
        """Whether a choice may be complete before the model ends it."""
        self._readers: list[AnswerReader] = []
        if request.messages:
            readers = (model.answers.reader(prompt, tools, most=most, stops=stops) for _ in range(request.n))
            self._readers = [reader for reader in readers if reader is not None]

    @property
    def marked(self) -> bool:
        """Whether the marks of calls and of thinking have to be seen."""
        return bool(self._readers)

    @property
    def reasoning_tokens(self) -> int:
        """Tokens of what was thought, all choices together."""
        return sum(reader.tokens for reader in self._readers)

    def complete(self, index: int) -> bool:
        """Whether a choice has said all that it may: after its only call, or a stop string, nothing counts."""
        return bool(self._readers) and self._readers[index].full

    def chunks(self, delta: TextDelta) -> list[Chunk]:
        """Pieces of the answer. ApiError where the model failed, or cannot go on in the form that is asked for."""
        reason = _reason(delta, self._request)
        if not self._readers:
            told = (delta.index, delta.text, delta.logprobs, reason, delta.token_ids, delta.queue_s)
            return [Chunk(*told, stop=delta.stop)]
        reader, stop = self._readers[delta.index], delta.stop
        said = reader.push(delta.text, delta.token_ids, last=reason is not None) or (Said(),)
        chunks = [Chunk(delta.index, one.text, reasoning=one.reasoning, tool_calls=self._calls(one)) for one in said]
        first, last = chunks[0], chunks[-1]
        first.logprobs, first.token_ids, first.queue_s = delta.logprobs, delta.token_ids, delta.queue_s
        if reason is not None:
            last.reasoning_tokens = reader.tokens
            if reader.calls and (reader.full or reason == "stop"):
                reason = "tool_calls"
            elif reader.stop is not None:
                reason, stop = "stop", reader.stop
        last.finish_reason, last.stop = reason, stop
        return chunks

    def _calls(self, said: Said) -> tuple[ToolCallDelta, ...]:
        return tuple(_identified(piece, self._fmt) for piece in said.calls)


def _identified(piece: CallPiece, fmt: CallFormat | None) -> ToolCallDelta:
    made = None if piece.name is None else _call_id(fmt)
    return ToolCallDelta(piece.index, piece.arguments, made, piece.name)


def _call_id(fmt: CallFormat | None) -> str:
    if fmt == "mistral":
        return "".join(secrets.choice(_LETTERS) for _ in range(_SHORT))
    return f"call_{secrets.token_hex(12)}"


def _reason(delta: TextDelta, request: ChatRequest) -> AnswerFinish | None:
    reason = None if delta.finish is None else delta.finish.reason
    if delta.finish is not None and delta.finish.cause == "memory":
        raise out_of_memory()
    if delta.finish is not None and delta.finish.cause == "asleep":
        raise asleep("The model is asleep and cannot be woken now; the log says why.", 1.0)
    if delta.finish is not None and delta.finish.cause == "gone":
        raise adapter_gone(request.model)
    if delta.finish is not None and delta.finish.cause == "grammar":
        raise cannot_follow(request, delta.finish.error or "it cannot be followed")
    if reason == "error":
        raise server_error("The model failed while generating; the request was not completed.")
    if reason == "cancelled":
        raise overloaded("The request was cancelled because the server is shutting down.")
    return reason
