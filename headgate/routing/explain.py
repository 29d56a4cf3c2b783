"""A decision in words and figures: what it followed from, and what would have changed it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from headgate.routing.policy import Decision, Weighed
from headgate.routing.types import Price

_RULES = {
    "requested": "the request names this model",
    "experiment": "an experiment sends this conversation there",
    "tier": "the request names this tier",
    "task": "the task class's tier, for there is no estimate of quality",
    "escalate": "the text holds source code, which the large tier answers",
    "quality": "the small tier's quality against the threshold",
    "price": "the small tier is good enough, and this model is cheaper as it stands",
    "sticky": "the conversation is here already, and no other model is cheaper by enough",
    "budget": "the large tier would answer, but the budget of escalations is spent",
}
_CAUSES = {
    "not_ready": "is not loaded",
    "asleep": "is asleep",
    "down": "failed lately and is left alone",
    "overloaded": "has too long a queue",
    "context": "holds too few tokens",
    "refused": "refuses the request",
    "not_allowed": "may not be used by this key",
}


_LACKING = {
    "lacks_vision": "does not take pictures",
    "lacks_audio": "does not take sound",
    "lacks_files": "does not take files",
    "lacks_vision_urls": "does not take pictures by an http(s) URL",
}


def rule(decision: Decision) -> str:
    """What decided, as a sentence without its full stop."""
    kind, _, cause = decision.route.reason.partition(":")
    if kind != "fallback":
        return _RULES[kind]
    if cause.startswith("no_"):
        return f"no model has the tier {cause.removeprefix('no_')}"
    return f"the model that would have been chosen {excluded(cause)}"


def excluded(cause: str) -> str:
    """Why a destination could not be chosen, as the rest of a sentence about it."""
    if cause.startswith("lacks_"):
        return _LACKING.get(cause) or f"does not understand {cause.removeprefix('lacks_')}"
    return _CAUSES[cause]


def counterfactuals(decision: Decision) -> list[str]:
    """What would have led elsewhere, each a sentence without its full stop."""
    return list(_counterfactuals(decision))


def _counterfactuals(decision: Decision) -> Iterator[str]:
    bar = decision.bar
    chosen = next(w for w in decision.weighed if w.destination.name == decision.route.model)
    if decision.requested == "auto" and bar is not None:
        if bar.passed:
            yield f"large alone would have been good enough above {bar.told:.2f} (the threshold is {bar.needed:.2f})"
        else:
            yield f"small would have been allowed below {bar.told:.2f} (the threshold is {bar.needed:.2f})"
    elif decision.requested == "auto":
        yield "another task class, or a model of quality, may have led to another tier"
    mine = chosen.destination.price
    for other in decision.weighed:
        if other is chosen:
            continue
        name = other.destination.name
        if other.excluded:
            yield f"{name} could not be chosen: it {excluded(other.excluded)}"
        elif other.at_floor and mine is not None and other.destination.price is not None:
            yield _cheaper(decision, chosen, other, mine, other.destination.price)


def _cheaper(decision: Decision, chosen: Weighed, other: Weighed, mine: Price, theirs: Price) -> str:
    name = other.destination.name
    longest = decision.policy.max_wait_s
    if theirs.queue_s > longest:
        return f"{name} would have been considered with a queue of at most {longest:g} s (it is {theirs.queue_s:.1f} s)"
    most = mine.score
    larger = chosen.destination.tier == "small" and other.destination.tier == "large"
    if chosen.destination.name == decision.incumbent or larger:
        most *= 1 - decision.policy.switch_gain
    return f"{name} would have been chosen at a price below {_s(most)} (it is {_s(theirs.score)})"


def lines(decision: Decision) -> list[str]:
    """For a terminal."""
    judgement, route = decision.judgement, decision.route
    found = [f"model        {route.model} ({route.reason})", f"rule         {rule(decision)}"]
    if judgement.task:
        found.append(f"task         {judgement.task}, {100 * judgement.confidence:.0f} % sure")
    quality, bar = judgement.quality, decision.bar
    if quality is not None and bar is not None:
        found.append(
            f"quality      small {quality.small:.2f}, large {quality.large:.2f} (by {quality.source}); "
            f"small is enough {bar.told:.2f}, threshold {bar.needed:.2f}"
        )
        if quality.readings:
            whole, *ends = (f"{told:.2f}" for told in quality.readings)
            found.append(f"readings     whole text {whole}, cores {', '.join(ends) or 'none'}; the highest is believed")
        if quality.kept and decision.yields:
            does = "it need not" if decision.keeps else "it may"
            found.append(f"handing over {does}: where it would, its own answer is enough {quality.kept:.2f}")
    if decision.incumbent:
        found.append(f"conversation with {decision.incumbent}")
    if decision.cascade is not None:
        rules = decision.cascade
        found.append(
            f"checked      the quantile {rules.quantile:g} of its first {rules.hold_tokens} tokens' probabilities, "
            f"at least {math.exp(rules.least):.2f}{' as calibrated' if rules.guards else ''}"
        )
    if route.fallbacks:
        found.append(f"then         {', '.join(route.fallbacks)}")
    if any(w.destination.price is not None for w in decision.weighed):
        found.extend(_table(decision.weighed))
    found.extend(f"otherwise    {text}" for text in counterfactuals(decision))
    return found


def _table(weighed: Sequence[Weighed]) -> Iterator[str]:
    yield f"{'price':<13}{'queue':>10}{'prompt':>10}{'answer':>10}{'others':>10}{'money':>10}{'score':>10}"
    for entry in weighed:
        price = entry.destination.price
        note = f"  {excluded(entry.excluded)}" if entry.excluded else "" if entry.at_floor else f"  {_below(entry)}"
        if price is None:
            yield f"  {entry.destination.name:<11}{note}"
            continue
        times = (price.queue_s, price.prefill_s, price.decode_s, price.others_s)
        told = "".join(f"{_s(seconds):>10}" for seconds in times)
        yield f"  {entry.destination.name:<11}{told}{f'${price.usd:.2g}':>10}{_s(price.score):>10}{note}"


def _below(entry: Weighed) -> str:
    return "not good enough" if entry.destination.estimated else "not known to be good enough"


def _s(seconds: float) -> str:
    return f"{1e3 * seconds:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
