"""What a local model writes, as an answer's chunks: text, and calls of functions where there are any to call."""

from __future__ import annotations

import secrets

from headgate.engine.local import TextDelta
from headgate.engine.text.tool_calls import CallPiece, ToolCallReader, ToolFormat
from headgate.gateway.request import AnswerFinish, ChatRequest, Chunk, ToolCallDelta
from headgate.gateway.wire.errors import overloaded, server_error


class Spoken:
    """Reads the choices of one answer."""

    def __init__(self, request: ChatRequest, fmt: ToolFormat | None) -> None:
        """`fmt`: how the model writes calls; None reads none."""
        tools = [tool.for_template() for tool in request.callable_tools]
        most = None if request.tool_use.parallel else 1
        self._readers: list[ToolCallReader] = []
        if fmt is not None and tools:
            self._readers = [ToolCallReader(fmt, tools, most=most) for _ in range(request.n)]

    @property
    def marked(self) -> bool:
        """Whether the marks of calls have to be seen."""
        return bool(self._readers)

    def chunk(self, delta: TextDelta) -> Chunk:
        """A piece of the answer. ApiError where the model failed."""
        reason = _reason(delta)
        if not self._readers:
            return Chunk(
                delta.index, delta.text, delta.logprobs, reason, delta.token_ids, delta.queue_s, stop=delta.stop
            )
        reader = self._readers[delta.index]
        said = reader.push(delta.text)
        text, pieces = said.text, said.calls
        if reason is not None:
            rest = reader.finish()
            text, pieces = text + rest.text, pieces + rest.calls
            if reason == "stop" and reader.calls:
                reason = "tool_calls"
        return Chunk(
            delta.index,
            text,
            delta.logprobs,
            reason,
            delta.token_ids,
            delta.queue_s,
            tuple(_identified(piece) for piece in pieces),
            stop=delta.stop,
        )


def _identified(piece: CallPiece) -> ToolCallDelta:
    made = None if piece.name is None else f"call_{secrets.token_hex(12)}"
    return ToolCallDelta(piece.index, piece.arguments, made, piece.name)


def _reason(delta: TextDelta) -> AnswerFinish | None:
    reason = None if delta.finish is None else delta.finish.reason
    if reason == "error":
        raise server_error("The model failed while generating; the request was not completed.")
    if reason == "cancelled":
        raise overloaded("The request was cancelled because the server is shutting down.")
    return reason
