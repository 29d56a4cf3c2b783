"""Fits estimates of quality on what a gateway logged of its own requests.

The large model's answer counts as right, and the small one's where it means the same: "at most 5 % worse" then says
that at most 5 % of the requests get an answer that differs from the large model's. What users said of answers is fitted
on beside that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from headgate.engine.demo.tasks.draw import hashed
from headgate.routing.cascade import QUANTILES
from headgate.routing.outcome_log import LoggedOutcome
from headgate.routing.outcomes import Attempt
from headgate.routing.quality import FittedQuality, Source
from headgate.routing.quality_features import SURFACE
from headgate.training.quality import Design, Evidence, fit_evidence, shares

LEAST = 200
"""Requests that are needed to fit on, and as many to calibrate on."""
VOICE_SHARE = 0.02
"""Ratings of one user that count, as a share of the comparisons that are fitted on."""
TEAM_SHARE = 0.2
"""The same of one team."""
LEAST_OF_EACH = 20
"""Of those that are fitted on, answers of the small model that are right, and that are wrong."""


def fit_logged(outcomes: Sequence[LoggedOutcome], *, seed: int = 0) -> FittedQuality:
    """Estimates from the embedding and, where they were judged, from cores, and calibrated cascades.

    Only those of the same models and embedding model as the newest count. Two thirds are fitted on and a third is for
    calibration, dealt by the hash of the text's embedding, so that equal texts lie in one part. What users said
    counts where estimates are fitted, and nowhere else: they choose what they rate, and thresholds hold for requests
    that were drawn by chance.

    Raises:
        ValueError: they are too few, or too one-sided; the message says how many are needed.
    """
    compared = [one for one in outcomes if not one.voice]
    if not compared:
        raise ValueError(f"the log has no outcomes; {LEAST} to fit on and {LEAST} to calibrate on are needed")
    newest = compared[-1]
    same = [one for one in compared if _of(one) == _of(newest)]
    train, held = ([one for one in same if _held(one) is part] for part in (False, True))
    if len(train) < LEAST or len(held) < LEAST:
        raise ValueError(
            f"the log has {len(same)} outcomes of the models of its last line: {len(train)} to fit on and {len(held)} "
            f"to calibrate on; {LEAST} of each are needed"
        )
    small, large = (np.array([_right(part) for part in parts]) for parts in _answers(train))
    right = int(small.sum())
    if min(right, len(train) - right) < LEAST_OF_EACH:
        raise ValueError(
            f"of {len(train)} outcomes to fit on the small model has {right} right and {len(train) - right} wrong; "
            f"{LEAST_OF_EACH} of each are needed"
        )
    rated = [one for one in outcomes if one.voice and _of(one) == _of(newest) and not _held(one)]
    known, new = evidence_of([*train, *_admitted(rated, len(train))]), evidence_of(held)
    estimators, cascades = fit_evidence(known, new, seed=seed)
    return FittedQuality(newest.small, newest.large, newest.embedder, *shares(small, large), estimators, cascades)


def evidence_of(outcomes: Sequence[LoggedOutcome]) -> Evidence:
    """What estimates are fitted on and calibrated with; cores only where all of the outcomes have them."""
    blocks = (outcomes[0].columns - len(SURFACE), len(SURFACE))
    whole = Design(np.stack([one.rows[0] for one in outcomes]), np.arange(len(outcomes)), blocks)
    designs: dict[Source, Design] = {"embedding": whole}
    if all(one.cores for one in outcomes):
        prompts = np.repeat(np.arange(len(outcomes)), [len(one.rows) for one in outcomes])
        designs = {"cores": Design(np.concatenate([one.rows for one in outcomes]), prompts, blocks), **designs}
    small, large = (np.array([_right(part) for part in parts]) for parts in _answers(outcomes))
    small_s, large_s = (
        np.array([np.nan if part is None else part.device_s for part in parts]) for parts in _answers(outcomes)
    )
    sure = [one.confidence.quantiles for one in outcomes if one.confidence is not None]
    sureness = {quantile: np.exp([one[quantile] for one in sure]).astype(np.float64) for quantile in QUANTILES}
    plain, both = (small_s, large_s), (small_s, small_s + large_s)
    # Who was asked to compare had to answer: nothing was handed over.
    nothing = np.full(len(small), np.nan)
    seconds, own_s = dict.fromkeys(designs, plain), dict.fromkeys(designs, small_s)
    return Evidence(small, large, small, nothing, designs, seconds, own_s, sureness, both)


def _admitted(rated: Sequence[LoggedOutcome], compared: int) -> list[LoggedOutcome]:
    """The newest word of each user on each request, as many of one user and of one team as may weigh."""
    of_voice: Counter[str] = Counter()
    of_team: Counter[str] = Counter()
    seen: set[tuple[str, str]] = set()
    found = []
    for one in reversed(rated):
        if (one.voice, one.features) in seen:
            continue
        seen.add((one.voice, one.features))
        if of_voice[one.voice] < VOICE_SHARE * compared and of_team[one.team] < TEAM_SHARE * compared:
            of_voice[one.voice] += 1
            of_team[one.team] += 1
            found.append(one)
    return found


def _answers(outcomes: Sequence[LoggedOutcome]) -> tuple[list[Attempt | None], list[Attempt | None]]:
    return [one.one for one in outcomes], [one.other for one in outcomes]


def _right(attempt: Attempt | None) -> float:
    return np.nan if attempt is None else float(attempt.right)


def _held(one: LoggedOutcome) -> bool:
    """Whether it is for calibration.

    Not by `features`: its key may be another after each start of the gateway.
    """
    embedding = one.rows[0, : one.columns - len(SURFACE)]
    return hashed(f"logged\0{embedding.tobytes().hex()}", 3) == 0


def _of(one: LoggedOutcome) -> tuple[str, str, str, int]:
    return one.small, one.large, one.embedder, one.columns
