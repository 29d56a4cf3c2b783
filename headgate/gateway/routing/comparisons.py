"""Outcomes to learn from: of a share of the requests, for teams that allow it, the other model answers too.

The other answer is computed in steps that nobody waits for, as audits are, and only whether the two mean the same is
kept, with what the router had read of the request. No word of a question or an answer is written.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from headgate.cache.audits.canonical import same_answer
from headgate.cache.embedding.sentence_model import identity
from headgate.engine.errors import EngineError
from headgate.gateway.caching.audits import Examiner
from headgate.gateway.configuration.routing import OutcomesSection
from headgate.gateway.local.checkpoints import model_identity
from headgate.gateway.road.destinations import Outcome, whole
from headgate.gateway.road.plan import Plan
from headgate.gateway.road.request import ChatRequest, Choice
from headgate.gateway.routing.backlog import Backlog
from headgate.gateway.routing.lessons import Lessons, Pair
from headgate.gateway.routing.routes import AUTO, Routes
from headgate.gateway.settings import Settings
from headgate.gateway.teams.keys import Principal
from headgate.gateway.wire.errors import ApiError
from headgate.routing.cascade import HELD_TOKENS, QUANTILES, quantile_of
from headgate.routing.outcome_log import OutcomeLog
from headgate.routing.outcomes import Attempt, Confidence

logger = logging.getLogger("headgate.gateway")

State = Literal["drawn", "logged", "undecided", "dropped", "failed"]
_QUEUE = 64


def compared_pair(settings: Settings, estimated: frozenset[str] | None, embedder: Path | None) -> Pair | None:
    """Of each tier the model that estimates are of, or else the first; None where nothing is to be compared.

    Args:
        settings: name the models and the log.
        estimated: ids of the models that estimates are of, if there are some.
        embedder: folder of the embedding model; without one there is nothing to learn from.
    """
    if settings.routing.outcomes.file is None:
        return None
    tiers = [[model for model in settings.local if model.tier == tier] for tier in ("small", "large")]
    if embedder is None or not all(tiers):
        logger.warning("no outcomes are logged: that takes an embedding model and a model of each tier")
        return None
    found = [next((m for m in models if m.id in (estimated or ())), models[0]) for models in tiers]
    small, large = (model_identity(model) for model in found)
    return Pair(found[0].id, found[1].id, small, large, identity(str(embedder)))


@dataclass(frozen=True, slots=True)
class _Ticket:
    request: ChatRequest
    principal: Principal
    plan: Plan
    model: str
    choice: Choice
    device_s: float


class Comparisons(Backlog[_Ticket]):
    """Draws requests, has the other model answer them, and writes the log. All calls come from one event loop."""

    def __init__(
        self,
        routes: Routes,
        pair: Pair,
        log: OutcomeLog,
        share: float,
        *,
        draw: Callable[[], float] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Comparisons that begin with `start`.

        Args:
            routes: of the models.
            pair: which are compared.
            log: where outcomes go.
            share: of the requests that are drawn, 0 to 1.
            draw: gives numbers below 1; None: nobody can tell which.
            clock: Unix time.
        """
        super().__init__("comparisons", _QUEUE)
        self._routes = routes
        self._pair = pair
        self._log = log
        self._share = share
        self._draw = random.SystemRandom().random if draw is None else draw
        self._clock = clock
        self._states: Counter[State] = Counter()
        self.lessons = Lessons(pair, log, clock)

    @classmethod
    def opened(cls, section: OutcomesSection, routes: Routes, pair: Pair) -> Comparisons:
        """Those of a section that names a file."""
        assert section.file is not None
        return cls(routes, pair, OutcomeLog(Path(section.file), int(section.max_bytes)), section.share)

    @property
    def states(self) -> Mapping[State, int]:
        """Requests by what became of them, since the start."""
        return self._states

    def answered(
        self,
        request: ChatRequest,
        principal: Principal,
        plan: Plan,
        model: str,
        choices: Sequence[Choice],
        outcome: Outcome,
    ) -> None:
        """A request was answered by a model: queue it if it was drawn. Never waits."""
        allowed = plan.in_force.policy.models
        if (
            not plan.in_force.outcomes
            or request.model != AUTO
            or request.n != 1
            # What is read of it is its text, from which a picture's answer teaches nothing.
            or request.attachments
            or model not in (self._pair.small, self._pair.large)
            or plan.read is None
            or plan.read.vector is None
            or choices[0].finish_reason != "stop"
        ):
            return
        self.lessons.answered(plan, principal, model, choices[0], outcome)
        if (allowed is not None and {self._pair.small, self._pair.large} - allowed) or self._draw() >= self._share:
            return
        self._states["drawn"] += 1
        if not self._put(_Ticket(request, principal, plan, model, choices[0], outcome.device_s), request.size):
            self._states["dropped"] += 1

    async def _do(self, item: _Ticket) -> None:
        try:
            self._states[await self._compare(item)] += 1
        except (ApiError, EngineError, OSError) as error:
            self._states["failed"] += 1
            logger.info("an outcome could not be logged: %s", error)
        except Exception:
            self._states["failed"] += 1
            logger.exception("a comparison failed")

    async def _compare(self, ticket: _Ticket) -> State:
        pair, plan = self._pair, ticket.plan
        request = changed(ticket.request, priority="background")
        small, large = (self._routes.destination(name) for name in (pair.small, pair.large))
        assert isinstance(small, Examiner)
        assert isinstance(large, Examiner)
        own = ticket.choice, ticket.device_s
        other = await self._answer(large if ticket.model == pair.small else small, request, ticket.principal, plan)
        first, second = (own, other) if ticket.model == pair.small else (other, own)
        same = same_answer(first[0].text, second[0].text, question=request.last_user_text or "")
        if same is None or not first[0].token_ids or second[0].finish_reason != "stop":
            return "undecided"
        prepared = await small.prepare(request)
        scored = await small.score(prepared, first[0].token_ids[:HELD_TOKENS], _id(plan), ticket.principal)
        told = [token.logprob for token in scored.tokens]
        line = replace(
            self.lessons.draft(plan, ticket.principal, ticket.model),
            prompt_tokens=len(prepared.prompt),
            one=Attempt(same, len(first[0].token_ids), first[1]),
            other=Attempt(True, len(second[0].token_ids), second[1]),
            confidence=Confidence(sum(told) / len(told), *(quantile_of(told, share) for share in QUANTILES)),
        )
        await asyncio.to_thread(self._log.append, line)
        return "logged"

    async def _answer(
        self, model: Examiner, request: ChatRequest, principal: Principal, plan: Plan
    ) -> tuple[Choice, float]:
        prepared = await model.prepare(request)
        choices, outcome = await whole(model.generate(prepared, _id(plan), principal))
        return choices[0], outcome.device_s


def _id(plan: Plan) -> str:
    return f"outcome-{plan.features}"
