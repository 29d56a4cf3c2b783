"""An upstream's answer read from its bytes: chunks as they come, and whether it came to its end. Knows no network."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import Raw, Struct

from headgate.engine.text.stream import TextLogprob, TopLogprob
from headgate.gateway.road.request import AnswerFinish, Chunk, Joiner, ToolCallDelta, Usage
from headgate.gateway.upstream.events import MAX_EVENT_BYTES, EventParser, EventTooLong
from headgate.gateway.upstream.failures import Failure, of_event
from headgate.gateway.upstream.tool_calls import CallPiece, CallsInTurn

_FINISHES: dict[str, AnswerFinish] = {
    "length": "length",
    "max_tokens": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}
"""All others are `stop`, which servers call by many names, but for those below."""
_MOST_TOKENS = 1_000_000_000
"""Of one account: more is a count that fell below 0 somewhere."""
_FAILED = frozenset({"error", "abort", "aborted", "cancelled", "canceled"})


class _Said(Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[CallPiece] | None = None


class _Choice(Struct):
    index: int = 0
    delta: _Said | None = None
    message: _Said | None = None
    text: str | None = None
    logprobs: Raw = Raw()
    finish_reason: str | None = None
    stop_reason: str | int | None = None


class _PromptDetails(Struct):
    cached_tokens: int | None = None
    image_tokens: int | None = None


class _CompletionDetails(Struct):
    reasoning_tokens: int | None = None
    accepted_prediction_tokens: int | None = None
    rejected_prediction_tokens: int | None = None


class _Usage(Struct):
    prompt_tokens: int = 0
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None


class _Event(Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None
    object: str | None = None
    message: Any = None


class _Top(Struct):
    token: str
    logprob: float
    bytes: list[int] | None = None


class _Token(_Top):
    top_logprobs: list[_Top] | None = None


class _ChatLogprobs(Struct):
    content: list[_Token] | None = None


class _TextLogprobs(Struct):
    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None] | None = None


_EVENT = msgspec.json.Decoder(_Event)
_CHAT_LOGPROBS = msgspec.json.Decoder(_ChatLogprobs)
_TEXT_LOGPROBS = msgspec.json.Decoder(_TextLogprobs)


class AnswerReader:
    """Reads one answer of so many choices."""

    def __init__(
        self,
        choices: int,
        *,
        logprobs: bool = False,
        hide: Callable[[str], str] = str,
        longest: int = MAX_EVENT_BYTES,
    ) -> None:
        """Nothing read yet.

        Args:
            choices: that were asked for.
            logprobs: whether log probabilities were; others are not looked at.
            hide: takes the secrets out of what the upstream says of an error.
            longest: bytes that an event may have.
        """
        self._parser = EventParser(longest)
        self._wanted = logprobs
        self.hide = hide
        self._open = set(range(choices))
        self._calls: dict[int, CallsInTurn] = {}
        self._held: dict[int, list[Chunk]] = {}
        """By choice, what was said while a call lacked arguments."""
        self._last: Chunk | None = None
        self._single = choices == 1
        self.usage: Usage | None = None
        self.done = False
        """Whether the upstream has said that nothing follows."""
        self.pieces = 0
        """Chunks of text, reasoning or calls: about the tokens that were seen."""

    @property
    def whole(self) -> bool:
        """Whether every choice has come to its end."""
        return not self._open

    def feed(self, data: bytes) -> list[Chunk]:
        """The chunks that these bytes of an event stream complete. Failure where they are no answer."""
        try:
            payloads = self._parser.feed(data)
        except EventTooLong as error:
            raise Failure("broken", f"sent what cannot be read: {error}.") from None
        return self._read(payloads)

    def end(self) -> list[Chunk]:
        """The bytes have ended: what was still missing its end. Failure where the answer is not whole."""
        chunks = self._read(self._parser.end())
        if self._open:
            raise Failure("cut", "ended its answer before it was whole.")
        return chunks

    def body(self, body: bytes) -> list[Chunk]:
        """The chunks of an answer that came in one piece, not as a stream."""
        chunks = self._event(body)
        if self._open:
            raise Failure("broken", "sent an answer that is not whole.")
        self.done = True
        return chunks

    def _read(self, payloads: Iterable[bytes]) -> list[Chunk]:
        chunks: list[Chunk] = []
        for payload in payloads:
            if payload == b"[DONE]":
                self.done = True
                if self._open:
                    raise Failure("cut", "ended its answer without a finish reason.")
            elif payload and not self.done:
                chunks += self._event(payload)
        return chunks

    def _event(self, payload: bytes) -> list[Chunk]:
        try:
            event = _EVENT.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Failure("broken", f"sent what cannot be read: {self.hide(str(error))}.") from None
        if event.error is not None or event.object == "error":
            raise of_event(event.error if event.error is not None else {"message": event.message}, self.hide)
        chunks = [chunk for choice in event.choices or () for chunk in self._chunks(choice)]
        if event.usage is not None:
            # Some send it together with the last chunk, which is to know it.
            self._account(event.usage)
        return chunks

    def _chunks(self, choice: _Choice) -> list[Chunk]:
        """A piece of a choice; none where it shows nothing yet, and after the choice's end."""
        if choice.index not in self._open:
            return []
        said, text, reasoning = choice.delta or choice.message, choice.text or "", ""
        calls, pieces = self._calls.get(choice.index), said.tool_calls if said is not None else None
        unfinished = calls is not None and calls.unfinished
        told: tuple[ToolCallDelta, ...] = ()
        if said is not None:
            text = said.content or said.refusal or ""
            reasoning = said.reasoning_content or said.reasoning or ""
        if pieces:
            calls = self._calls.setdefault(choice.index, CallsInTurn())
            told = calls.add(pieces)
        finish = None
        if choice.finish_reason:
            finish = self._finish(choice.index, choice.finish_reason)
            told += () if calls is None else calls.end()
        elif not text and not reasoning and not pieces:
            return []
        if text or reasoning or pieces:
            self.pieces += 1
        logprobs: tuple[TextLogprob, ...] = ()
        if self._wanted and (raw := bytes(choice.logprobs)) not in (b"", b"null"):
            logprobs = self._logprobs(raw, chat=said is not None)
        stop = choice.stop_reason if isinstance(choice.stop_reason, str) and finish == "stop" else None
        chunk = Chunk(choice.index, text, logprobs, finish, tool_calls=told, reasoning=reasoning, stop=stop)
        if finish is not None:
            self._last = chunk
        if calls is None:
            return [chunk]
        if unfinished and (text or reasoning or choice.index in self._held):
            return self._after_the_call(chunk, more=finish is None and calls.unfinished)
        return [chunk] if text or reasoning or told or logprobs or finish is not None else []

    def _after_the_call(self, chunk: Chunk, *, more: bool) -> list[Chunk]:
        """What a call has gained, and then what was said while it lacked arguments: if `more` follow, later."""
        calls, chunk.tool_calls = chunk.tool_calls, ()
        held = self._held.setdefault(chunk.index, [])
        held.append(chunk)
        chunks = [Chunk(chunk.index, "", tool_calls=calls)] if calls else []
        if not more:
            del self._held[chunk.index]
            chunk.text, chunk.reasoning = "".join([c.text for c in held]), "".join([c.reasoning for c in held])
            chunk.logprobs = tuple([entry for c in held for entry in c.logprobs])
            chunks.append(chunk)
        return chunks

    def _finish(self, index: int, reason: str) -> AnswerFinish:
        if reason in _FAILED:
            raise Failure("failed", f"ended its answer with '{reason}'.")
        self._open.discard(index)
        finish = _FINISHES.get(reason, "stop")
        # Some call functions and say that they just stopped.
        return "tool_calls" if finish == "stop" and index in self._calls else finish

    def _logprobs(self, raw: bytes, *, chat: bool) -> tuple[TextLogprob, ...]:
        try:
            if chat:
                read = _CHAT_LOGPROBS.decode(raw)
                return tuple(
                    TextLogprob(t.token, _bytes(t), t.logprob, tuple(map(_top, t.top_logprobs or ())))
                    for t in read.content or ()
                )
            plain = _TEXT_LOGPROBS.decode(raw)
            tops = plain.top_logprobs or [None] * len(plain.tokens)
            return tuple(
                TextLogprob(
                    token,
                    tuple(token.encode()),
                    0.0 if value is None else value,
                    tuple(TopLogprob(name, tuple(name.encode()), p) for name, p in (top or {}).items()),
                )
                for token, value, top in zip(plain.tokens, plain.token_logprobs, tops, strict=True)
            )
        except (msgspec.DecodeError, ValueError) as error:
            raise Failure("broken", f"sent log probabilities that cannot be read: {error}.") from None

    def _account(self, usage: _Usage) -> None:
        read = usage.prompt_tokens_details or _PromptDetails()
        cached, images = read.cached_tokens or 0, read.image_tokens or 0
        details = usage.completion_tokens_details or _CompletionDetails()
        thought = details.reasoning_tokens or 0
        drafted, misdrafted = details.accepted_prediction_tokens or 0, details.rejected_prediction_tokens or 0
        counts = usage.prompt_tokens, usage.completion_tokens or 0, cached, images, thought, drafted, misdrafted
        if min(counts) < 0:
            raise Failure("broken", "sent an account with negative counts.")
        if max(counts) > _MOST_TOKENS:
            raise Failure(
                "broken", f"sent an account with a count of {max(counts)}; at most {_MOST_TOKENS} can be meant."
            )
        self.usage = Usage(
            usage.prompt_tokens,
            usage.completion_tokens or 0,
            min(cached, usage.prompt_tokens),
            reasoning_tokens=thought,
            drafted_tokens=drafted,
            misdrafted_tokens=misdrafted,
            image_tokens=min(images, usage.prompt_tokens),
        )
        if self._last is not None and self._single:
            # The account comes after the last chunk, whose copy in the cache is to know it.
            self._last.reasoning_tokens = self.usage.reasoning_tokens


def joined(chunks: Iterable[Chunk]) -> list[Chunk]:
    """The chunks of a whole answer as one for each choice."""
    joiner = Joiner()
    for chunk in chunks:
        joiner.add(chunk)
    return [choice.as_chunk() for choice in joiner.choices()]


def _bytes(token: _Top) -> tuple[int, ...]:
    return tuple(token.token.encode() if token.bytes is None else token.bytes)


def _top(token: _Top) -> TopLogprob:
    return TopLogprob(token.token, _bytes(token), token.logprob)
