"""Whether calibrated targets hold: many calibrations, each on a sample of prompts whose whole is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.routing.calibration import Calibration, Infeasible
from headgate.routing.cascade import Cascade
from headgate.routing.outcomes import OutcomeTable
from headgate.routing.quality import FittedQuality
from headgate.routing.regression import Array
from headgate.training.binomial import upper_bound
from headgate.training.quality import (
    CONFIDENCE,
    Keeping,
    alone_costs,
    calibrate,
    cascade_costs,
    costs,
    dearest,
    design,
    sureness_of,
)

RESAMPLES = 200
LOSSES = (0.02, 0.05, 0.10)
"""Targets of loss that are tried."""
_BETWEEN = (0.25, 0.5)
"""Targets of device seconds that are tried: so far from the small model's to the large one's."""


@dataclass(frozen=True, slots=True)
class Held:
    """One target, calibrated again and again.

    Attributes:
        source: of the estimates, or `cascade`.
        target: as a person says it.
        feasible: calibrations that found a threshold.
        violated: of these, those whose threshold does not keep the target on the whole population.
        stated: share of violations that is allowed.
        bound: upper 95 % bound on the true share, from `violated` of all calibrations.
        small: mean share of requests that stay with the small model.
        cost: mean device seconds, as a share of the large model's.
        quality: mean quality, as a share of the large model's.
        test: the same on the part `test`, once, with the threshold of the part `calibration`: its loss, or its device
            seconds a request; not a number where that was infeasible.
    """

    source: str
    target: str
    feasible: int
    violated: int
    stated: float
    bound: float
    small: float
    cost: float
    quality: float
    test: float


def hold(table: OutcomeTable, fitted: FittedQuality, *, seed: int = 0, count: int = RESAMPLES) -> list[Held]:
    """Every target with every estimate.

    The population is all prompts that nothing was fitted on, the parts `calibration` and `test` together. Each
    calibration draws as many of them as the part `calibration` has, with replacement, so that the true loss of the
    threshold it finds is known exactly: that of the population.
    """
    places = np.concatenate([table.rows("calibration"), table.rows("test")])
    whole, known = table.take(places), table.take(table.rows("train"))
    drawn = np.random.default_rng(seed)
    samples = [drawn.integers(len(whole), size=len(table.rows("calibration"))) for _ in range(count)]
    tested = np.arange(len(whole)) >= len(table.rows("calibration"))
    found: list[Held] = []
    for source, estimator in fitted.estimators.items():
        read = design(whole, source)
        if read is not None and estimator.calibration is not None:
            told = read.estimates(estimator)
            most_s = dearest(*costs(known, source))
            spent_s = costs(whole, source)
            keeping = None
            if estimator.alone is not None:
                keeping = Keeping(whole.handed_over, whole.alone, alone_costs(whole, source), read.kept(estimator))
            found += _hold(whole, tested, source, told, estimator.calibration, spent_s, most_s, samples, keeping)
    sure, kept = sureness_of(whole, Cascade().quantile), fitted.cascades[Cascade().quantile]
    most_s = dearest(*cascade_costs(known))
    return found + _hold(whole, tested, "cascade", sure, kept, cascade_costs(whole), most_s, samples)


def _hold(
    whole: OutcomeTable,
    tested: np.ndarray,
    rule: str,
    estimates: Array,
    own: Calibration,
    spent_s: tuple[Array, Array],
    most_s: float,
    samples: list[np.ndarray],
    keeping: Keeping | None = None,
) -> list[Held]:
    small, large = whole.given, whole.right("large")
    kept_s, upgraded_s = spent_s
    always = np.array([one.large.device_s for one in whole.outcomes])
    made = [
        calibrate(
            estimates[at],
            small[at],
            large[at],
            kept_s[at],
            upgraded_s[at],
            own.thresholds,
            most_s,
            keeping=None if keeping is None else keeping.take(at),
        )
        for at in samples
    ]

    def outcome(threshold: float) -> tuple[NDArray[np.bool_], Array, Array]:
        """Whether the small model is asked, whether the answer is right, and the device seconds."""
        stays, right, seconds = estimates > threshold, small, kept_s
        if keeping is not None:
            keeps = keeping.under(np.array([threshold]))[0]
            right, seconds = np.where(keeps, keeping.right, right), np.where(keeps, keeping.seconds, seconds)
        return stays, np.where(stays, right, large), np.where(stays, seconds, upgraded_s)

    low, high = kept_s.mean(), upgraded_s.mean()
    targets = [(f"at most {loss:.0%} worse than always large", "loss", loss) for loss in LOSSES]
    for share in _BETWEEN:
        budget = float(low + share * (high - low))
        targets.append((f"at most {1000 * budget:.3g} device s for 1,000 requests", "seconds", budget))
    found = []
    for target, kind, most in targets:
        taken = []
        for one in made:
            try:
                taken.append(one.for_loss(most) if kind == "loss" else one.for_seconds(most))
            except Infeasible:
                continue

        def realised(threshold: float, among: np.ndarray, kind: str = kind) -> float:
            _, right, seconds = outcome(threshold)
            if kind == "loss":
                return float((large > right)[among].sum() / max(1.0, large[among].sum()))
            return float(seconds[among].mean())

        violated = sum(realised(threshold, np.ones_like(tested)) > most for threshold in taken)
        outcomes = [outcome(threshold) for threshold in taken]
        stays = [stay for stay, _, _ in outcomes]
        spent = [seconds.mean() / always.mean() for _, _, seconds in outcomes]
        right = [answers.mean() / max(large.mean(), 1e-12) for _, answers, _ in outcomes]
        try:
            test = realised(own.for_loss(most) if kind == "loss" else own.for_seconds(most), tested)
        except Infeasible:
            test = float("nan")
        found.append(
            Held(
                rule,
                target,
                len(taken),
                violated,
                1 - CONFIDENCE,
                upper_bound(violated, len(made), 0.05),
                float(np.mean([stay.mean() for stay in stays])) if stays else float("nan"),
                float(np.mean(spent)) if spent else float("nan"),
                float(np.mean(right)) if right else float("nan"),
                test,
            )
        )
    return found
