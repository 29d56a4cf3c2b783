"""Routing policies from the settings and team files: which one is in force for whom."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headgate.gateway.configuration.routing import CascadeSection, PolicySection, RoutingSection
from headgate.gateway.settings import Settings
from headgate.gateway.teams.keys import Principal
from headgate.routing.budget import EscalationBudget
from headgate.routing.cascade import Cascade
from headgate.routing.policy import Policy

Cascades = Callable[[float, float], float | None]
"""The least probability of the token at a quantile that keeps a largest loss; None where none is known to."""
_EVEN = 0.5
"""Threshold for estimates for which none was calibrated."""
_LEAST = 1e-30


def uncalibrated(_quantile: float, _loss: float) -> float | None:
    """Where nothing was calibrated."""
    return None


@dataclass(frozen=True, slots=True)
class InForce:
    """What holds for one key of one team."""

    policy: Policy
    budgets: tuple[EscalationBudget, ...] = ()
    """All of them must allow an escalation: the team's and the key's."""
    outcomes: bool = False
    """Whether outcomes of its requests may be kept."""

    @property
    def may_escalate(self) -> bool:
        """Whether the large tier may answer the next request."""
        return all(budget.allows for budget in self.budgets)


class Policies:
    """Policies and budgets by team and key, made when they are first asked for."""

    def __init__(
        self, settings: Settings, clock: Callable[[], float], thresholds: Mapping[str, float], cascades: Cascades
    ) -> None:
        """Policies from the settings and from what was calibrated.

        Args:
            settings: of routing, teams and keys.
            clock: seconds.
            thresholds: by the source of an estimate, for whom the settings give none.
            cascades: for cascades that have a `max_loss`.
        """
        self._routing = settings.routing
        self._thresholds = thresholds
        self._cascades = cascades
        self._clock = clock
        self._in_force: dict[tuple[str, str | None], tuple[Principal, InForce]] = {}
        self._budgets: dict[tuple[str, str, float], EscalationBudget] = {}

    def retune(self, routing: RoutingSection) -> None:
        """From the next request on another section holds. Escalations go on being counted, but for another window."""
        if routing.escalation_window_s != self._routing.escalation_window_s:
            self._budgets = {}
        self._routing = routing
        self._in_force = {}

    def of(self, principal: Principal) -> InForce:
        """What holds for a principal. There are as many as configured keys; a reload makes others of them."""
        who = principal.team, principal.key_id
        made_for, found = self._in_force.get(who, (None, None))
        if found is None or made_for is not principal:
            found = self._made(principal)
            self._in_force[who] = principal, found
        return found

    def variant(self, principal: Principal) -> str:
        """What a key has otherwise than its team, as one text; empty where it has nothing of its own."""
        own = principal.routing.model_dump_json(exclude_none=True)
        narrowed = principal.models is not None and principal.key_id is not None
        return "" if own == "{}" and not narrowed else f"{own}{sorted(principal.models or ())}"

    def _made(self, principal: Principal) -> InForce:
        routing, team, key = self._routing, principal.policy.routing, principal.routing
        budgets = []
        # A team's keys share its budget; a key that has one of its own is bound by both.
        for scope, name, share in (
            ("team", principal.team, routing.escalations if team.escalations is None else team.escalations),
            ("key", principal.key_id or "", 1.0 if key.escalations is None else key.escalations),
        ):
            if share < 1:
                fresh = EscalationBudget(share, routing.escalation_window_s, self._clock)
                budgets.append(self._budgets.setdefault((scope, name, share), fresh))
        policy = policy_of(
            routing, team, key, models=principal.models, thresholds=self._thresholds, cascades=self._cascades
        )
        # A key may keep out of what its team allows, and not the other way round.
        outcomes = routing.outcomes.allow if team.outcomes is None else team.outcomes
        return InForce(policy, tuple(budgets), outcomes and key.outcomes is not False)


_UNKNOWN: Mapping[str, float] = {}


def policy_of(
    routing: RoutingSection,
    *layers: PolicySection,
    models: frozenset[str] | None = None,
    thresholds: Mapping[str, float] = _UNKNOWN,
    cascades: Cascades = uncalibrated,
) -> Policy:
    """The policy of the section with what the layers say, the last first; calibrated thresholds where none says one.

    `models`: ids of those that may be asked; None: all.
    """
    threshold, chain, cascade = routing.threshold, routing.chain, routing.cascade
    for layer in layers:
        threshold = threshold if layer.threshold is None else layer.threshold
        chain = chain if layer.chain is None else layer.chain
        cascade = cascade if layer.cascade is None else layer.cascade
    return Policy(
        threshold=_EVEN if threshold is None else threshold,
        thresholds=thresholds if threshold is None else {},
        models=models,
        # A chain of the main file may name models that a team may not ask.
        chain=tuple(name for name in chain or () if models is None or name in models),
        max_queue=routing.max_queue,
        max_wait_s=routing.max_wait_s,
        switch_gain=routing.sessions.switch_gain,
        band=routing.sessions.band,
        cascade=_cascade(cascade, cascades),
    )


def _cascade(section: CascadeSection, calibrated: Cascades) -> Cascade | None:
    if not section.enabled:
        return None
    hold_s = section.hold_ms / 1e3
    if section.max_loss is None:
        return Cascade(section.quantile, math.log(section.least_probability), section.hold_tokens, hold_s)
    least = calibrated(section.quantile, section.max_loss)
    if least is None:
        # Of a team's file, for the main one is checked when the server starts. Then nothing but certainty stands.
        return Cascade(section.quantile, 0.0, section.hold_tokens, hold_s)
    # A probability of 0 is a threshold, too: every answer stands.
    return Cascade(section.quantile, math.log(max(least, _LEAST)), section.hold_tokens, hold_s, guards=True)
