"""Fits estimates of quality on what a gateway logged of its own requests.

The large model's answer counts as right, and the small one's where it means the same: "at most 5 % worse" then says
that at most 5 % of the requests get an answer that differs from the large model's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headgate.engine.demo.tasks.draw import hashed
from headgate.routing.cascade import QUANTILES
from headgate.routing.outcome_log import LoggedOutcome
from headgate.routing.outcomes import Attempt
from headgate.routing.quality import FittedQuality, Source
from headgate.routing.quality_features import SURFACE
from headgate.training.quality import Design, Evidence, fit_evidence

LEAST = 200
"""Requests that are needed to fit on, and as many to calibrate on."""
LEAST_OF_EACH = 20
"""Of those that are fitted on, answers of the small model that are right, and that are wrong."""


def fit_logged(outcomes: Sequence[LoggedOutcome], *, seed: int = 0) -> FittedQuality:
    """Estimates from the embedding and, where they were judged, from cores, and calibrated cascades.

    Only those of the same models and embedding model as the newest count. Two thirds are fitted on and a third is for
    calibration, dealt by the hash of what was decided over, so that equal requests lie in one part.

    Raises:
        ValueError: they are too few, or too one-sided; the message says how many are needed.
    """
    if not outcomes:
        raise ValueError(f"the log has no outcomes; {LEAST} to fit on and {LEAST} to calibrate on are needed")
    newest = outcomes[-1]
    same = [one for one in outcomes if _of(one) == _of(newest)]
    parts: tuple[list[LoggedOutcome], list[LoggedOutcome]] = ([], [])
    for one in same:
        parts[hashed(f"logged\0{one.features}", 3) == 0].append(one)
    train, held = parts
    if len(train) < LEAST or len(held) < LEAST:
        raise ValueError(
            f"the log has {len(same)} outcomes of the models of its last line: {len(train)} to fit on and {len(held)} "
            f"to calibrate on; {LEAST} of each are needed"
        )
    right = sum(one.one.right for one in train)
    if min(right, len(train) - right) < LEAST_OF_EACH:
        raise ValueError(
            f"of {len(train)} outcomes to fit on the small model has {right} right and {len(train) - right} wrong; "
            f"{LEAST_OF_EACH} of each are needed"
        )
    known, new = evidence_of(train), evidence_of(held)
    estimators, cascades = fit_evidence(known, new, seed=seed)
    means = (float(known.small.mean()), float(known.large.mean()))
    return FittedQuality(newest.small, newest.large, newest.embedder, *means, estimators, cascades)


def evidence_of(outcomes: Sequence[LoggedOutcome]) -> Evidence:
    """What estimates are fitted on and calibrated with; cores only where all of the outcomes have them."""
    blocks = (outcomes[0].columns - len(SURFACE), len(SURFACE))
    whole = Design(np.stack([one.rows[0] for one in outcomes]), np.arange(len(outcomes)), blocks)
    designs: dict[Source, Design] = {"embedding": whole}
    if all(one.cores for one in outcomes):
        prompts = np.repeat(np.arange(len(outcomes)), [len(one.rows) for one in outcomes])
        designs = {"cores": Design(np.concatenate([one.rows for one in outcomes]), prompts, blocks), **designs}
    small, large = (np.array([float(part.right) for part in parts]) for parts in _answers(outcomes))
    small_s, large_s = (np.array([part.device_s for part in parts]) for parts in _answers(outcomes))
    sureness = {
        quantile: np.exp([one.confidence.quantiles[quantile] for one in outcomes]).astype(np.float64)
        for quantile in QUANTILES
    }
    plain, both = (small_s, large_s), (small_s, small_s + large_s)
    return Evidence(small, large, designs, dict.fromkeys(designs, plain), sureness, both)


def _answers(outcomes: Sequence[LoggedOutcome]) -> tuple[list[Attempt], list[Attempt]]:
    return [one.one for one in outcomes], [one.other for one in outcomes]


def _of(one: LoggedOutcome) -> tuple[str, str, str, int]:
    return one.small, one.large, one.embedder, one.columns
