"""OpenAI's `POST /v1/responses`: an answer as a response, whole and streamed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from headgate.engine.text.stream import TextLogprob
from headgate.gateway.road.request import AnswerFinish, Choice, Chunk, ToolCallDelta, Usage
from headgate.gateway.wire import sse
from headgate.gateway.wire.chat_reply import USED_TIERS, LogprobBody, logprobs_body
from headgate.gateway.wire.errors import ApiError
from headgate.gateway.wire.identity import Identity
from headgate.gateway.wire.responses import body
from headgate.gateway.wire.responses.request import TextConfig, TextFormat, ToRespond

_CUT: dict[AnswerFinish, Literal["max_output_tokens", "content_filter"]] = {
    "length": "max_output_tokens",
    "content_filter": "content_filter",
}
Keep = Callable[[bytes], None]
"""Told the body of a response that has ended."""


@dataclass(slots=True)
class _Item:
    """An item of the output as it grows."""

    kind: str
    """text, reasoning, or a call by its index."""
    id: str
    texts: list[str] = field(default_factory=list)
    logprobs: list[LogprobBody] = field(default_factory=list)
    call_id: str = ""
    name: str = ""

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def part(self) -> body.OutputText | body.ReasoningText:
        """Its content as it is now."""
        if self.kind == "text":
            return body.OutputText(self.text, self.logprobs)
        return body.ReasoningText(self.text)

    def written(self, status: body.ItemStatus, *, empty: bool = False) -> body.OutputItem:
        """The wire form; `empty` as it begins."""
        if self.kind == "text":
            return body.MessageItem(self.id, status, [] if empty else [body.OutputText(self.text, self.logprobs)])
        if self.kind == "reasoning":
            return body.ReasoningItem(self.id, status, [] if empty else [body.ReasoningText(self.text)])
        return body.CallItem(self.id, status, self.call_id, self.name, "" if empty else self.text)


class ResponsesReply:
    """Encodes one answer, whole or event by event, and frames its events."""

    done = b""
    alive = sse.KEEP_ALIVE

    def __init__(self, identity: Identity, asked: ToRespond, *, stored: bool, keep: Keep) -> None:
        """`keep` is told the response before its end is sent, if it is to be `stored`."""
        self._identity = identity
        self._asked = asked
        self._stored = stored
        self._keep = keep
        self._encoder = msgspec.json.Encoder()
        self._number = 0
        self._done: list[tuple[_Item, body.ItemStatus]] = []
        self._open: _Item | None = None
        self._early: tuple[TextLogprob, ...] = ()
        """Of tokens before the text whose beginning they hold: part of a character, or what might be a mark."""
        self._finish: AnswerFinish = "stop"

    def answered_by(self, identity: Identity) -> None:
        """It has been settled who answers: before, it was called by the name that was asked for."""
        self._identity = identity

    def empty(self, status: body.ResponseStatus) -> bytes:
        """The body of a response without output."""
        return self._encoder.encode(self._body(status))

    def whole(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        """The body of a reply that is not streamed."""
        (choice,) = choices
        self.chunk(choice.as_chunk())
        return self._end(usage)[1]

    def opening(self, _indices: Sequence[int]) -> list[bytes]:
        """What comes before the first text."""
        begun = self._body("in_progress")
        return [
            self._event("response.created", body.ResponseCreated(self._next(), begun)),
            self._event("response.in_progress", body.ResponseInProgress(self._next(), begun)),
        ]

    def chunk(self, chunk: Chunk) -> list[bytes]:
        """The events that a piece of the answer makes."""
        events: list[bytes] = []
        if chunk.reasoning:
            events += self._item("reasoning")
            events.append(self._reasoned(chunk.reasoning))
        if chunk.text or (chunk.logprobs and not chunk.tool_calls and self._speaks):
            own, rest = _spoken(chunk)
            events += self._item("text")
            events.append(self._said(chunk.text, _ending(chunk.text, self._early, own)))
            self._early = () if chunk.tool_calls else rest
        elif chunk.reasoning or chunk.tool_calls:
            self._early = ()
        else:
            self._early += chunk.logprobs
        for piece in chunk.tool_calls:
            events += self._item(f"call {piece.index}", piece)
            if piece.arguments:
                events.append(self._argued(piece.arguments))
        if chunk.finish_reason is not None:
            self._finish = chunk.finish_reason
            events += self._close("incomplete" if self._finish in _CUT else "completed")
        return events

    def usage(self, usage: Usage) -> bytes:
        """The end of the stream."""
        made, _ = self._end(usage)
        if made.status == "incomplete":
            return self._event("response.incomplete", body.ResponseIncomplete(self._next(), made))
        return self._event("response.completed", body.ResponseCompleted(self._next(), made))

    def frames(self, payloads: Iterable[bytes]) -> bytes:
        """Events as one write: they are framed already, for each has its name."""
        return b"".join(payloads)

    def error(self, error: ApiError) -> bytes:
        """Says that the stream has failed; the response is kept as it is told."""
        failed = self._body("failed")
        failed.error = body.failure_of(error)
        if self._stored:
            self._keep(self._encoder.encode(failed))
        return self._event("response.failed", body.ResponseFailed(self._next(), failed))

    def _end(self, usage: Usage) -> tuple[body.ResponseBody, bytes]:
        """The response with its account, and encoded; it is kept where it is to be stored."""
        made = self._body("incomplete" if self._finish in _CUT else "completed")
        if self._finish in _CUT:
            made.incomplete_details = body.IncompleteDetails(_CUT[self._finish])
        made.usage = body.response_usage(usage)
        encoded = self._encoder.encode(made)
        if self._stored:
            self._keep(encoded)
        return made, encoded

    def _item(self, kind: str, piece: ToolCallDelta | None = None) -> list[bytes]:
        """The events that lead from the item that is open to another, if it is another."""
        if self._open is not None and self._open.kind == kind:
            return []
        events = self._close("completed")
        prefix = {"text": "msg", "reasoning": "rs"}.get(kind, "fc")
        item = self._open = _Item(kind, f"{prefix}_{random.getrandbits(96):024x}")
        if piece is not None:
            item.call_id, item.name = piece.id or "", piece.name or ""
        at = len(self._done)
        added = body.ItemAdded(self._next(), at, item.written("in_progress", empty=True))
        events.append(self._event("response.output_item.added", added))
        if piece is None:
            part = body.PartAdded(self._next(), item.id, at, 0, item.part())
            events.append(self._event("response.content_part.added", part))
        return events

    def _said(self, text: str, logprobs: tuple[TextLogprob, ...]) -> bytes:
        item = self._opened()
        told = logprobs_body(logprobs).content if self._asked.request.logprobs is not None else []
        item.texts.append(text)
        item.logprobs += told
        delta = body.OutputTextDelta(self._next(), item.id, len(self._done), 0, text, told)
        return self._event("response.output_text.delta", delta)

    def _reasoned(self, text: str) -> bytes:
        item = self._opened()
        item.texts.append(text)
        delta = body.ReasoningDelta(self._next(), item.id, len(self._done), 0, text)
        return self._event("response.reasoning_text.delta", delta)

    def _argued(self, arguments: str) -> bytes:
        item = self._opened()
        item.texts.append(arguments)
        delta = body.ArgumentsDelta(self._next(), item.id, len(self._done), arguments)
        return self._event("response.function_call_arguments.delta", delta)

    def _close(self, status: body.ItemStatus) -> list[bytes]:
        """The events that end the item that is open."""
        item, at = self._open, len(self._done)
        if item is None:
            return []
        events: list[bytes] = []
        if item.kind.startswith("call"):
            whole = body.ArgumentsDone(self._next(), item.id, at, item.name, item.text)
            events.append(self._event("response.function_call_arguments.done", whole))
        else:
            if item.kind == "text":
                said = body.OutputTextDone(self._next(), item.id, at, 0, item.text, item.logprobs)
                events.append(self._event("response.output_text.done", said))
            else:
                thought = body.ReasoningDone(self._next(), item.id, at, 0, item.text)
                events.append(self._event("response.reasoning_text.done", thought))
            part = body.PartDone(self._next(), item.id, at, 0, item.part())
            events.append(self._event("response.content_part.done", part))
        ended = body.ItemDone(self._next(), at, item.written(status))
        events.append(self._event("response.output_item.done", ended))
        self._done.append((item, status))
        self._open = None
        return events

    @property
    def _speaks(self) -> bool:
        """Whether the item that is open is text."""
        return self._open is not None and self._open.kind == "text"

    def _opened(self) -> _Item:
        assert self._open is not None, "a delta belongs to the item that was opened for it"
        return self._open

    def _body(self, status: body.ResponseStatus) -> body.ResponseBody:
        who, wire = self._identity, self._asked.wire
        return body.ResponseBody(
            id=who.id,
            created_at=who.created,
            status=status,
            instructions=wire.instructions,
            background=bool(wire.background),
            max_output_tokens=wire.max_output_tokens,
            max_tool_calls=wire.max_tool_calls,
            model=who.model,
            output=[item.written(ended) for item, ended in self._done],
            parallel_tool_calls=wire.parallel_tool_calls is not False,
            previous_response_id=wire.previous_response_id,
            store=self._stored,
            temperature=wire.temperature,
            text=_text(wire.text),
            tool_choice=wire.tool_choice or "auto",
            tools=list(wire.tools or ()),
            top_p=wire.top_p,
            top_logprobs=wire.top_logprobs or 0,
            user=wire.user,
            safety_identifier=wire.safety_identifier,
            prompt_cache_key=wire.prompt_cache_key,
            metadata=wire.metadata or {},
            reasoning=body.ReasoningSettings(None if wire.reasoning is None else wire.reasoning.effort),
            service_tier=USED_TIERS[self._asked.request.priority],
        )

    def _next(self) -> int:
        """The number of the next event, counted from 0."""
        number, self._number = self._number, self._number + 1
        return number

    def _event(self, name: str, event: body.ResponseEvent) -> bytes:
        return sse.named(name, self._encoder.encode(event))


def _text(asked: TextConfig | None) -> TextConfig:
    return TextConfig(TextFormat("text")) if asked is None or asked.format is None else asked


def _spoken(chunk: Chunk) -> tuple[tuple[TextLogprob, ...], tuple[TextLogprob, ...]]:
    """Of a piece's tokens those of its text, and those after them.

    All of them, but where it also has what was thought or called, or is the last: a reply that is whole comes so.
    """
    if not (chunk.reasoning or chunk.tool_calls or chunk.finish_reason):
        return chunk.logprobs, ()
    text, thought = chunk.text.encode(), chunk.reasoning.encode()
    written = b"".join([bytes(token.bytes) for token in chunk.logprobs])
    # What stands between thoughts and text, as headers of harmony, may have the text's letters; nothing is behind it.
    last = written.rfind if not chunk.tool_calls else written.find
    begins = last(text, max(0, written.find(thought)) + len(thought))
    if begins < 0:
        return chunk.logprobs, ()
    spoken: list[TextLogprob] = []
    after: list[TextLogprob] = []
    at = 0
    for token in chunk.logprobs:
        at += len(token.bytes)
        if at > begins:
            (spoken if at - len(token.bytes) < begins + len(text) else after).append(token)
    return tuple(spoken), tuple(after)


def _ending(text: str, early: tuple[TextLogprob, ...], own: tuple[TextLogprob, ...]) -> tuple[TextLogprob, ...]:
    """Those of a text, with the early ones whose bytes it has before its own: the others were of marks."""
    room, at = len(text.encode()) - sum(len(token.bytes) for token in own), len(early)
    while at and len(early[at - 1].bytes) <= room:
        at -= 1
        room -= len(early[at].bytes)
    return early[at:] + own
