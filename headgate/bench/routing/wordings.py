"""How much of what only one of two models gets right follows from what is asked: the same asked again in other words.

A rule that has seen both models answer the other wordings of a content knows of it what can be known beforehand. The
gap that it leaves hangs on the wording; the one between it and an estimate is what the estimate fails to see.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headgate.bench.routing.curves import Policy, curve, gap_closed, interval, oracle, resamples
from headgate.bench.routing.policies import measured
from headgate.bench.routing.trial import Interval
from headgate.engine.demo.tasks import BEYOND, FAMILIES, SYSTEM_PROMPTS, Draw, Message, Sample, split_of
from headgate.routing.outcomes import OutcomeTable
from headgate.training.outcomes import Told, make_table

CONTENTS = 250
WORDINGS = 4
RESAMPLES = 1000
_TRIES = 40
_WITHOUT_SYSTEM = 5


@dataclass(frozen=True, slots=True)
class Worded:
    """What other wordings of the same content tell.

    Attributes:
        contents: that were asked, each in `wordings` ways.
        wordings: of each content.
        closed: share of the random-to-oracle gap that a rule closes which knows how the other wordings went; its
            interval is over contents.
        within: share of the variance of the gain, the large model's rightness less the small one's, that is between
            wordings of one content.
    """

    contents: int
    wordings: int
    closed: Interval
    within: float


def wordings(contents: int = CONTENTS, each: int = WORDINGS, *, seed: int = 0) -> list[Sample]:
    """`contents` contents of the demo tasks in `each` different ways, all ways of a content after one another.

    They differ in the words of the question and in the system text, and are of the generator's test split, of levels 1
    to `BEYOND` alike. Contents that cannot be asked in so many ways are passed over.
    """
    rng = random.Random(f"wordings/{seed}")
    weights = [family.weight for family in FAMILIES]
    found: list[Sample] = []
    while len(found) < contents * each:
        family = rng.choices(FAMILIES, weights)[0]
        level = min(rng.randint(1, BEYOND), family.hardest)
        first = Draw(rng, random.Random(rng.random()), level, "test")
        task = family.make(first)
        if split_of(family.name, task.content) != "test":
            continue
        asked: dict[tuple[str, str], Sample] = {}
        for _ in range(_TRIES):
            again = family.make(Draw(rng, random.Random(rng.random()), level, "test", first.made))
            system = rng.choice((*SYSTEM_PROMPTS, *("",) * _WITHOUT_SYSTEM))
            if again.answer == task.answer and again.tools == task.tools and len(asked) < each:
                turns = (*([Message("system", system)] if system else []), Message("user", again.prompt))
                asked[again.prompt, system] = Sample(
                    turns,
                    again.answer,
                    family.name,
                    level,
                    task.content,
                    "test",
                    family.grading,
                    again.tools,
                    again.working,
                )
        if len(asked) == each:
            found += asked.values()
    return found


def told_by_wordings(table: OutcomeTable, each: int, *, seed: int = 0) -> Worded:
    """Of outcomes of `wordings`, `each` of a content: what the others of its content say of each."""
    known = measured(table)
    gain = (known.large - known.small).reshape(-1, each)
    others = (gain.sum(1, keepdims=True) - gain) / (each - 1)
    times = np.repeat(resamples(RESAMPLES, len(gain), seed), each, axis=1)
    best = curve(known, oracle(known), times)
    made = curve(known, Policy("", others.ravel(), known.small_s, known.large_s), times, seed=seed)
    within = float(gain.var(1, ddof=1).mean() / max(gain.var(ddof=1), 1e-12))
    return Worded(len(gain), each, interval(gap_closed(made, best, known, times)), within)


def ask_wordings(small: Path, large: Path, *, seed: int = 0, tell: Told = lambda _: None) -> Worded:
    """Both checkpoints asked `CONTENTS` contents in `WORDINGS` ways each."""
    table = make_table(small, large, wordings(seed=seed), tell=tell)
    return told_by_wordings(table, WORDINGS, seed=seed)


def lines(worded: Worded) -> Iterator[str]:
    """For a terminal."""
    value, low, high = (100 * part for part in worded.closed)
    yield f"{worded.contents} contents in {worded.wordings} wordings each, both models asked"
    yield f"who knows how the other wordings went closes {value:.0f} % of the gap ({low:.0f} to {high:.0f})"
    yield f"{100 * worded.within:.0f} % of the variance of the gain is between wordings of one content"
