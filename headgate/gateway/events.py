"""What comes of a request on the road: what was decided at once, the answer's pieces, its account."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Literal, Protocol

from headgate.gateway.destinations import Outcome
from headgate.gateway.request import Chunk
from headgate.gateway.telemetry.record import Chosen

CacheVerdict = Literal["exact", "semantic", "near", "miss", "bypass"]


@dataclass(frozen=True, slots=True)
class Opened:
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


Event = Opened | Chunk | Outcome


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
