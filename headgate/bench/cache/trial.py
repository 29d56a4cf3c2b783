"""The trial of the rule: streams of intents nobody has seen, every policy replayed on each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headgate.bench.cache.certify import LADDER, certified
from headgate.bench.cache.intents import Share, Split, deal
from headgate.bench.cache.rules import Scores, Texts, by_vcache, encode
from headgate.bench.cache.side_by_side import Cosine, Family, Guarded, Judged, Oracle, Tally, play, same_key, tally
from headgate.bench.cache.streams import TRAFFIC, Item, Kind, stream
from headgate.cache.embedding.encoder import BertEncoder
from headgate.cache.judge import LEVELS, Judge, Thresholds
from headgate.cache.semantic import CANDIDATES, MARGIN, SemanticRule
from headgate.training.binomial import lower_bound, upper_bound

KINDS: tuple[Kind, ...] = ("natural", "heavy", "adversarial")
COSINES = tuple(round(0.995 - 0.04 * step, 3) for step in range(10))
"""Tried for the static baselines."""
NOTHING = 2.0
"""A cosine that no two texts have: only exact hits are left."""
_FIXED = (0.80, 0.90, 0.95, 0.97)
"""Played as they are."""
_CALIBRATION_SEED = 100_000
_VCACHE_LEVEL = 0.02


@dataclass(frozen=True, slots=True)
class Played:
    """What every policy did with one stream, at every threshold that might be chosen.

    Attributes:
        kind: of traffic.
        split: whose intents; `test` or `calibrate`.
        seed: of the stream.
        requests: all.
        ours: our rule, by the score from which on it serves.
        static: by the cosine from which on everything is served.
        guarded: the same, less what the guards forbid.
        oracle: serves whatever is right.
        learnt: vCache's rule; None where it was not played.
    """

    kind: Kind
    split: Split
    seed: int
    requests: int
    ours: Mapping[float, Tally]
    static: Mapping[float, Tally]
    guarded: Mapping[float, Tally]
    oracle: Tally
    learnt: Tally | None = None


@dataclass(frozen=True, slots=True)
class Tuned:
    """What the calibration streams of one kind decided: thresholds for our rule, a cosine a level for the baselines."""

    thresholds: Thresholds
    static: Mapping[float, float]
    guarded: Mapping[float, float]


def tuned(streams: Sequence[Played], bars: Mapping[float, float] | None = None) -> Tuned:
    """From calibration streams of one kind; `bars` as for `certified`."""
    return Tuned(
        certified([{score: one.by_intent for score, one in own.ours.items()} for own in streams], bars),
        _best_cosines([own.static for own in streams]),
        _best_cosines([own.guarded for own in streams]),
    )


def _best_cosines(streams: Sequence[Mapping[float, Tally]]) -> dict[float, float]:
    """For each level the cosine with the most right hits among those that keep it on these streams, without a margin:
    the choice an operator with labelled traffic would make."""
    best = {}
    for level in LEVELS:
        best[level], most = NOTHING, 0
        for cosine in COSINES:
            right, wrong = sum(one[cosine].right for one in streams), sum(one[cosine].wrong for one in streams)
            if right > most and wrong <= level * (right + wrong):
                best[level], most = cosine, right
    return best


@dataclass(frozen=True, slots=True)
class StreamResult:
    """One policy on one stream.

    Attributes:
        kind: of traffic.
        policy: its name.
        level: the accepted share of wrong hits that it was tuned to; None where it was not.
        tally: what it did.
    """

    kind: Kind
    policy: str
    level: float | None
    tally: Tally

    @property
    def violates(self) -> bool:
        """Whether more of the hits by meaning were wrong than was accepted."""
        hits = self.tally.right + self.tally.wrong
        return self.level is not None and self.tally.wrong > self.level * hits


class Trial:
    """Streams of one size from one deal of the intents."""

    def __init__(
        self, judge: Judge, encoder: BertEncoder, requests: int, deal_seed: int = 0, folder: Path | None = None
    ) -> None:
        """Streams of so many requests; `folder` keeps encoded texts for the next run.

        `deal_seed` must be the one the judge was fitted with.
        """
        self._folder = folder
        self._judge = judge
        self._encoder = encoder
        self._shares: Mapping[Split, Share] = deal(deal_seed)
        self._requests = requests

    def play(self, kind: Kind, split: Split, seed: int) -> Played:
        """One stream; vCache's rule on a tested one only, since nothing of it is tuned."""
        items, texts, scores = self._made(kind, split, seed)
        cosines = [*COSINES, *_FIXED, NOTHING]
        families: list[Family] = [
            Judged(LADDER, scores, scores.vetoed, MARGIN),
            Cosine(cosines),
            Guarded([*COSINES, NOTHING], scores.vetoed),
            Oracle(same_key(items, texts.embedded)),
        ]
        tallies = iter(tally(items, column) for column in play(items, texts.embedded, families, CANDIDATES).T)
        # Only where thresholds are certified does it matter whose hits they are.
        ours = {score: next(tallies) for score in LADDER}
        static, guarded = (
            {cosine: replace(next(tallies), by_intent={}) for cosine in its} for its in (cosines, [*COSINES, NOTHING])
        )
        learnt = None
        if split == "test":
            learnt = replace(tally(items, by_vcache(items, texts.embedded, _VCACHE_LEVEL, seed)), by_intent={})
        return Played(kind, split, seed, len(items), ours, static, guarded, next(tallies), learnt)

    def _made(self, kind: Kind, split: Split, seed: int) -> tuple[list[Item], Texts, Scores]:
        drawn = seed + _CALIBRATION_SEED if split == "calibrate" else seed
        items = stream(replace(TRAFFIC[kind], requests=self._requests), self._shares[split], drawn)
        texts = encode((item.text for item in items), self._encoder, self._judge, self._folder)
        return items, texts, Scores(self._judge, texts, SemanticRule().near_similarity)


