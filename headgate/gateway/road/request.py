"""The one request of the road, whichever protocol it came in, and the pieces an answer comes back in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from headgate.engine.request import Priority
from headgate.engine.text.chat_template import call_arguments
from headgate.engine.text.stream import TextLogprob
from headgate.gateway.road.attachments import Attachment, Picture, Piece

Endpoint = Literal["chat.completions", "completions", "embeddings", "passed"]
AnswerFinish = Literal["stop", "length", "tool_calls", "content_filter"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call the assistant made, in an answer or in an earlier turn; `arguments` is JSON as the model wrote it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation. Roles are those of chat templates: system, user, assistant, tool."""

    role: str
    content: str | None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str | None = None
    """What the assistant thought before it said this, for templates that show it."""
    parts: tuple[Piece, ...] = ()
    """The content piece by piece where it is more than text; `content` is its text then."""

    def for_template(self) -> dict[str, Any]:
        """The mapping chat templates are written against, of text alone; absent keys are left out."""
        fields: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.name is not None:
            fields["name"] = self.name
        if self.reasoning is not None:
            fields["reasoning_content"] = self.reasoning
        if self.tool_call_id is not None:
            fields["tool_call_id"] = self.tool_call_id
        if self.tool_calls:
            fields["tool_calls"] = [
                {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": call_arguments(c.arguments)}}
                for c in self.tool_calls
            ]
        return fields


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call. `parameters` is the JSON schema of its arguments."""

    name: str
    description: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = False
    """Whether arguments must follow the schema."""

    def for_template(self) -> dict[str, Any]:
        """The mapping chat templates are written against."""
        fields: dict[str, Any] = {"name": self.name}
        if self.description is not None:
            fields["description"] = self.description
        fields["parameters"] = self.parameters or {"type": "object", "properties": {}}
        return {"type": "function", "function": fields}


@dataclass(frozen=True, slots=True)
class ToolUse:
    """Whether the model may, must not or must call functions: any of them or, with a name, that one."""

    mode: Literal["auto", "none", "required"] = "auto"
    name: str | None = None
    parallel: bool = True
    """Whether there may be several calls."""


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """The form of an answer's text: JSON by a schema, or any text."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    schema: Mapping[str, Any] | None = None
    name: str = "answer"
    """The schema's, as the client calls it."""
    strict: bool = False
    """Whether the client wants the schema followed to the letter. Models of this process always do."""


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """What was added to a call. `id` and `name` come with its first piece and only there."""

    index: int
    arguments: str
    id: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling as the client asked for it; None means the model's own default."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False


class CacheControl(msgspec.Struct, frozen=True):
    """What the request's headers ask of the answer cache.

    Attributes:
        no_cache: do not answer from the cache (the answer may still be stored).
        no_store: neither answer from the cache nor store.
        only_if_cached: answer from the cache or not at all.
        max_age_s: accept stored answers up to this age; given explicitly it also opts in to exact
            caching where an answer is not cached unless asked.
        max_error: largest share of wrong answers that the client accepts among answers to similar
            questions; 0 accepts exact ones only, None leaves it to the configuration.
        tags: names under which the answer is stored, so that it can be forgotten by them.
    """

    no_cache: bool = False
    no_store: bool = False
    only_if_cached: bool = False
    max_age_s: float | None = None
    max_error: float | None = None
    tags: tuple[str, ...] = ()

    @property
    def asked(self) -> bool:
        """Whether the client said that it wants a stored answer, also where it may differ from a fresh one."""
        return self.max_age_s is not None or self.only_if_cached


_TOKEN_BYTES = 8
ADAPTIVE = "adaptive"
"""A model that can think shall, as much as it will."""

ServiceTier = Literal["auto", "default", "flex", "priority"]
"""OpenAI's names of classes that a request may ask for."""


DraftSource = Literal["prediction", "near"]
"""The client, or the stored answer to a similar question that may not be served."""


class Draft(msgspec.Struct, frozen=True):
    """What an answer may be like. It decides how soon the answer is there, never what it says."""

    source: DraftSource
    text: str
    model: str = ""
    """Whose tokens `token_ids` are."""
    token_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What to answer. Either `messages` or, for a plain completion, `prompt` (text or token ids) is given."""

    endpoint: Endpoint
    model: str
    messages: tuple[Message, ...] = ()
    prompt: str | tuple[int, ...] | None = None
    sampling: Sampling = field(default_factory=Sampling)
    max_tokens: int | None = None
    n: int = 1
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    """How many of the likeliest tokens to report beside each emitted one; None reports nothing."""
    stream: bool = False
    include_usage: bool = False
    cache: CacheControl = field(default_factory=CacheControl)
    user: str | None = None
    """The end user, as the client names it."""
    metadata: tuple[tuple[str, str], ...] = ()
    """The client's own labels of the request, for its usage."""
    session: str | None = None
    """The conversation, as the client names it."""
    service_tier: ServiceTier = "auto"
    """The class that the client asks for; auto: its team's."""
    priority: Priority = "foreground"
    """The class that it has. Background work is computed in what others leave of the engine's steps."""
    tools: tuple[Tool, ...] = ()
    tool_use: ToolUse = field(default_factory=ToolUse)
    response_format: ResponseFormat = field(default_factory=ResponseFormat)
    echo: bool = False
    """Whether the answer begins with the prompt; then `max_tokens` may be 0."""
    reasoning_effort: str | None = None
    """How much to think before the answer, from `none` to `max`, or `ADAPTIVE`; None leaves it to the model."""
    thinking_tokens: int | None = None
    """Most tokens of thinking; None: as many as the answer may have."""
    draft: Draft | None = None
    unknown: tuple[tuple[str, str], ...] = ()
    """Fields of the body that nobody here knows, with their JSON: for servers that are sent them on."""
    drops: bool = False
    """Whether those are left out where they cannot be sent on, instead of refused."""
    arm: bool = False
    """Whether `model` is an experiment's choice for a client who left it to us."""

    @property
    def callable_tools(self) -> tuple[Tool, ...]:
        """The functions that the answer may call."""
        return () if self.tool_use.mode == "none" else self.tools

    @property
    def prompt_field(self) -> str:
        """Where the client wrote what the model reads."""
        return "messages" if self.prompt is None else "prompt"

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """What its messages have beside text, in order."""
        return tuple([part for m in self.messages if m.parts for part in m.parts if not isinstance(part, str)])

    @property
    def size(self) -> int:
        """Bytes that it takes, about: those of its texts and of what it has beside text."""
        prompt = len(self.prompt or ()) * (1 if isinstance(self.prompt, str) else _TOKEN_BYTES)
        return prompt + sum(map(_size, self.messages))

    @property
    def last_user_text(self) -> str | None:
        """What similar questions are compared by; None where the request does not end with the user's text."""
        if not self.messages or self.messages[-1].role != "user":
            return None
        return self.messages[-1].content


def _size(message: Message) -> int:
    attached = sum(len(p.url if isinstance(p, Picture) else p.data) for p in message.parts if not isinstance(p, str))
    return len(message.content or "") + attached + sum(len(call.arguments) for call in message.tool_calls)


class Usage(msgspec.Struct, frozen=True):
    """Token counts of one answer, all choices together. `cached_tokens` are prompt tokens not computed again."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    rejected_tokens: int = 0
    """Of the completion's tokens, those of an answer that was not given because another model was sent for."""
    reasoning_tokens: int = 0
    """Of the completion's tokens, those of what the model thought before its answer."""
    drafted_tokens: int = 0
    """Of the completion's tokens, those that the request's draft proposed."""
    misdrafted_tokens: int = 0
    """Tokens of the draft that were computed in vain: beside the completion's, where it is computed here."""
    beside_nano_usd: int = 0
    """What is paid beside tokens, in billionths of a dollar: by the request, the picture, the character, the second."""
    image_tokens: int = 0
    """Of the prompt's tokens, those of its pictures."""


@dataclass(slots=True)
class Chunk:
    """The next piece of one choice. `finish_reason` is set on the choice's last chunk and only there.

    Never changed once made; not frozen, because it is made for every frame and freezing makes that three times slower.
    """

    index: int
    text: str
    logprobs: tuple[TextLogprob, ...] = ()
    finish_reason: AnswerFinish | None = None
    token_ids: tuple[int, ...] = ()
    queue_s: float = 0.0
    """Seconds the request waited for its first step; 0 for a stored answer."""
    tool_calls: tuple[ToolCallDelta, ...] = ()
    reasoning: str = ""
    """What the model thought before its answer."""
    stop: str | None = None
    """The stop string that ended the choice; on its last chunk."""
    reasoning_tokens: int = 0
    """Tokens of all of the choice's reasoning; on its last chunk."""


class Choice(msgspec.Struct, frozen=True):
    """One whole answer: its chunks joined."""

    index: int
    text: str
    logprobs: tuple[TextLogprob, ...]
    finish_reason: AnswerFinish
    token_ids: tuple[int, ...]
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    stop: str | None = None
    """The stop string that ended it."""
    reasoning_tokens: int = 0

    def as_chunk(self) -> Chunk:
        """The whole of it as one piece."""
        calls = (ToolCallDelta(at, call.arguments, call.id, call.name) for at, call in enumerate(self.tool_calls))
        return Chunk(
            self.index,
            self.text,
            self.logprobs,
            self.finish_reason,
            self.token_ids,
            tool_calls=tuple(calls),
            reasoning=self.reasoning,
            stop=self.stop,
            reasoning_tokens=self.reasoning_tokens,
        )


class Joiner:
    """Joins the chunks of an answer into whole choices: what a reply without streaming is, and what the cache keeps."""

    def __init__(self) -> None:
        self._chunks: dict[int, list[Chunk]] = {}

    def add(self, chunk: Chunk) -> None:
        """Take the next piece of its choice."""
        self._chunks.setdefault(chunk.index, []).append(chunk)

    def choices(self) -> tuple[Choice, ...]:
        """The choices that have finished, by index."""
        return tuple(
            _alone(chunks[0])
            if len(chunks) == 1
            else Choice(
                index,
                "".join(c.text for c in chunks),
                tuple(item for c in chunks for item in c.logprobs),
                chunks[-1].finish_reason,
                tuple(token for c in chunks for token in c.token_ids),
                _calls(chunks),
                "".join(c.reasoning for c in chunks),
                chunks[-1].stop,
                chunks[-1].reasoning_tokens,
            )
            for index, chunks in sorted(self._chunks.items())
            if chunks[-1].finish_reason is not None
        )


def _alone(chunk: Chunk) -> Choice:
    """A choice that came in one piece, as stored ones do."""
    finish = chunk.finish_reason
    assert finish is not None, "it has finished"
    return Choice(
        chunk.index,
        chunk.text,
        chunk.logprobs,
        finish,
        chunk.token_ids,
        _calls((chunk,)) if chunk.tool_calls else (),
        chunk.reasoning,
        chunk.stop,
        chunk.reasoning_tokens,
    )


def _calls(chunks: Sequence[Chunk]) -> tuple[ToolCall, ...]:
    """The calls that the pieces of one choice make up."""
    pieces: dict[int, list[ToolCallDelta]] = {}
    for chunk in chunks:
        for piece in chunk.tool_calls:
            pieces.setdefault(piece.index, []).append(piece)
    return tuple(
        ToolCall(parts[0].id or "", parts[0].name or "", "".join(part.arguments for part in parts))
        for _, parts in sorted(pieces.items())
    )
