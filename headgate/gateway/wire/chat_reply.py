"""`POST /v1/chat/completions`: the reply on the wire, whole and streamed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from headgate.engine.request import Priority
from headgate.engine.text.stream import TextLogprob
from headgate.gateway.road.request import AnswerFinish, ChatRequest, Choice, Chunk, ToolCallDelta, Usage
from headgate.gateway.wire.identity import Identity
from headgate.gateway.wire.text_slot import TextSlot
from headgate.gateway.wire.usage import UsageBody, usage_body

UsedTier = Literal["default", "flex", "priority"]
"""`priority` is read before others; `flex` is computed in what others leave of the engine's steps."""
USED_TIERS: Mapping[Priority, UsedTier] = {"interactive": "priority", "foreground": "default", "background": "flex"}


_ENCODER = msgspec.json.Encoder()


class TopLogprobBody(Struct):
    """A likely token at a position."""

    token: str
    logprob: float
    bytes: list[int]


class LogprobBody(Struct):
    """The emitted token and the likeliest tokens at its position."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprobBody]


class LogprobsBody(Struct):
    """Log probabilities of a choice's tokens."""

    content: list[LogprobBody]
    refusal: None = None


class FunctionCallBody(Struct):
    """Name and JSON arguments of a call."""

    name: str
    arguments: str


class ToolCallBody(Struct):
    """A call that the model asks for."""

    id: str
    function: FunctionCallBody
    type: Literal["function"] = "function"


class AssistantMessage(Struct):
    """The answer. `content` is null where there is nothing but calls."""

    role: Literal["assistant"]
    content: str | None
    refusal: None = None
    tool_calls: list[ToolCallBody] | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET


class ChatChoice(Struct):
    """One of the `n` answers."""

    index: int
    message: AssistantMessage
    logprobs: LogprobsBody | None
    finish_reason: AnswerFinish


class ChatCompletion(Struct):
    """The body of a reply that was not streamed."""

    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: UsageBody
    system_fingerprint: str
    service_tier: UsedTier = "default"
    object: Literal["chat.completion"] = "chat.completion"


class FunctionCallDelta(Struct, omit_defaults=True):
    """What a chunk adds to a call: the name with its first piece, the arguments bit by bit."""

    name: str | None = None
    arguments: str | None = None


class ToolCallDeltaBody(Struct, omit_defaults=True):
    """What a chunk adds to the call of that index; `id` and `type` come with its first piece."""

    index: int
    function: FunctionCallDelta
    id: str | None = None
    type: Literal["function"] | None = None


class ChoiceDelta(Struct, omit_defaults=True):
    """What a chunk adds to a choice."""

    role: str | None = None
    content: str | None = None
    tool_calls: list[ToolCallDeltaBody] | None = None
    reasoning_content: str | None = None


class ChunkChoice(Struct):
    """One choice within a chunk."""

    index: int
    delta: ChoiceDelta
    logprobs: LogprobsBody | None
    finish_reason: AnswerFinish | None


class ChatCompletionChunk(Struct):
    """One server-sent event of a streamed reply."""

    id: str
    created: int
    model: str
    choices: list[ChunkChoice]
    system_fingerprint: str
    service_tier: UsedTier = "default"
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    usage: UsageBody | UnsetType | None = UNSET


def logprobs_body(logprobs: tuple[TextLogprob, ...]) -> LogprobsBody:
    """The wire form of tokens' log probabilities."""
    return LogprobsBody(
        [
            LogprobBody(
                item.token,
                item.logprob,
                list(item.bytes),
                [TopLogprobBody(top.token, top.logprob, list(top.bytes)) for top in item.top],
            )
            for item in logprobs
        ]
    )


class ChatReply:
    """Encodes one answer, whole or chunk by chunk. Holds what all of its pieces share."""

    def __init__(self, identity: Identity, request: ChatRequest) -> None:
        self._identity = identity
        self._tier = USED_TIERS[request.priority]
        self._wants_logprobs = request.logprobs is not None
        self._usage: UnsetType | None = None if request.include_usage else UNSET
        self._slots: dict[int, TextSlot] = {}

    def whole(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        """The body of a reply that is not streamed."""
        who = self._identity
        bodies = [
            ChatChoice(
                choice.index,
                _message(choice),
                logprobs_body(choice.logprobs) if self._wants_logprobs else None,
                choice.finish_reason,
            )
            for choice in choices
        ]
        body = ChatCompletion(who.id, who.created, who.model, bodies, usage_body(usage), who.fingerprint, self._tier)
        return _ENCODER.encode(body)

    def opening(self, indices: Sequence[int]) -> list[bytes]:
        """The chunks that carry the role, one per choice."""
        return [self._chunk([ChunkChoice(i, ChoiceDelta("assistant", ""), None, None)], self._usage) for i in indices]

    def chunk(self, chunk: Chunk) -> list[bytes]:
        """One piece of one choice, with its finish reason when it is the last; nothing where it shows nothing."""
        logprobs = logprobs_body(chunk.logprobs) if self._wants_logprobs and chunk.logprobs else None
        beside = chunk.tool_calls or chunk.reasoning
        if chunk.finish_reason is None and logprobs is None and not beside:
            return [self._plain(chunk)] if chunk.text else []
        delta = ChoiceDelta(
            content=chunk.text or None,
            tool_calls=[_call_delta(piece) for piece in chunk.tool_calls] or None,
            reasoning_content=chunk.reasoning or None,
        )
        return [self._chunk([ChunkChoice(chunk.index, delta, logprobs, chunk.finish_reason)], self._usage)]

    def usage(self, usage: Usage) -> bytes:
        """The chunk before `[DONE]` that carries the usage and no choice."""
        return self._chunk([], usage_body(usage))

    def _plain(self, chunk: Chunk) -> bytes:
        slot = self._slots.get(chunk.index)
        if slot is None:
            slot = self._slots[chunk.index] = TextSlot(
                lambda text: self._chunk([ChunkChoice(chunk.index, ChoiceDelta(content=text), None, None)], self._usage)
            )
        return slot.fill(chunk.text)

    def _chunk(self, choices: list[ChunkChoice], usage: UsageBody | UnsetType | None) -> bytes:
        who = self._identity
        return _ENCODER.encode(
            ChatCompletionChunk(who.id, who.created, who.model, choices, who.fingerprint, self._tier, usage=usage)
        )


def _message(choice: Choice) -> AssistantMessage:
    calls = [ToolCallBody(call.id, FunctionCallBody(call.name, call.arguments)) for call in choice.tool_calls]
    return AssistantMessage(
        "assistant",
        None if calls and not choice.text else choice.text,
        tool_calls=calls or UNSET,
        reasoning_content=choice.reasoning or UNSET,
    )


def _call_delta(piece: ToolCallDelta) -> ToolCallDeltaBody:
    function = FunctionCallDelta(piece.name, piece.arguments)
    return ToolCallDeltaBody(piece.index, function, piece.id, None if piece.id is None else "function")
