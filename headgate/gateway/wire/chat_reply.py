"""`POST /v1/chat/completions`: the reply on the wire, whole and streamed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from headgate.engine.text.stream import TextLogprob
from headgate.gateway.request import AnswerFinish, ChatRequest, Choice, Chunk, Usage
from headgate.gateway.wire.identity import Identity
from headgate.gateway.wire.text_slot import TextSlot
from headgate.gateway.wire.usage import UsageBody, usage_body


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


class AssistantMessage(Struct):
    """The answer."""

    role: Literal["assistant"]
    content: str
    refusal: None = None


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
    service_tier: Literal["default"] = "default"
    object: Literal["chat.completion"] = "chat.completion"


class ChoiceDelta(Struct, omit_defaults=True):
    """What a chunk adds to a choice."""

    role: str | None = None
    content: str | None = None


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
    service_tier: Literal["default"] = "default"
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
        self._wants_logprobs = request.logprobs is not None
        self._usage: UnsetType | None = None if request.include_usage else UNSET
        self._encoder = msgspec.json.Encoder()
        self._slots: dict[int, TextSlot] = {}

    def whole(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        """The body of a reply that is not streamed."""
        who = self._identity
        bodies = [
            ChatChoice(
                choice.index,
                AssistantMessage("assistant", choice.text),
                logprobs_body(choice.logprobs) if self._wants_logprobs else None,
                choice.finish_reason,
            )
            for choice in choices
        ]
        body = ChatCompletion(who.id, who.created, who.model, bodies, usage_body(usage), who.fingerprint)
        return self._encoder.encode(body)

    def opening(self, indices: Sequence[int]) -> list[bytes]:
        """The chunks that carry the role, one per choice."""
        return [self._chunk([ChunkChoice(i, ChoiceDelta("assistant", ""), None, None)], self._usage) for i in indices]

    def chunk(self, chunk: Chunk) -> bytes:
        """One piece of one choice, with its finish reason when it is the last."""
        if chunk.finish_reason is None and not (self._wants_logprobs and chunk.logprobs):
            return self._plain(chunk)
        delta = ChoiceDelta(content=chunk.text) if chunk.text or chunk.finish_reason is None else ChoiceDelta()
        logprobs = logprobs_body(chunk.logprobs) if self._wants_logprobs and chunk.logprobs else None
        return self._chunk([ChunkChoice(chunk.index, delta, logprobs, chunk.finish_reason)], self._usage)

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
        return self._encoder.encode(
            ChatCompletionChunk(who.id, who.created, who.model, choices, who.fingerprint, usage=usage)
        )
