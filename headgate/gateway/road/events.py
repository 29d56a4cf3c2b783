"""What comes of a request on the road: what was decided at once, the answer's pieces, its account."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from types import TracebackType
from typing import Literal, Protocol

import msgspec

from headgate.cache.single_flight import FlightLostError
from headgate.gateway.road.destinations import Outcome
from headgate.gateway.road.request import Choice, Chunk
from headgate.gateway.teams.retries import Whole
from headgate.gateway.telemetry.record import Chosen
from headgate.gateway.wire.errors import overloaded

CacheVerdict = Literal["exact", "semantic", "near", "miss", "bypass"]


class Opened(msgspec.Struct, frozen=True):
    """First event of a generation: what was decided about it."""

    verdict: CacheVerdict
    why: str
    """The cache's reason, one of a few: `stored`, `joined`, `absent`, a guard's name, what made it a bypass…"""
    model: str
    fingerprint: str
    reason: str
    """The route's."""
    similarity: float | None = None
    key: str | None = None
    """Of the entry that is served, or under which the answer will be stored; None where it will not be."""
    age_s: float | None = None
    """Of the answer that is served from the cache."""
    device_s: float = 0.0
    """What the generation of a stored answer took."""
    bound: float | None = None
    """Upper bound on the share of wrong answers among those served like this one, where there is one."""
    chosen: Chosen | None = None
    """What the choice of the model followed from, where there was one."""
    looked_s: float | None = None
    """What the look into the cache took, waiting for similar questions included; None where another request did it."""
    planned_s: float | None = None
    """What it took to choose a model; None where none was chosen."""
    asked_at: float | None = None
    """When a model was first asked for it, in monotonic seconds; None where none was."""


Event = Opened | Chunk | Outcome


InTime = Callable[[Awaitable[Event]], Awaitable[Event]]
"""What is waited for, or ApiError where it does not come in time."""


class Events(Protocol):
    """What comes of a request, in the order in which it comes."""

    @property
    def leads(self) -> bool:
        """Whether this request is the one it is made for."""
        ...

    @property
    def pending(self) -> bool:
        """Whether the next event comes without waiting."""
        ...

    async def __anext__(self) -> Event:
        """The next one; FlightLostError where there will be none because of others."""
        ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """No more are wanted, after they were entered."""
        ...


class Solo:
    """The events of a request with one choice that shares with nobody, made in its own task.

    A flight wakes one task to make an event and another to send it, for each event.
    """

    leads = True

    def __init__(self, events: AsyncGenerator[Event]) -> None:
        self._events = events
        self.pending = False

    async def __aenter__(self) -> Solo:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._events.aclose()

    async def __anext__(self) -> Event:
        event = await anext(self._events)
        # Nothing is waited for between the last text and the account.
        self.pending = isinstance(event, Chunk) and event.finish_reason is not None
        return event


class Answer:
    """An answer being made: what was decided at once, its chunks as they come, its account at the end."""

    def __init__(
        self, opened: Opened, events: Events, clock: Callable[[], float], in_time: InTime | None = None
    ) -> None:
        """`in_time` bounds the wait for its first chunk."""
        self.opened = opened
        # It is known who answers when he has begun to: what he took for that is not the gateway's time.
        self.opened_at = clock() if opened.asked_at is None else opened.asked_at
        self._events = events
        self._in_time = in_time
        self._outcome: Outcome | None = None
        self._chunks: list[Chunk] = []

    def whole(self, now: float) -> Whole | None:
        """All of it, where it was computed for who asked and has ended."""
        if self._outcome is None or self.opened.age_s is not None:
            return None
        return Whole(self.opened, tuple(self._chunks), self._outcome, now)

    @property
    def ended(self) -> bool:
        """Whether it came to its end."""
        return self._outcome is not None

    @property
    def outcome(self) -> Outcome:
        """The account. Known once `next_batch` has returned nothing."""
        if self._outcome is None:
            raise RuntimeError("the answer has not ended yet; its account is known at the end")
        return self._outcome

    async def next_batch(self) -> list[Chunk]:
        """Every chunk there is by now, at least one; empty at the end.

        `ended` may be true together with the last chunks.

        ApiError where the generation failed.
        """
        batch: list[Chunk] = []
        while self._outcome is None and (not batch or self._events.pending):
            try:
                coming = self._events.__anext__()
                event = await (coming if self._in_time is None else self._in_time(coming))
            except FlightLostError:
                raise overloaded("The request was cancelled because the server is shutting down.") from None
            if isinstance(event, Chunk):
                batch.append(event)
                self._chunks.append(event)
                self._in_time = None
            elif isinstance(event, Outcome):
                self._outcome = event
        return batch

    def at_hand(self) -> Sequence[Choice] | None:
        """All of it, where it was made before; that ends it. None where it is being made."""
        return None


class Made(Answer):
    """An answer that was made before: all of it is there."""

    def __init__(
        self,
        opened: Opened,
        chunks: Sequence[Chunk],
        outcome: Outcome,
        clock: Callable[[], float],
        choices: Sequence[Choice] | None = None,
    ) -> None:
        """`choices`: what the chunks make up, where somebody has joined them already."""
        self.opened = opened
        self.opened_at = clock()
        self._outcome = None
        self._made = chunks
        self._account = outcome
        self._choices = choices

    def whole(self, now: float) -> None:
        """It was not computed for who asked."""

    async def next_batch(self) -> list[Chunk]:
        """All chunks, once."""
        if self._outcome is not None:
            return []
        self._outcome = self._account
        return list(self._made)

    def at_hand(self) -> Sequence[Choice] | None:
        """All of it, where it is joined; that ends it."""
        if self._choices is not None:
            self._outcome = self._account
        return self._choices
