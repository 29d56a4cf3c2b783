"""Routing policies from the settings: which one is in force for whom, and what about them contradicts itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from headgate.gateway.routing_settings import CascadeSection, PolicySection, RoutingSection
from headgate.gateway.settings import Settings
from headgate.gateway.teams.keys import OPEN_TEAM, Principal
from headgate.gateway.wire.decode import nearest
from headgate.routing.budget import EscalationBudget
from headgate.routing.cascade import Cascade
from headgate.routing.policy import Policy
from headgate.routing.tasks import load_tasks

_EVEN = 0.5
"""Threshold for estimates for which none was calibrated."""

Place = tuple[str | int, ...]
Problem = tuple[Place, str]
"""The keys that lead to a value, and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class InForce:
    """What holds for one key of one team."""

    policy: Policy
    budgets: tuple[EscalationBudget, ...] = ()
    """All of them must allow an escalation: the team's and the key's."""

    @property
    def may_escalate(self) -> bool:
        """Whether the large tier may answer the next request."""
        return all(budget.allows for budget in self.budgets)

    def count(self, *, large: bool) -> None:
        """A request was routed."""
        for budget in self.budgets:
            budget.count(large=large)


class Policies:
    """Policies and budgets by team and key, made when they are first asked for."""

    def __init__(self, settings: Settings, clock: Callable[[], float], thresholds: Mapping[str, float]) -> None:
        """`thresholds`: calibrated ones by the source of an estimate, for whom the settings give none."""
        self._routing = settings.routing
        self._thresholds = thresholds
        self._clock = clock
        self._in_force: dict[tuple[str, str | None], InForce] = {}
        self._budgets: dict[tuple[str, str], EscalationBudget] = {}

    @property
    def restrict(self) -> bool:
        """Whether anybody may not ask some model."""
        layers = (*self._routing.teams.values(), *self._routing.keys.values())
        return self._routing.models is not None or any(layer.models is not None for layer in layers)

    def of(self, principal: Principal) -> InForce:
        """What holds for a principal. There are as many as configured keys."""
        who = principal.team, principal.key_id
        found = self._in_force.get(who)
        if found is None:
            found = self._in_force[who] = self._made(principal)
        return found

    def variant(self, principal: Principal) -> str:
        """What a key has otherwise than its team, as one text; empty where it has nothing of its own."""
        own = self._routing.keys.get(principal.key_id or "")
        return "" if own is None else own.model_dump_json(exclude_none=True)

    def _made(self, principal: Principal) -> InForce:
        routing = self._routing
        team = routing.teams.get(principal.team, PolicySection())
        key = routing.keys.get(principal.key_id or "", PolicySection())
        budgets = []
        # A team's keys share its budget; a key that has one of its own is bound by both.
        for scope, name, share in (
            ("team", principal.team, routing.escalations if team.escalations is None else team.escalations),
            ("key", principal.key_id or "", 1.0 if key.escalations is None else key.escalations),
        ):
            if share < 1:
                fresh = EscalationBudget(share, routing.escalation_window_s, self._clock)
                budgets.append(self._budgets.setdefault((scope, name), fresh))
        return InForce(policy_of(routing, team, key, thresholds=self._thresholds), tuple(budgets))


_UNKNOWN: Mapping[str, float] = {}


def policy_of(routing: RoutingSection, *layers: PolicySection, thresholds: Mapping[str, float] = _UNKNOWN) -> Policy:
    """The policy of the section with what the layers say, the last first; calibrated thresholds where none says one."""
    threshold, models, chain, cascade = routing.threshold, routing.models, routing.chain, routing.cascade
    for layer in layers:
        threshold = threshold if layer.threshold is None else layer.threshold
        models = models if layer.models is None else layer.models
        chain = chain if layer.chain is None else layer.chain
        cascade = cascade if layer.cascade is None else layer.cascade
    return Policy(
        threshold=_EVEN if threshold is None else threshold,
        thresholds=thresholds if threshold is None else {},
        models=None if models is None else frozenset(models),
        chain=chain or (),
        max_queue=routing.max_queue,
        max_wait_s=routing.max_wait_s,
        switch_gain=routing.sessions.switch_gain,
        band=routing.sessions.band,
        cascade=_cascade(cascade),
    )


def _cascade(section: CascadeSection) -> Cascade | None:
    if not section.enabled:
        return None
    return Cascade(section.quantile, math.log(section.least_probability), section.hold_tokens, section.hold_ms / 1e3)


def problems(settings: Settings) -> Iterator[Problem]:
    """What the settings' parts say of routing that cannot all be meant."""
    routing = settings.routing
    try:
        load_tasks([Path(file) for file in routing.classes])
    except ValueError as error:
        yield ("routing", "classes"), str(error)
    teams = {key.team for key in settings.keys} or {OPEN_TEAM}
    yield from _of_policy(settings, ("routing",), routing, ())
    for name, team in routing.teams.items():
        place = ("routing", "teams", name)
        if name not in teams:
            yield place, f"no key is of the team '{name}'; teams with keys are {_list(teams)}"
        yield from _of_policy(settings, place, team, (team,))
    by_id = {key.id: key for key in settings.keys}
    for name, own in routing.keys.items():
        place = ("routing", "keys", name)
        if name not in by_id:
            yield place, f"there is no key '{name}'; the keys are {_list(by_id)}"
            continue
        team = routing.teams.get(by_id[name].team, PolicySection())
        yield from _of_policy(settings, place, own, (team, own))
        wider = policy_of(routing, team).models
        for at, model in enumerate(own.models or ()):
            if wider is not None and model not in wider:
                why = f"'{model}' is not among the models of the key's team, which are {_list(wider)}"
                yield (*place, "models", at), why


def _of_policy(
    settings: Settings, place: Place, own: RoutingSection | PolicySection, layers: tuple[PolicySection, ...]
) -> Iterator[Problem]:
    ids = [model.id for model in settings.models]
    unknown = False
    for field in ("models", "chain"):
        for at, name in enumerate(getattr(own, field) or ()):
            if name not in ids:
                unknown = True
                yield (
                    (*place, field, at),
                    f"there is no model '{name}'.{nearest(name, ids)} The models are {_list(ids)}",
                )
    if unknown:
        return
    policy = policy_of(settings.routing, *layers)
    allowed = set(ids if policy.models is None else policy.models)
    for at, name in enumerate(policy.chain):
        if name not in allowed:
            field, at_field = ("chain", (at,)) if own.chain is not None else ("models", ())
            yield (*place, field, *at_field), f"the chain names '{name}', but the models allowed are {_list(allowed)}"
    tiers = {model.tier for model in settings.models if model.id in allowed}
    shares = [layer.escalations for layer in layers if layer.escalations is not None]
    share = shares[-1] if shares else settings.routing.escalations
    if share < 1 and "small" not in tiers:
        field = "escalations" if own.escalations not in (None, 1.0) else "models"
        yield (*place, field), f"escalations are limited to {share:g}, but no model allowed has the tier small"
    if policy.cascade is not None:
        field = "cascade" if own.cascade is not None and own.cascade.enabled else "models"
        if missing := {"small", "large"} - tiers:
            yield (*place, field), f"a cascade needs both tiers, but no model allowed has the tier {_list(missing)}"
        elif share == 0:
            yield (*place, field), "a cascade escalates what is not sure, but escalations are limited to 0"


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
