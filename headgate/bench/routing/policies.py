"""Every rule that is compared: each learned on the same prompts, each ordering the same others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from headgate.bench.routing.curves import Changes, Measured, Policy
from headgate.bench.routing.knn import fit_neighbours
from headgate.routing.outcomes import OutcomeTable
from headgate.routing.quality import SOURCES, Source
from headgate.routing.regression import Array
from headgate.training.quality import Design, alone_costs, cascade_costs, costs, design, fit_pair
from headgate.training.regression import FOLDS, fit, folds_of

NAMES: dict[Source, str] = {"probe": "probe", "embedding": "logistic", "cores": "logistic, cores"}
"""What the estimates are called beside the baselines."""


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """Rules on the same requests. `estimates`: P(small is enough) by name, for those that give one, `[requests]`."""

    measured: Measured
    policies: tuple[Policy, ...]
    estimates: dict[str, Array]


def measured(table: OutcomeTable) -> Measured:
    """What both models made of the table's prompts."""
    seconds = (np.array([getattr(one, tier).device_s for one in table.outcomes]) for tier in ("small", "large"))
    return Measured(table.right("small"), table.right("large"), *seconds)


def compare(known: OutcomeTable, new: OutcomeTable, *, few: bool = False, seed: int = 0) -> Compared:
    """All rules, learned on `known`, on the prompts of `new`.

    - length rule: longer prompts first;
    - task rule: families by how often the small model is wrong in them; it is told the family, which a router has to
      guess; one that it does not know counts as the mean;
    - kNN, logistic and probe: by the estimate of the small model's being right; `logistic, cores` by the highest of the
      text's and its cores';
    - handing over alone: only that, and of the rest any. By all rules so far what the small model hands over goes to
      the large one, at the price of both. Where an estimate tells of it, the router may also keep what is likely
      enough to be right, by the same threshold: that policy is the `frugal` one;
    - cascades: the small model answers, and those answers go to the large one first whose tokens are least sure, by
      their mean or by a regression on the mean and five quantiles. They pay for both answers;
    - all of these together: estimates that read everything the others do, the small model's answer included;
    - told the small answer: whether that is right, and of the large model the estimate from all of these. Whatever
      judges the small model alone can do no better.

    `few`: without cores and the last two, which take longest to fit.
    """
    found = measured(new)
    estimates: dict[str, Array] = {}
    lengths = np.array([float(one.prompt_chars) for one in new.outcomes])
    simple = {"length rule": lengths, "task rule": _task_rule(known, new)}
    if new.hand_over:
        simple["handing over alone"] = np.zeros(len(new))
    folds = folds_of(len(known), FOLDS, seed)
    if known.vectors.shape[1]:
        rights = np.stack([known.right("small"), known.right("large")], axis=1)
        estimates["kNN"] = fit_neighbours(known.vectors, rights, folds).predict(new.vectors)[:, 0]
        simple["kNN"] = 1 - estimates["kNN"]
    policies = [_asking_first(name, need, new, "embedding") for name, need in simple.items()]
    for source in (one for one in reversed(SOURCES) if not (few and one == "cores")):
        read, unread = design(known, source), design(new, source)
        if read is None or unread is None:
            continue
        name = NAMES[source]
        pair = fit_pair(read, known.right("small"), known.right("large"), known.handed_right, seed=seed)
        estimates[name] = unread.estimates(pair)
        policies.append(_asking_first(name, 1 - estimates[name], new, source))
        if pair.alone is not None:
            frugal = _keeping(estimates[name], unread.kept(pair), new, source)
            policies[-1] = replace(policies[-1], frugal=frugal)
    both = cascade_costs(new)
    mean = np.array([one.confidence.mean for one in new.outcomes])
    policies.append(Policy("cascade, mean", -mean, *both))
    rows = _quantiles(known)
    stands = fit(rows, known.right("small"), (rows.shape[1],), folds=folds).predict(_quantiles(new))
    policies.append(Policy("cascade, quantiles", 1 - stands, *both))
    estimates["cascade, quantiles"] = stands
    if few:
        return Compared(found, tuple(policies), estimates)
    everything, unread = _everything(known), _everything(new)
    pair = fit_pair(everything, known.right("small"), known.right("large"), seed=seed)
    policies.append(Policy("all of these", 1 - unread.estimates(pair), *both))
    large = pair.large.predict(unread.rows)
    policies.append(Policy("told the small answer", (1 - found.small) * large, *both))
    return Compared(found, tuple(policies), estimates)


