"""Which model answers a request, and why.

The order: a model named by its id is that model. Of the others those that cannot serve the request are left out, and
those that should not now. Quality is a floor: the tiers that answer well enough may be chosen. Among those the price
decides, but a conversation stays where it is unless another is cheaper by more than a little. Only where nobody at the
floor can serve, somebody else does, and the reason says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from headgate.routing.cascade import Cascade
from headgate.routing.classes import TaskClassifier
from headgate.routing.lexical import has_code
from headgate.routing.tasks import BACKGROUND, Task
from headgate.routing.types import (
    Destination,
    Need,
    NoneReady,
    NoRoute,
    Quality,
    QualityModel,
    Route,
    RouteFeatures,
    Tier,
)

BOTH: frozenset[Tier] = frozenset({"small", "large"})
_SMALL: frozenset[Tier] = frozenset({"small"})
_LARGE: frozenset[Tier] = frozenset({"large"})


@dataclass(frozen=True, slots=True)
class Policy:
    """What is in force for a team or a key."""

    threshold: float = 0.5
    """How likely it must be that the small tier loses nothing, for it to be chosen."""
    thresholds: Mapping[str, float] = field(default_factory=dict)
    """The same by the source of the estimate, for those whose threshold was calibrated."""
    models: frozenset[str] | None = None
    """Those that may be chosen; None: all."""
    chain: tuple[str, ...] = ()
    """Order in which others are tried; those that are not in it come after, by price."""
    max_queue: int = 256
    """Requests waiting for a model from which on others are preferred to it."""
    max_wait_s: float = 30.0
    """Who has a choice leaves a model whose queue takes longer to those who have none."""
    switch_gain: float = 0.2
    """Share of the price that another model must save for a conversation to move there, or to begin with the large tier
    where the small one is good enough."""
    band: float = 0.05
    """How far above the threshold a conversation with the large tier must be to go back to the small one."""
    cascade: Cascade | None = None
    """How a small model's answer is checked before it is given; None: it is not."""

    def __post_init__(self) -> None:
        for name in ("threshold", "switch_gain", "band"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be in [0, 1], got {getattr(self, name)}")
        if self.max_queue < 1 or self.max_wait_s <= 0:
            raise ValueError(
                f"max_queue must be at least 1 and max_wait_s positive: {self.max_queue}, {self.max_wait_s}"
            )

    def needed(self, source: str, *, large_now: bool) -> float:
        """What an estimate from a source must be above for the small tier to be chosen.

        `large_now`: whether the conversation is with the large tier.
        """
        return self.thresholds.get(source, self.threshold) + (self.band if large_now else 0.0)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a request is, before anybody is asked whether he can take it."""

    task: str = ""
    confidence: float = 1.0
    quality: Quality | None = None
    """Where a model of it is there and the request leaves the choice to us."""
    code: bool = False


@dataclass(frozen=True, slots=True)
class Weighed:
    """One destination as the decision saw it."""

    destination: Destination
    excluded: str
    """Why it could not be chosen; empty where it could."""
    at_floor: bool
    """Whether its tier is good enough."""


@dataclass(frozen=True, slots=True)
class Bar:
    """What was estimated of the small tier, and what it must be above for that to be asked."""

    told: float
    needed: float
    kept: float = 0.0
    """The same of what it would hand over, where it has to answer that itself."""

    @property
    def passed(self) -> bool:
        """Whether the small tier may be asked."""
        return self.told > self.needed

    @property
    def keeps(self) -> bool:
        """Whether it need not hand over: its own answer to what it would leave is as likely to lose nothing."""
        return self.passed and self.kept > self.needed


@dataclass(frozen=True, slots=True)
class Decision:
    """A route and everything it followed from."""

    route: Route
    requested: str
    judgement: Judgement
    policy: Policy
    weighed: tuple[Weighed, ...]
    incumbent: str = ""
    """Where the conversation's last turn went."""
    yields: bool = False
    """Whether a large model may answer instead of the small one that was chosen, where that one's answer is no good."""
    keeps: bool = False
    """Whether the small model need not hand the request over, where it can be kept from that."""
    cascade: Cascade | None = None
    """How the answer is to be checked, where it is."""
    bar: Bar | None = None
    """What the small tier had to be good enough by, where an estimate decided."""

    @property
    def escalates(self) -> bool:
        """Whether the large tier answers what was left to us."""
        tier = next((w.destination.tier for w in self.weighed if w.destination.name == self.route.model), "small")
        return self.requested == "auto" and tier == "large"


class Router:
    """Chooses a destination. Pure: the same arguments give the same decision."""

    def __init__(self, tasks: Sequence[Task], classifier: TaskClassifier, quality: QualityModel | None = None) -> None:
        self._tiers: dict[str, Tier] = {task.name: task.tier for task in tasks}
        self._classifier = classifier
        self._quality = quality

    def judge(self, features: RouteFeatures) -> Judgement:
        """Task class and quality of a request that leaves the choice to us."""
        found = self._classifier.classify(features)
        if found.task == BACKGROUND:
            # Nobody reads it as an answer: what the conversation in it would need of a model says nothing.
            return Judgement(found.task, found.confidence)
        quality = None if self._quality is None else self._quality.estimate(features, found.task)
        if quality is not None and quality.source == "task":
            # It knows nothing of this request but what is true of all of them.
            quality = None
        return Judgement(found.task, found.confidence, quality, quality is None and has_code(features.text))

    def decide(
        self,
        judgement: Judgement,
        requested: str,
        destinations: Sequence[Destination],
        policy: Policy,
        *,
        needs: frozenset[Need] = frozenset(),
        incumbent: str = "",
        may_escalate: bool = True,
        checkable: bool = True,
    ) -> Decision:
        """The decision about a request.

        Args:
            judgement: what it is; an empty one where it names a tier or a model.
            requested: `auto`, `small`, `large` or the name of a destination.
            destinations: every configured model, the preferred first.
            policy: in force for who asks.
            needs: what the request needs besides text.
            incumbent: where the conversation's last turn went; empty where there was none.
            may_escalate: whether the budget leaves a request to the large tier.
            checkable: whether a cascade can check the answer.

        Raises:
            NoRoute: no destination has this name or tier, none may be used, or none understands the request.
            NoneReady: the one asked for, or every one, is not ready.
        """
        names = ", ".join(d.name for d in destinations) or "none"
        named = next((d for d in destinations if d.name == requested), None)
        if named is not None:
            # A name is served by that model or not at all; who wants another one asks for a tier or for auto.
            if not named.ready:
                raise NoneReady(f"the model {requested!r} is not ready; configured: {names}")
            route = Route(requested, "requested", 1.0, "")
            return Decision(route, requested, judgement, policy, (Weighed(named, "", at_floor=True),))
        if requested not in ("auto", "small", "large"):
            raise NoRoute(f"the model {requested!r} does not exist; auto, small, large or one of: {names}")
        if not destinations:
            raise NoRoute(f"no model is configured to answer {requested!r}")
        bar = _bar(judgement, destinations, policy, incumbent, checkable=checkable)
        floor, why = self._floor(judgement, requested, bar, may_escalate=may_escalate)
        weighed = tuple(Weighed(d, _excluded(d, policy, needs), _at_floor(d, floor, why)) for d in destinations)
        return self._choose(
            weighed, floor, why, Decision(_NOWHERE, requested, judgement, policy, weighed, incumbent, bar=bar)
        )

    def _floor(
        self, judgement: Judgement, requested: str, bar: Bar | None, *, may_escalate: bool
    ) -> tuple[frozenset[Tier], str]:
        """The tiers that are good enough, and what says so."""
        if requested == "small":
            return _SMALL, "tier:small"
        if requested == "large":
            return _LARGE, "tier:large"
        if bar is not None:
            floor, why = (BOTH, "quality:small") if bar.passed else (_LARGE, "quality:large")
        elif self._tiers.get(judgement.task, "large") == "large":
            floor, why = _LARGE, f"task:{judgement.task}"
        elif judgement.code:
            floor, why = _LARGE, "escalate:code"
        else:
            floor, why = BOTH, f"task:{judgement.task}"
        return (floor, why) if may_escalate else (_SMALL, "budget" if floor == _LARGE else why)

    def _choose(self, weighed: tuple[Weighed, ...], floor: frozenset[Tier], why: str, draft: Decision) -> Decision:
        possible = _possible(weighed)
        pool = [w.destination for w in possible if w.at_floor]
        policy, judgement = draft.policy, draft.judgement
        if pool:
            chosen, moved = _cheapest(pool, policy, draft.incumbent)
            reason = _reason(chosen, weighed, floor, why, moved)
        else:
            # Somebody who can is better than nobody; what kept the right ones from it is the reason.
            pool = [w.destination for w in possible]
            first = [d for name in policy.chain for d in pool if d.name == name][:1]
            chosen, _ = _cheapest(first or pool, policy, draft.incumbent)
            reason = f"fallback:{_cause(weighed, floor)}"
        others = _others(chosen, weighed, policy)
        route = Route(chosen.name, reason, judgement.confidence, judgement.task, tuple(d.name for d in others))
        yields = chosen.tier == "small" and floor == BOTH and any(d.tier == "large" for d in others)
        keeps = yields and draft.bar is not None and draft.bar.keeps
        return replace(draft, route=route, yields=yields, keeps=keeps, cascade=policy.cascade if yields else None)


_NOWHERE = Route("", "", 0.0, "")
_TOO_BUSY = "overloaded"


def _bar(
    judgement: Judgement, destinations: Sequence[Destination], policy: Policy, incumbent: str, *, checkable: bool
) -> Bar | None:
    """What the small tier is to be good enough by: that it loses nothing, above a threshold.

    Where a calibrated cascade will check the answer, that keeps the loss: the small tier is asked unless its answer is
    so likely to be rejected that both together are expected to cost more than the large tier alone.
    """
    quality = judgement.quality
    if quality is None:
        return None
    if checkable and policy.cascade is not None and policy.cascade.guards:
        small, large = (_least_score(destinations, tier) for tier in ("small", "large"))
        return Bar(quality.small, min(1.0, small / large) if small is not None and large else 0.0)
    large_now = any(d.name == incumbent and d.tier == "large" for d in destinations)
    return Bar(quality.enough, policy.needed(quality.source, large_now=large_now), quality.kept)


def _least_score(destinations: Sequence[Destination], tier: str) -> float | None:
    scores = (d.price.score for d in destinations if d.tier == tier and d.estimated and d.price is not None)
    return min(scores, default=None)


def _at_floor(destination: Destination, floor: frozenset[Tier], why: str) -> bool:
    """Whether a destination is good enough. What an estimate lets answer of the small tier is the model it is of."""
    return destination.tier in floor and (
        destination.tier == "large" or why != "quality:small" or destination.estimated
    )


def _excluded(destination: Destination, policy: Policy, needs: frozenset[Need]) -> str:
    """Why a destination cannot take the request, or should not now; empty where it may."""
    if policy.models is not None and destination.name not in policy.models:
        return "not_allowed"
    lacking = sorted(needs & destination.lacks)
    if lacking:
        return f"lacks_{lacking[0]}"
    if destination.refusal:
        return destination.refusal
    if not destination.ready:
        return "not_ready"
    if destination.down:
        return "down"
    return _TOO_BUSY if destination.queue_depth >= policy.max_queue else ""


def _possible(weighed: tuple[Weighed, ...]) -> list[Weighed]:
    """Those that can be chosen. Who is too busy is so only beside others, and who is down is asked before nobody is.

    Raises NoneReady or NoRoute where nobody could serve at all.
    """
    for bearable in ((), (_TOO_BUSY,), (_TOO_BUSY, "down")):
        found = [w for w in weighed if not w.excluded or w.excluded in bearable]
        if found:
            return found
    causes = {w.excluded for w in weighed}
    names = ", ".join(w.destination.name for w in weighed)
    if "context" in causes or "refused" in causes:
        # Each has said what it refuses: let the roomiest say it to who asks.
        refusing = [w for w in weighed if w.excluded in ("context", "refused")]
        return [max(refusing, key=lambda w: w.destination.context_length)]
    if "not_ready" in causes:
        raise NoneReady(f"no model is ready; configured: {names}")
    raise NoRoute(f"no model may answer this: {', '.join(f'{w.destination.name} ({w.excluded})' for w in weighed)}")


def _others(chosen: Destination, weighed: tuple[Weighed, ...], policy: Policy) -> list[Destination]:
    """Whom to try next, should the chosen one fail: others of its tier first, if they are good enough.

    Who is too busy or was down lately is still better than nobody.
    """
    bearable = ("", _TOO_BUSY, "down")
    rank = {name: at for at, name in enumerate(policy.chain)}
    others = [w for w in weighed if w.excluded in bearable and w.destination is not chosen]
    others.sort(
        key=lambda w: (
            bearable.index(w.excluded),
            rank.get(w.destination.name, len(rank)),
            not w.at_floor,
            w.destination.tier != chosen.tier,
            _score(w.destination),
        )
    )
    return [w.destination for w in others]


def _score(destination: Destination) -> float:
    return float(destination.queue_depth) if destination.price is None else destination.price.score


def _wait_s(destination: Destination) -> float:
    return 0.0 if destination.price is None else destination.price.queue_s


def _cheapest(pool: Sequence[Destination], policy: Policy, incumbent: str) -> tuple[Destination, str]:
    """Which of those that are good enough, and whether that is for the price or because the conversation is there.

    A new conversation is taken for one with the small tier: prices are estimates, and those that hardly differ should
    not send it to a larger model. One with the large tier goes back as soon as that is cheaper: what the large model's
    cache holds is in its price. Without prices the small tier is cheaper, and within a tier the shorter queue.
    """
    soon = [d for d in pool if _wait_s(d) <= policy.max_wait_s] or list(pool)
    priced = all(d.price is not None for d in soon)
    best = min(soon, key=lambda d: (False if priced else d.tier == "large", _score(d), d.tier == "large"))
    stays = next((d for d in soon if d.name == incumbent), None)
    small = min((d for d in soon if d.tier == "small"), key=_score, default=None)
    rival = stays or small
    if rival is None or rival is best:
        return best, "price"
    down = best.tier == "small" and rival.tier == "large"
    if priced and (down or _score(best) < _score(rival) * (1 - policy.switch_gain)):
        return best, "price"
    return rival, "price" if stays is None else "sticky"


def _reason(chosen: Destination, weighed: tuple[Weighed, ...], floor: frozenset[Tier], why: str, moved: str) -> str:
    if moved == "sticky":
        return "sticky"
    if chosen.tier == "small" or "small" not in floor:
        return why
    small = [w for w in weighed if w.destination.tier == "small" and w.at_floor]
    if not small:
        return "fallback:no_small"
    causes = [w.excluded for w in small]
    return f"fallback:{causes[0]}" if all(causes) else "price"


def _cause(weighed: tuple[Weighed, ...], floor: frozenset[Tier]) -> str:
    kept = [w for w in weighed if w.at_floor]
    if kept:
        return kept[0].excluded
    return "no_" + ("small" if "small" in floor else "large")
