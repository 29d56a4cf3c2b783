"""Anthropic's `POST /v1/messages`: the reply on the wire, whole and streamed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from headgate.gateway.road.request import AnswerFinish, Choice, Chunk, ToolCall, ToolCallDelta, Usage
from headgate.gateway.wire import sse
from headgate.gateway.wire.anthropic.errors import anthropic_error
from headgate.gateway.wire.errors import ApiError
from headgate.gateway.wire.identity import Identity

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "refusal"]


class TextBlock(Struct, tag_field="type", tag="text"):
    """Text of the answer. It cites nothing, so that it has no `citations`: not all clients take null for them."""

    text: str


class ThinkingBlock(Struct, tag_field="type", tag="thinking"):
    """What the model thought before its answer. It is not signed: models here are not shown it again."""

    thinking: str
    signature: str = ""


class ToolUseBlock(Struct, tag_field="type", tag="tool_use"):
    """A call of a function."""

    id: str
    name: str
    input: dict[str, Any]


class MessageUsage(Struct):
    """Tokens. What was taken from the prefix cache counts as read from it, not as input."""

    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int
    cache_creation_input_tokens: int = 0


class AssistantReply(Struct):
    """The body of a reply that was not streamed, and the beginning of one that is."""

    id: str
    model: str
    content: list[TextBlock | ThinkingBlock | ToolUseBlock]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: MessageUsage
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"


class TokensCount(Struct):
    """Tokens of a prompt."""

    input_tokens: int


class TextDelta(Struct, tag_field="type", tag="text_delta"):
    """Text to add."""

    text: str


class ThinkingDelta(Struct, tag_field="type", tag="thinking_delta"):
    """Thinking to add."""

    thinking: str


class InputDelta(Struct, tag_field="type", tag="input_json_delta"):
    """Arguments to add, a piece of JSON."""

    partial_json: str


class MessageStart(Struct, tag_field="type", tag="message_start"):
    """The first event. Usage is known at the end only."""

    message: AssistantReply


class BlockStart(Struct, tag_field="type", tag="content_block_start"):
    """A block begins, empty."""

    index: int
    content_block: TextBlock | ThinkingBlock | ToolUseBlock


class BlockDelta(Struct, tag_field="type", tag="content_block_delta"):
    """A block goes on."""

    index: int
    delta: TextDelta | ThinkingDelta | InputDelta


class BlockStop(Struct, tag_field="type", tag="content_block_stop"):
    """A block is whole."""

    index: int


class Stopped(Struct):
    """Why the answer ended."""

    stop_reason: StopReason
    stop_sequence: str | None


class MessageDelta(Struct, tag_field="type", tag="message_delta"):
    """The end of the answer, and its account."""

    delta: Stopped
    usage: MessageUsage


class MessageStop(Struct, tag_field="type", tag="message_stop"):
    """The last event."""


class Ping(Struct, tag_field="type", tag="ping"):
    """Nothing but a sign of life."""


MessageEvent = MessageStart | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStop | Ping
MESSAGE_EVENTS: tuple[type, ...] = (
    MessageStart, BlockStart, BlockDelta, BlockStop, MessageDelta, MessageStop, Ping,
)  # fmt: skip


class MessagesReply:
    """Encodes one answer, whole or event by event, and frames its events."""

    done = b""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._encoder = msgspec.json.Encoder()
        self._index = -1
        self._open: str | None = None
        """What the block that has begun is of: text, thinking, or a call by its index."""
        self._stopped = Stopped("end_turn", None)
        self.alive = self._event("ping", Ping())

    def whole(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        """The body of a reply that is not streamed."""
        (choice,) = choices
        content: list[TextBlock | ThinkingBlock | ToolUseBlock] = []
        if choice.reasoning:
            content.append(ThinkingBlock(choice.reasoning))
        if choice.text:
            content.append(TextBlock(choice.text))
        content.extend(ToolUseBlock(call.id, call.name, _arguments(call)) for call in choice.tool_calls)
        stopped = _stopped(choice.finish_reason, choice.stop)
        return self._encoder.encode(self._message(content, stopped, _usage(usage)))

    def opening(self, _indices: Sequence[int]) -> list[bytes]:
        """What comes before the first text."""
        return [self._event("message_start", MessageStart(self._message([], None, MessageUsage(0, 0, 0)))), self.alive]

    def chunk(self, chunk: Chunk) -> list[bytes]:
        """The events that a piece of the answer makes."""
        events: list[bytes] = []
        if chunk.reasoning:
            events += self._block("thinking", ThinkingBlock(""))
            events.append(self._delta(ThinkingDelta(chunk.reasoning)))
        if chunk.text:
            events += self._block("text", TextBlock(""))
            events.append(self._delta(TextDelta(chunk.text)))
        for piece in chunk.tool_calls:
            events += self._block(f"call {piece.index}", _begun(piece))
            if piece.arguments:
                events.append(self._delta(InputDelta(piece.arguments)))
        if chunk.finish_reason is not None:
            events += self._end()
            self._stopped = _stopped(chunk.finish_reason, chunk.stop)
        return events

    def usage(self, usage: Usage) -> bytes:
        """The end of the stream."""
        delta = self._event("message_delta", MessageDelta(self._stopped, _usage(usage)))
        return delta + self._event("message_stop", MessageStop())

    def frames(self, payloads: Iterable[bytes]) -> bytes:
        """Events as one write: they are framed already, for each has its name."""
        return b"".join(payloads)

    def error(self, error: ApiError) -> bytes:
        """Says that the stream has failed."""
        return sse.named("error", anthropic_error(error))

    def _block(self, what: str, empty: TextBlock | ThinkingBlock | ToolUseBlock) -> list[bytes]:
        """The events that lead from the block that is open to another, if it is another."""
        if self._open == what:
            return []
        events = self._end()
        self._open = what
        self._index += 1
        return [*events, self._event("content_block_start", BlockStart(self._index, empty))]

    def _end(self) -> list[bytes]:
        if self._open is None:
            return []
        self._open = None
        return [self._event("content_block_stop", BlockStop(self._index))]

    def _delta(self, delta: TextDelta | ThinkingDelta | InputDelta) -> bytes:
        return self._event("content_block_delta", BlockDelta(self._index, delta))

    def _message(
        self, content: list[TextBlock | ThinkingBlock | ToolUseBlock], stopped: Stopped | None, usage: MessageUsage
    ) -> AssistantReply:
        who = self._identity
        reason, sequence = (None, None) if stopped is None else (stopped.stop_reason, stopped.stop_sequence)
        return AssistantReply(who.id, who.model, content, reason, sequence, usage)

    def _event(self, name: str, event: MessageEvent) -> bytes:
        return sse.named(name, self._encoder.encode(event))


def _begun(piece: ToolCallDelta) -> ToolUseBlock:
    return ToolUseBlock(piece.id or "", piece.name or "", {})


def _arguments(call: ToolCall) -> dict[str, Any]:
    """As an object. What the model did not write as one, or not to its end, has none."""
    try:
        value = msgspec.json.decode(call.arguments)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _stopped(finish: AnswerFinish, stop: str | None) -> Stopped:
    if finish == "stop" and stop is not None:
        return Stopped("stop_sequence", stop)
    return Stopped(_REASONS[finish], None)


_REASONS: dict[AnswerFinish, StopReason] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}


def _usage(usage: Usage) -> MessageUsage:
    return MessageUsage(usage.prompt_tokens - usage.cached_tokens, usage.completion_tokens, usage.cached_tokens)
