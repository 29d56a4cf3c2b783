"""What the router had read of its latest requests, until somebody says how their answers were.

In memory, and without a word of them. A rating that comes later than the next few thousand answers, or after a restart,
is kept but teaches the router nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from headgate.gateway.feedback.records import GOOD
from headgate.gateway.road.destinations import Outcome
from headgate.gateway.road.plan import Plan
from headgate.gateway.road.request import Choice
from headgate.gateway.teams.keys import Principal
from headgate.routing.outcome_log import LoggedOutcome, OutcomeLog
from headgate.routing.outcomes import Attempt
from headgate.routing.quality import readings

_MOST = 4096


@dataclass(frozen=True, slots=True)
class Pair:
    """The models that are learned of: ids, identities of the checkpoints, and the embedding model's name."""

    small: str
    large: str
    of_small: str
    of_large: str
    embedder: str


class Lessons:
    """Lines of the outcome log that only lack what a user says. All calls come from one event loop."""

    def __init__(self, pair: Pair, log: OutcomeLog, clock: Callable[[], float] = time.time) -> None:
        """`log`: where they go when it is said; `clock`: Unix time."""
        self._pair = pair
        self._log = log
        self._clock = clock
        # The same may be read of another team's request, and of one that the other model answered.
        self._open: OrderedDict[tuple[str, str, str], LoggedOutcome] = OrderedDict()

    def answered(self, plan: Plan, principal: Principal, model: str, choice: Choice, outcome: Outcome) -> None:
        """One of the pair answered a request that was left to the router."""
        # Right until a rating says otherwise, which is why it is not logged before.
        attempt = Attempt(True, len(choice.token_ids), outcome.device_s)
        small = model == self._pair.small
        key = principal.team, model, plan.features
        self._open[key] = replace(
            self.draft(plan, principal, model),
            prompt_tokens=outcome.usage.prompt_tokens,
            one=attempt if small else None,
            other=None if small else attempt,
        )
        self._open.move_to_end(key)
        if len(self._open) > _MOST:
            self._open.popitem(last=False)

    async def rated(self, team: str, model: str, features: str, score: float, voice: str) -> bool:
        """A user says how a model's answer to his team's request of this hash was. False where it is forgotten.

        Raises:
            OSError: the log cannot be written.
        """
        line = self._open.get((team, model, features))
        if line is None:
            return False
        one, other = (
            None if tried is None else Attempt(score >= GOOD, tried.tokens, tried.device_s)
            for tried in (line.one, line.other)
        )
        await asyncio.to_thread(self._log.append, replace(line, at=self._clock(), one=one, other=other, voice=voice))
        return True

    def draft(self, plan: Plan, principal: Principal, model: str) -> LoggedOutcome:
        """A line with everything but the answers, for a plan that has the embedding."""
        read = plan.read
        assert read is not None
        rows = readings(read, "embedding" if read.cores is None else "cores")
        assert rows is not None
        return LoggedOutcome(
            at=self._clock(),
            small=self._pair.of_small,
            large=self._pair.of_large,
            embedder=self._pair.embedder,
            team=principal.team,
            features=plan.features,
            answered=model,
            readings=rows.astype("float32").tobytes(),
            columns=rows.shape[1],
            cores=read.cores is not None,
            prompt_tokens=0,
            one=None,
            other=None,
        )
