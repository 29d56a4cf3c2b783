"""Stand-ins for what surrounds the road: destinations that say what they are told to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from headgate.engine.sampling.params import SamplingParams
from headgate.gateway.road.destinations import Facts, Live, Outcome, Pieces, Prepared, Read
from headgate.gateway.road.request import ChatRequest, Chunk, Draft, Sampling, Usage
from headgate.gateway.teams.keys import Principal
from headgate.gateway.wire.errors import context_exceeded
from headgate.routing.price import Rates
from headgate.routing.types import Need, Vector

OUTCOME = Outcome(Usage(5, 2, 1), 0.25, 0.5)


@dataclass
class FakeDestination:
    """Sends `pieces`, waiting at `gate` before the last one, and remembers what happened to it."""

    id: str = "fake"
    revision: str = "0123456789abcdef"
    default_temperature: float = 0.0
    facts: Facts = field(default_factory=lambda: Facts(100))
    lacks: frozenset[Need] = frozenset()
    stands: Live | None = None
    down: bool = False
    state: Vector | None = None
    pieces: Sequence[Chunk | Exception] = (Chunk(0, "a"), Chunk(0, "b", finish_reason="stop", token_ids=(1, 2)))
    gate: asyncio.Event | None = None
    prompt_tokens: int = 5
    started: asyncio.Event = field(default_factory=asyncio.Event)
    begun: int = 0
    closed: int = 0
    drafts: list[Draft | None] = field(default_factory=list)

    def temperature(self, sampling: Sampling) -> float:
        return self.default_temperature if sampling.temperature is None else sampling.temperature

    def live(self) -> Live | None:
        return self.stands

    @property
    def rates(self) -> Rates | None:
        return None if self.stands is None else self.stands.rates

    def resident(self, _prepared: Prepared, _principal: Principal) -> int:
        return 0

    async def probe(self, _prepared: Prepared, _principal: Principal) -> Vector | None:
        return self.state

    async def prepare(self, request: ChatRequest, _read: Read | None = None) -> Prepared:
        if self.prompt_tokens > self.facts.context_length:
            raise context_exceeded(self.facts.context_length, self.prompt_tokens, None)
        return Prepared(request, (1,) * self.prompt_tokens, SamplingParams())

    async def generate(self, prepared: Prepared, _request_id: str, _principal: Principal) -> Pieces:
        self.begun += 1
        self.drafts.append(prepared.request.draft)
        self.started.set()
        *pieces, last = self.pieces
        try:
            for piece in pieces:
                yield self._said(piece)
            if self.gate is not None:
                await self.gate.wait()
            yield self._said(last)
            yield OUTCOME
        finally:
            self.closed += 1

    def _said(self, piece: Chunk | Exception) -> Chunk:
        if isinstance(piece, Exception):
            raise piece
        return piece