def _asking_first(name: str, need: Array, new: OutcomeTable, source: Source) -> Policy:
    """Who is not sent to the large model by `need` is sent there by the small one, where that hands over."""
    asked_s, upgraded_s = costs(new, source)
    large_s = np.array([one.large.device_s for one in new.outcomes])
    handed = new.handed_over
    kept_s = np.where(handed, asked_s - large_s, asked_s)
    return Policy(name, np.where(handed, np.inf, need), kept_s, np.where(handed, asked_s, upgraded_s))


def _keeping(enough: Array, kept: Array, new: OutcomeTable, source: Source) -> Changes:
    """A threshold on how likely nothing is lost, as the router has it.

    What is not above it goes to the large model at once. Of the rest the small model answers what it would hand over
    itself where that, too, is above it.

    Args:
        enough: of the small model's answer, which hands over, `[requests]`.
        kept: of its own answer to what it hands over, `[requests]`.
        new: the requests.
        source: of the estimates.
    """
    handed, large = new.handed_over, new.right("large")
    asked_s, upgraded_s = costs(new, source)
    own_s = np.where(handed, alone_costs(new, source), asked_s)
    yields = handed & (kept < enough)
    gain = large - new.alone
    # First to the large model, by the one way or the other; later those that were asked for nothing go there at once.
    first = np.where(handed, np.minimum(kept, enough), enough)
    dearer = np.where(yields, asked_s, upgraded_s) - own_s
    later = np.flatnonzero(yields)
    none = np.zeros(len(later))
    return Changes(
        new.alone,
        own_s,
        np.concatenate([first, enough[later]]),
        np.concatenate([np.arange(len(new)), later]),
        np.concatenate([np.ones(len(new)), none]),
        np.concatenate([gain, none]),
        np.concatenate([dearer, (upgraded_s - asked_s)[later]]),
    )


def _everything(table: OutcomeTable) -> Design:
    """What any rule looks at: state, embedding, counts, and how sure the small model was of its answer."""
    sources: tuple[Source, ...] = ("probe", "embedding")
    read = [found for source in sources if (found := design(table, source)) is not None]
    sure = _quantiles(table)
    blocks = (*(width for one in read for width in one.blocks), sure.shape[1])
    return Design(np.hstack([*(one.rows for one in read), sure]), np.arange(len(table)), blocks)


def _task_rule(known: OutcomeTable, new: OutcomeTable) -> Array:
    wrong: dict[str, list[float]] = {}
    for one in known.outcomes:
        wrong.setdefault(one.family, []).append(1.0 - one.small.right)
    mean = 1.0 - float(known.right("small").mean())
    return np.array([np.mean(wrong.get(one.family, [mean])) for one in new.outcomes])


def _quantiles(table: OutcomeTable) -> np.ndarray:
    """Float32 `[prompts, 12]`: each log-probability, and the logarithm of its negative, which spreads those near 0."""
    told = [one.confidence for one in table.outcomes]
    rows = np.array([[c.mean, c.least, c.q05, c.q10, c.q25, c.q50] for c in told])
    return np.hstack([rows, np.log(np.maximum(-rows, 1e-6))]).astype(np.float32)


def families(table: OutcomeTable) -> Sequence[str]:
    """Names of the table's families, sorted."""
    return sorted({one.family for one in table.outcomes})
