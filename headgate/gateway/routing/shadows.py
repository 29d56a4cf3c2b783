"""Models tried in the shadow: of a share of a team's requests another model's answer is made too, and shown to nobody.

It is computed in steps that nobody waits for, kept nowhere, and never billed: the ledger has it under a cause of its
own, outside the budgets. What comes of it is a line of log and metrics: tokens, seconds, and whether both say the same.
"""

from __future__ import annotations

import json
import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from prometheus_client import CollectorRegistry

from headgate.cache.audits.canonical import same_answer
from headgate.engine.errors import EngineError
from headgate.gateway.road.destinations import Outcome, whole
from headgate.gateway.road.inputs import takes
from headgate.gateway.road.request import ChatRequest, Choice
from headgate.gateway.routing.backlog import Backlog
from headgate.gateway.routing.routes import Routes
from headgate.gateway.teams.accounts import Accounts, payer
from headgate.gateway.teams.keys import Principal
from headgate.gateway.telemetry.metrics.catalogue import Routing
from headgate.gateway.telemetry.metrics.tally import Counter
from headgate.gateway.wire.errors import ApiError

logger = logging.getLogger("headgate.gateway")

Result = Literal["same", "different", "undecided", "failed", "dropped"]
_QUEUE = 64


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer that a client was given, and what it took."""

    id: str
    request: ChatRequest
    principal: Principal
    model: str
    choices: Sequence[Choice]
    outcome: Outcome
    seconds: float


class Shadows(Backlog[tuple[Answered, str]]):
    """Draws requests and has other models answer them, one at a time. All calls come from one event loop."""

    def __init__(
        self,
        routes: Routes,
        accounts: Accounts,
        registry: CollectorRegistry,
        *,
        draw: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Shadows that are answered from `start` on.

        Args:
            routes: of the models.
            accounts: where the ledger and its metrics are fed.
            registry: of the other metrics.
            draw: gives numbers from 0 to below 1.
            clock: monotonic seconds.
        """
        super().__init__("shadows", _QUEUE)
        self._routes = routes
        self._accounts = accounts
        self._draw = draw
        self._clock = clock
        self._results = Counter(Routing.SHADOWS, registry)

    def answered(self, answered: Answered) -> None:
        """A request that somebody waited for was answered: queue it for models that it is drawn for. Never waits."""
        if answered.request.priority == "background":
            return
        principal = answered.principal
        for shadow, share in principal.policy.experiments.shadow.items():
            # The defaults may name a model that a team denies: its requests are not to reach that one unseen either.
            denied = principal.models is not None and shadow not in principal.models
            if denied or shadow == answered.model or self._draw() >= share:
                continue
            found = self._routes.destinations.get(shadow)  # None: an adapter that is gone
            if found is None or not takes(found, answered.request):
                continue
            if not self._put((answered, shadow), answered.request.size):
                self._count(answered, shadow, "dropped")

    async def _do(self, item: tuple[Answered, str]) -> None:
        answered, shadow = item
        try:
            await self._answer(answered, shadow)
        except (ApiError, EngineError) as error:
            self._count(answered, shadow, "failed")
            logger.info("%s did not answer in the shadow of request %s: %s", shadow, answered.id, error)
        except Exception:
            self._count(answered, shadow, "failed")
            logger.exception("%s failed in the shadow of request %s", shadow, answered.id)

    async def _answer(self, answered: Answered, shadow: str) -> None:
        destination, principal = self._routes.destination(shadow), answered.principal
        request = replace(answered.request, model=shadow, priority="background")
        began = self._clock()
        prepared = await destination.prepare(request)
        choices, outcome = await whole(destination.generate(prepared, f"shadow-{answered.id}", principal))
        seconds = self._clock() - began
        self._accounts.shadow(payer(principal, answered.id, request), shadow, outcome.usage, outcome.device_s)
        result = agreement(request, answered.choices, choices)
        self._count(answered, shadow, result)
        line = {
            "message": "shadow",
            "id": answered.id,
            "team": principal.team,
            "result": result,
            "model": _took(answered.model, answered.outcome, answered.seconds),
            "shadow": _took(shadow, outcome, seconds),
        }
        logger.info("%s", json.dumps(line))

    def _count(self, answered: Answered, shadow: str, result: Result) -> None:
        self._results.add(answered.principal.team, answered.model, shadow, result)


def agreement(request: ChatRequest, given: Sequence[Choice], shadow: Sequence[Choice]) -> Result:
    """Whether the first choices of both say and call the same; undecided where their form does not tell."""
    one, other = given[0], shadow[0]
    calls = [[(call.name, call.arguments) for call in choice.tool_calls] for choice in (one, other)]
    if calls[0] != calls[1]:
        return "different"
    if one.text == other.text:
        return "same"
    same = same_answer(one.text, other.text, question=request.last_user_text or "")
    return "undecided" if same is None else "same" if same else "different"


def _took(model: str, outcome: Outcome, seconds: float) -> dict[str, object]:
    usage = outcome.usage
    return {
        "model": model,
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "device_s": round(outcome.device_s, 6),
        "seconds": round(seconds, 6),
    }
