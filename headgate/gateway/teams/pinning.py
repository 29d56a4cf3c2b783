"""Prompts that teams have pinned: computed when nobody wants the engine, and held in its prefix cache.

What is held is what every conversation under such a prompt begins with: the prompt of two different questions, as far
as it is the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile

from prometheus_client import CollectorRegistry

from headgate.engine.errors import EngineError, EngineStopped
from headgate.gateway.local.destination import LocalDestination
from headgate.gateway.road.destinations import Destination
from headgate.gateway.road.request import ChatRequest, Message
from headgate.gateway.teams.keys import Principal
from headgate.gateway.teams.registry import Roster, Teams
from headgate.gateway.teams.sections import TeamPolicy
from headgate.gateway.teams.system_prompts import prompted
from headgate.gateway.telemetry.metrics.catalogue import Engine
from headgate.gateway.wire.errors import ApiError

logger = logging.getLogger("headgate.gateway")

FOLLOW_S = 1.0
_QUESTIONS = ("a", "Why?")
"""Two that have nothing in common."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A prompt that is to be held for a team by a model."""

    team: str
    model: str
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class _Held:
    name: str
    tokens: int
    by: LocalDestination


class Pinned:
    """Holds what the team files pin now. Calls come from one event loop."""

    def __init__(
        self, teams: Teams, destinations: Callable[[], Mapping[str, Destination]], registry: CollectorRegistry
    ) -> None:
        """Hold nothing yet. `destinations`: the models; asked once they are there."""
        self._teams = teams
        self._destinations = destinations
        self._held: dict[Wanted, _Held | None] = {}
        self._seen: Roster | None = None
        self._slept: dict[str, tuple[str, int]] = {}
        """Revision of each model that is awake, and how often it had slept, by then."""
        self._looking = asyncio.Lock()
        self._tokens = Engine.PINNED.held(registry)

    async def follow(self) -> None:
        """Keep up with the team files, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(FOLLOW_S)

    async def look(self) -> None:
        """Hold what is pinned now, and nothing else. It takes until the engine is idle."""
        async with self._looking:
            roster = self._teams.roster
            local = {d.id: d for d in self._destinations().values() if isinstance(d, LocalDestination)}
            # A model that slept holds nothing any more.
            sleeps = {n: (m.revision, m.sleep.stats.sleeps) for n, m in local.items() if m.sleep.awake}
            if roster is self._seen and sleeps == self._slept:
                return
            for lost in [w for w in self._held if sleeps.get(w.model) != self._slept.get(w.model)]:
                held = self._held.pop(lost)
                if held is not None:
                    held.by.unpin(held.name)  # of an adapter that went, whose model did not sleep
                self._note(lost)
            self._seen, self._slept = roster, sleeps
            wanted = set(_wanted(roster, {name: local[name] for name in sleeps}))
            # First, so that there is room for what is new.
            for gone in self._held.keys() - wanted:
                held = self._held.pop(gone)
                if held is not None:
                    held.by.unpin(held.name)
                    self._note(gone)
            for new in sorted(wanted - self._held.keys(), key=lambda w: (w.team, w.model)):
                self._held[new] = await self._hold(new, local[new.model])
                self._note(new)

    async def _hold(self, wanted: Wanted, model: LocalDestination) -> _Held | None:
        try:
            one, other = [await model.tokens(_asking(wanted, question)) for question in _QUESTIONS]
            prompt = tuple(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
            name = await model.pin(prompt, wanted.team) if prompt else None
        except EngineStopped:
            return None
        except (ApiError, EngineError) as error:
            logger.warning("a pinned prompt of team %s is not held by %s: %s", wanted.team, wanted.model, error)
            return None
        if name is None:
            logger.warning(
                "a pinned prompt of team %s, %d tokens, finds no room in the cache of %s: see engine.pinned_share",
                wanted.team, len(prompt), wanted.model,
            )  # fmt: skip
            return None
        return _Held(name, len(prompt), model)

    def _note(self, changed: Wanted) -> None:
        whose = changed.team, changed.model
        tokens = sum(held.tokens for w, held in self._held.items() if held is not None and (w.team, w.model) == whose)
        self._tokens.labels(*whose).set(tokens)
        if not tokens:
            self._tokens.remove(*whose)


def _wanted(roster: Roster, models: Mapping[str, LocalDestination]) -> Iterator[Wanted]:
    """What all teams pin, for each model that they may ask."""
    for team in roster.names:
        found = roster.teams.get(team)
        policy, allowed = (roster.defaults, roster.models) if found is None else (found.policy, found.models)
        for text in policy.prompts.pinned:
            for model in models:
                if allowed is None or model in allowed:
                    yield Wanted(team, model, _prompt(text, team, policy))


def _prompt(text: str, team: str, policy: TeamPolicy) -> tuple[Message, ...]:
    """The messages that stand before a question."""
    own = (Message("system", text),) if text else ()
    asked = ChatRequest("chat.completions", "", (*own, Message("user", "")))
    return prompted(asked, Principal(team, policy=policy)).messages[:-1]


def _asking(wanted: Wanted, question: str) -> ChatRequest:
    return ChatRequest("chat.completions", wanted.model, (*wanted.messages, Message("user", question)))
