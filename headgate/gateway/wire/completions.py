"""`POST /v1/completions`: the wire types of plain completions and their way into and out of the road's own values."""

from __future__ import annotations

import codecs
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from headgate.engine.text.stream import TextLogprob
from headgate.gateway.road.request import AnswerFinish, CacheControl, ChatRequest, Choice, Chunk, Usage
from headgate.gateway.wire.decode import decode
from headgate.gateway.wire.errors import invalid, unsupported
from headgate.gateway.wire.identity import Identity
from headgate.gateway.wire.sampling import ModelName, SamplingFields, TokenId, check_stream_options, stop_strings
from headgate.gateway.wire.text_slot import TextSlot
from headgate.gateway.wire.unimplemented import COMPLETION_NEUTRAL, refuse_unsupported
from headgate.gateway.wire.unknown_fields import decode_open
from headgate.gateway.wire.usage import UsageBody, usage_body

DEFAULT_MAX_TOKENS = 16
"""What OpenAI's plain completions generate where `max_tokens` is absent."""

MAX_PROMPTS = 64


class CompletionRequest(SamplingFields, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """The body of `POST /v1/completions`. Parameters not listed are refused, never dropped."""

    model: ModelName | UnsetType = UNSET
    prompt: Annotated[
        str | list[str | TokenId | list[TokenId]],
        Meta(description="A text, a list of texts, a list of token ids, or a list of lists of token ids."),
    ]
    logprobs: Annotated[int, Meta(ge=0, le=5)] | None = None
    best_of: Annotated[int, Meta(ge=1, le=16, description="Only the value of n.")] | None = None
    echo: Annotated[bool, Meta(description="The prompt before its continuation; its tokens' logprobs too.")] | None = (
        None
    )
    max_tokens: Annotated[int, Meta(ge=0, description="0 only with echo.")] | None = None
    # Known to OpenAI's clients; served only at values that change nothing (see unimplemented.py).
    suffix: Any = UNSET


class CompletionLogprobs(Struct):
    """Four lists of one length, a position per generated token; `text_offset` counts characters."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None] | None
    text_offset: list[int]


class CompletionChoice(Struct):
    """One continuation; those of prompt p have the indices p·n to p·n + n − 1."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: AnswerFinish | None


class Completion(Struct):
    """The body of a reply, and of each event of a streamed one."""

    id: str
    created: int
    model: str
    choices: list[CompletionChoice]
    system_fingerprint: str
    object: Literal["text_completion"] = "text_completion"
    usage: UsageBody | UnsetType | None = UNSET


def parse_completion(
    body: bytes, cache: CacheControl, session: str | None = None, *, take_unknown: bool = False
) -> list[ChatRequest]:
    """One request per prompt in `body`; ApiError 400 where it is malformed or asks for something not implemented.

    `take_unknown`: as `parse_chat`.
    """
    if take_unknown:
        wire, unknown = decode_open(body, CompletionRequest, COMPLETION_NEUTRAL)
    else:
        wire, unknown = decode(body, CompletionRequest), ()
    refuse_unsupported(wire, COMPLETION_NEUTRAL)
    check_stream_options(wire.stream, wire.stream_options)
    n = wire.n or 1
    if wire.best_of not in (None, n):
        raise unsupported("best_of", f"'best_of' is only supported at the value of 'n' ({n}), but got {wire.best_of}.")
    if wire.max_tokens == 0 and not wire.echo:
        raise invalid("Invalid 'max_tokens': 0 is only allowed with 'echo'.", "max_tokens", "integer_below_min_value")
    sampling = wire.sampling()
    return [
        ChatRequest(
            endpoint="completions",
            model=wire.model or "",
            prompt=prompt,
            sampling=sampling,
            max_tokens=wire.max_tokens if wire.max_tokens is not None else DEFAULT_MAX_TOKENS,
            n=n,
            stop=stop_strings(wire.stop),
            logprobs=wire.logprobs,
            stream=bool(wire.stream),
            include_usage=bool(wire.stream_options and wire.stream_options.include_usage),
            cache=cache,
            user=wire.user,
            echo=bool(wire.echo),
            session=session,
            unknown=unknown,
        )
        for prompt in _prompts(wire.prompt)
    ]


def _prompts(prompt: str | list[str | int | list[int]]) -> list[str | tuple[int, ...]]:
    if isinstance(prompt, str):
        prompts: list[str | tuple[int, ...]] = [prompt]
    elif set(map(type, prompt)) == {int}:  # by far the longest lists
        prompts = [tuple(cast("list[int]", prompt))]
    elif all(isinstance(item, str) for item in prompt):
        prompts = [item for item in prompt if isinstance(item, str)]
    elif all(isinstance(item, list) for item in prompt):
        prompts = [tuple(item) for item in prompt if isinstance(item, list)]
    else:
        message = "Invalid type for 'prompt': expected texts, token ids, or lists of token ids, but got a mixture."
        raise invalid(message, "prompt", "invalid_type")
    if not prompts or not all(prompts):
        raise invalid("Invalid 'prompt': empty. Expected at least one token in each prompt.", "prompt", "empty_prompt")
    if len(prompts) > MAX_PROMPTS:
        message = f"Invalid 'prompt': expected at most {MAX_PROMPTS} prompts, but got {len(prompts)}."
        raise invalid(message, "prompt", "array_above_max_length")
    return prompts


class TextOffsets:
    """Where one choice's tokens begin in its text, in characters; tokens share the place of a character they share."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._at = 0

    def of(self, token: TextLogprob) -> int:
        """Where the next token begins."""
        begins, self._at = self._at, self._at + len(self._decoder.decode(bytes(token.bytes)))
        return begins


def logprobs_body(logprobs: tuple[TextLogprob, ...], top: int, offsets: TextOffsets) -> CompletionLogprobs:
    """The wire form of a choice's next tokens."""
    likeliest = [_likeliest(item) for item in logprobs] if top else None
    begins = [offsets.of(item) for item in logprobs]
    return CompletionLogprobs([i.token for i in logprobs], [i.logprob for i in logprobs], likeliest, begins)


def _likeliest(item: TextLogprob) -> dict[str, float] | None:
    """The likeliest tokens and, where it is none of them, the token itself; nothing is known at a prompt's first.

    Of tokens that look alike, as parts of characters do, the likeliest counts.
    """
    if math.isnan(item.logprob):
        return None
    return {item.token: item.logprob} | {t.token: t.logprob for t in reversed(item.top)}


class CompletionReply:
    """Encodes one answer, whole or chunk by chunk. Holds what all of its pieces share."""

    def __init__(self, identity: Identity, request: ChatRequest) -> None:
        self._identity = identity
        self._top = request.logprobs
        self._offsets: defaultdict[int, TextOffsets] = defaultdict(TextOffsets)
        self._usage: UnsetType | None = None if request.include_usage else UNSET
        self._encoder = msgspec.json.Encoder()
        self._slots: dict[int, TextSlot] = {}

    def whole(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        """The body of a reply that is not streamed."""
        bodies = [self._choice(c.index, c.text, c.logprobs, c.finish_reason) for c in choices]
        return self._encode(bodies, usage_body(usage))

    def opening(self, _indices: Sequence[int]) -> list[bytes]:
        """Plain completions carry no role, so nothing comes before the text."""
        return []

    def chunk(self, chunk: Chunk) -> list[bytes]:
        """One piece of one choice, with its finish reason when it is the last; nothing where it shows nothing."""
        if chunk.finish_reason is None and (self._top is None or not chunk.logprobs):
            return [self._plain(chunk)] if chunk.text else []
        return [self._encode([self._choice(chunk.index, chunk.text, chunk.logprobs, chunk.finish_reason)], self._usage)]

    def usage(self, usage: Usage) -> bytes:
        """The chunk before `[DONE]` that carries the usage and no choice."""
        return self._encode([], usage_body(usage))

    def _choice(
        self, index: int, text: str, logprobs: tuple[TextLogprob, ...], finish_reason: AnswerFinish | None
    ) -> CompletionChoice:
        body = None
        if self._top is not None and logprobs:
            body = logprobs_body(logprobs, self._top, self._offsets[index])
        return CompletionChoice(index, text, body, finish_reason)

    def _plain(self, chunk: Chunk) -> bytes:
        slot = self._slots.get(chunk.index)
        if slot is None:
            slot = self._slots[chunk.index] = TextSlot(
                lambda text: self._encode([CompletionChoice(chunk.index, text, None, None)], self._usage)
            )
        return slot.fill(chunk.text)

    def _encode(self, choices: list[CompletionChoice], usage: UsageBody | UnsetType | None) -> bytes:
        who = self._identity
        return self._encoder.encode(Completion(who.id, who.created, who.model, choices, who.fingerprint, usage=usage))
