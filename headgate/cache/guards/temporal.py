"""When something is asked for, beside what: before breakfast, with breakfast; daily, weekly; until and since."""

from __future__ import annotations

import itertools

from headgate.cache.guards.evidence import Reading, Verdict

_SIDE_OF_EVENT = {
    **{"before": "before", "until": "before", "during": "during"},
    **{"after": "after", "since": "after", "once": "after"},
}


def _beside_event(one: Reading, other: Reading) -> bool:
    """Before breakfast, with breakfast; after the trial, in the trial. But in two days is after two days."""
    # Without what says whose it is: in my trial.
    other_words = [word for word in other.meaning.atoms if word not in ("my", "your", "our", "their")]
    return any(
        way in ("before", "after")
        and not {"before", "after"} & {*other_words}
        and pair in itertools.pairwise(other_words)
        for way, event in one.placed
        for pair in ((beside, event) for beside in ("with", "during", "in"))
        if not event.startswith("number:")
    )


def temporal(one: Reading, other: Reading) -> Verdict:
    """Words for when, and the side of an event."""
    if not one.facts["temporal"] and not other.facts["temporal"]:
        return None
    ours, theirs = ({word for word, _ in seen.facts["temporal"]} for seen in (one, other))
    if ours == theirs:
        return True if ours else None
    loose = {"before", "after", "during", "current", "since", "until", "once"}
    periods = {"daily", "weekly", "monthly", "yearly"}
    orders = {"before", "after", "together"}
    if _beside_event(one, other) or _beside_event(other, one):
        return False
    sides = [{_SIDE_OF_EVENT[word] for word in said if word in _SIDE_OF_EVENT} for said in (ours, theirs)]
    if sides[0] and sides[1] and sides[0].isdisjoint(sides[1]):
        # During an earthquake, once it is over.
        return False
    if len(orders & (ours ^ theirs)) > 1 or all(
        only - loose - periods - orders for only in (ours - theirs, theirs - ours)
    ):
        return False
    return False if ours & periods and theirs & periods and ours & periods != theirs & periods else "one side"