def results(played: Played, tuned: Tuned, judge: Judge) -> list[StreamResult]:
    """What the policies that were tuned, and those that need not be, did with a tested stream, in the table's order."""
    told: list[tuple[str, float | None, Tally]] = [("exact only", None, played.static[NOTHING])]
    told += [(f"cosine {cosine:.2f}", None, played.static[cosine]) for cosine in _FIXED]
    told.append(("oracle", None, played.oracle))
    for level in LEVELS:
        found = judge.level(played.kind, level)
        told.append(("best static", level, played.static[tuned.static[level]]))
        told.append(("static + guards", level, played.guarded[tuned.guarded[level]]))
        told.append(("ours", level, played.static[NOTHING] if found is None else played.ours[found.threshold]))
    if played.learnt is not None:
        told.append(("vCache", _VCACHE_LEVEL, played.learnt))
    return [StreamResult(played.kind, name, level, own) for name, level, own in told]


@dataclass(frozen=True, slots=True)
class Rate:
    """So many errors in so many trials."""

    errors: int
    trials: int

    @property
    def share(self) -> float:
        """Errors per trial, 0.0 without trials."""
        return self.errors / self.trials if self.trials else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """The two-sided 95 % Clopper-Pearson interval, as if trials were independent; (0, 1) without trials."""
        return lower_bound(self.errors, self.trials, 0.025), upper_bound(self.errors, self.trials, 0.025)


@dataclass(frozen=True, slots=True)
class Row:
    """One policy over all streams of a kind.

    Attributes:
        violations: streams whose share of wrong hits was above the level, of so many streams.
        error: wrong hits among hits by meaning, pooled.
        of_oracle: right hits by meaning, relative to the oracle's.
        of_static: right hits by meaning, relative to those of the best static threshold of the same level; infinity
            where that has none.
        near_misses: those answered wrongly, of all.
    """

    kind: Kind
    policy: str
    level: float | None
    violations: Rate
    error: Rate
    of_oracle: float
    of_static: float
    near_misses: Rate


def rows(results: Sequence[StreamResult]) -> list[Row]:
    """The table: by kind, level and policy, in the order of the first appearance."""
    groups: dict[tuple[Kind, str, float | None], list[StreamResult]] = {}
    for result in results:
        groups.setdefault((result.kind, result.policy, result.level), []).append(result)
    right = {group: sum(result.tally.right for result in own) for group, own in groups.items()}
    made = []
    for (kind, policy, level), own in groups.items():
        wrong = sum(result.tally.wrong for result in own)
        static = right.get((kind, "best static", level), 0)
        misses = [counts for result in own for counts in result.tally.by_edit.values()]
        made.append(
            Row(
                kind,
                policy,
                level,
                Rate(sum(result.violates for result in own), len(own)),
                Rate(wrong, right[kind, policy, level] + wrong),
                right[kind, policy, level] / max(1, right[kind, "oracle", None]),
                right[kind, policy, level] / static if static else math.inf,
                Rate(sum(bad for _, bad in misses), sum(all_ for all_, _ in misses)),
            )
        )
    return made


@dataclass(frozen=True, slots=True)
class Rung:
    """What our rule did from one threshold on, over some streams of one kind.

    Attributes:
        error: wrong hits among hits by meaning.
        above: by level, in how many streams more of them were wrong.
        of_oracle: right hits by meaning, relative to the oracle's.
    """

    threshold: float
    error: Rate
    above: Mapping[float, int]
    of_oracle: float


def rungs(streams: Sequence[Played]) -> list[Rung]:
    """Every threshold tried, from strict to loose."""
    made = []
    for threshold in LADDER:
        own = [one.ours[threshold] for one in streams]
        right, wrong = sum(one.right for one in own), sum(one.wrong for one in own)
        above = {level: sum(one.wrong > level * (one.right + one.wrong) for one in own) for level in LEVELS}
        oracle = sum(one.oracle.right for one in streams)
        made.append(Rung(threshold, Rate(wrong, right + wrong), above, right / max(1, oracle)))
    return made


def violation_bound(row: Row) -> float:
    """Lower 95 % bound on the share of streams in violation: above 5 % the promise is refuted."""
    return lower_bound(row.violations.errors, row.violations.trials, 0.05)
