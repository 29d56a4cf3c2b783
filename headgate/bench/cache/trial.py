"""The trial of the rule: streams of intents nobody has seen, every policy replayed on each."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headgate.bench.cache.certify import Served, certified
from headgate.bench.cache.intents import Share, Split, deal
from headgate.bench.cache.policies import Guard, Oracle, Outcome, Policy, Rate, Threshold, replay
from headgate.bench.cache.rules import Judged, Scores, Texts, VCache, encode, served_by_threshold
from headgate.bench.cache.streams import TRAFFIC, Item, Kind, stream
from headgate.cache.binomial import lower_bound
from headgate.cache.encoder import BertEncoder
from headgate.cache.judge import LEVELS, Judge, Thresholds
from headgate.cache.semantic import CANDIDATES, SemanticRule

KINDS: tuple[Kind, ...] = ("natural", "heavy", "adversarial")
COSINES = tuple(round(0.995 - 0.04 * step, 3) for step in range(10))
"""Tried for the static baselines."""
_CALIBRATION_SEED = 100_000
_VCACHE_LEVEL = 0.02


@dataclass(frozen=True, slots=True)
class Calibration:
    """What one calibration stream says.

    Attributes:
        kind: of traffic.
        seed: of the stream.
        served: what our rule serves from each threshold on.
        static: right and wrong hits by cosine, from which on everything is served.
        guarded: the same, less what the guards forbid.
    """

    kind: Kind
    seed: int
    served: Served
    static: Mapping[float, tuple[int, int]]
    guarded: Mapping[float, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Tuned:
    """What the calibration streams of one kind decided: thresholds for our rule, a cosine a level for the baselines."""

    thresholds: Thresholds
    static: Mapping[float, float]
    guarded: Mapping[float, float]


def tuned(streams: Sequence[Calibration], bars: Mapping[float, float] | None = None) -> Tuned:
    """From calibration streams of one kind; `bars` as for `certified`."""
    return Tuned(
        certified([one.served for one in streams], bars),
        _best_cosines([one.static for one in streams]),
        _best_cosines([one.guarded for one in streams]),
    )


def _best_cosines(streams: Sequence[Mapping[float, tuple[int, int]]]) -> dict[float, float]:
    """For each level the cosine with the most right hits among those that keep it on these streams, without a margin:
    the choice an operator with labelled traffic would make."""
    best = {}
    for level in LEVELS:
        best[level], most = math.inf, 0
        for cosine in COSINES:
            right, wrong = (sum(one[cosine][at] for one in streams) for at in (0, 1))
            if right > most and wrong <= level * (right + wrong):
                best[level], most = cosine, right
    return best


@dataclass(frozen=True, slots=True)
class StreamResult:
    """One policy on one stream.

    Attributes:
        kind: of traffic.
        seed: of the stream.
        policy: its name.
        level: the accepted share of wrong hits that it was tuned to; None where it was not.
        right: hits by meaning with the right answer.
        wrong: those with a wrong one.
        exact: hits on the very text.
        requests: all.
        near_misses: by edit type, requests that were new near misses and those of them answered wrongly.
    """

    kind: Kind
    seed: int
    policy: str
    level: float | None
    right: int
    wrong: int
    exact: int
    requests: int
    near_misses: Mapping[str, tuple[int, int]]

    @property
    def violates(self) -> bool:
        """Whether more of the hits by meaning were wrong than was accepted."""
        return self.level is not None and self.wrong > self.level * (self.right + self.wrong)


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

    def calibrate(self, kind: Kind, seed: int) -> Calibration:
        """One stream of the calibration split."""
        items, texts, scores = self._made(kind, "calibrate", _CALIBRATION_SEED + seed)

        def served(cosine: float, guard: Guard | None) -> tuple[int, int]:
            total = replay(items, texts.embedded, Threshold(cosine, guard), candidates=CANDIDATES).total
            return total.right, total.wrong

        return Calibration(
            kind,
            seed,
            served_by_threshold(items, texts, scores, CANDIDATES),
            {cosine: served(cosine, None) for cosine in COSINES},
            {cosine: served(cosine, scores.veto) for cosine in COSINES},
        )

    def run(self, kind: Kind, seed: int, tuned: Tuned) -> list[StreamResult]:
        """Every policy on one stream of unseen intents."""
        items, texts, scores = self._made(kind, "test", seed)
        policies: list[tuple[str, float | None, Policy]] = [("exact only", None, Threshold(math.inf))]
        policies += [(f"cosine {cosine:.2f}", None, Threshold(cosine)) for cosine in (0.80, 0.90, 0.95, 0.97)]
        policies.append(("oracle", None, Oracle([items])))
        policies.append(("vCache", _VCACHE_LEVEL, VCache(_VCACHE_LEVEL, seed)))
        for level in LEVELS:
            certificate = self._judge.level(kind, level)
            policies += [
                ("best static", level, Threshold(tuned.static[level])),
                ("static + guards", level, Threshold(tuned.guarded[level], scores.veto)),
                ("ours", level, Judged(scores, math.inf if certificate is None else certificate.threshold)),
            ]
        played: dict[Hashable, Outcome] = {}
        made = []
        for name, accepted, policy in policies:
            # Two levels may have one threshold, and whatever serves nothing does the same.
            alike = policy.alike if isinstance(policy, (Threshold, Judged)) else name
            if alike not in played:
                played[alike] = replay(
                    items, texts.embedded, policy, candidates=CANDIDATES, keep_confirmed=name != "vCache"
                )
            made.append(_result(kind, seed, name, accepted, played[alike]))
        return made

    def _made(self, kind: Kind, split: Split, seed: int) -> tuple[list[Item], Texts, Scores]:
        items = stream(replace(TRAFFIC[kind], requests=self._requests), self._shares[split], seed)
        texts = encode((item.text for item in items), self._encoder, self._judge, self._folder)
        return items, texts, Scores(self._judge, texts.sketches, SemanticRule().near_similarity)


def _result(kind: Kind, seed: int, name: str, level: float | None, outcome: Outcome) -> StreamResult:
    total = outcome.total
    misses = {
        str(edit): (counts.requests, counts.wrong) for edit, counts in outcome.by_edit.items() if edit is not None
    }
    return StreamResult(kind, seed, name, level, total.right, total.wrong, total.exact, total.requests, misses)


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
    right = {group: sum(result.right for result in own) for group, own in groups.items()}
    made = []
    for (kind, policy, level), own in groups.items():
        wrong, hits = sum(result.wrong for result in own), sum(result.right + result.wrong for result in own)
        static = right.get((kind, "best static", level), 0)
        misses = [counts for result in own for counts in result.near_misses.values()]
        made.append(
            Row(
                kind,
                policy,
                level,
                Rate(sum(result.violates for result in own), len(own)),
                Rate(wrong, hits),
                right[kind, policy, level] / max(1, right[kind, "oracle", None]),
                right[kind, policy, level] / static if static else math.inf,
                Rate(sum(bad for _, bad in misses), sum(all_ for all_, _ in misses)),
            )
        )
    return made


def violation_bound(row: Row) -> float:
    """Lower 95 % bound on the share of streams in violation: above 5 % the promise is refuted."""
    return lower_bound(row.violations.errors, row.violations.trials, 0.05)
