"""The trial of the rule: streams of intents nobody has seen, every policy replayed on each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headgate.bench.cache.certify import LADDER, Served, certified
from headgate.bench.cache.intents import Share, Split, deal
from headgate.bench.cache.policies import Rate, replay
from headgate.bench.cache.rules import Scores, Texts, VCache, encode
from headgate.bench.cache.side_by_side import Cosine, Family, Guarded, Judged, Oracle, Tally, play, same_key, tally
from headgate.bench.cache.streams import TRAFFIC, Item, Kind, stream
from headgate.cache.binomial import lower_bound
from headgate.cache.encoder import BertEncoder
from headgate.cache.judge import LEVELS, Judge, Thresholds
from headgate.cache.semantic import CANDIDATES, SemanticRule

KINDS: tuple[Kind, ...] = ("natural", "heavy", "adversarial")
COSINES = tuple(round(0.995 - 0.04 * step, 3) for step in range(10))
"""Tried for the static baselines."""
_FIXED = (0.80, 0.90, 0.95, 0.97)
"""Played as they are."""
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
        families: list[Family] = [Judged(LADDER, scores), Cosine(COSINES), Guarded(COSINES, scores.vetoed)]
        tallies = [tally(items, column) for column in play(items, texts.embedded, families, CANDIDATES).T]
        ours, rest = tallies[: len(LADDER)], tallies[len(LADDER) :]
        counts = [(one.right, one.wrong) for one in rest]
        return Calibration(
            kind,
            seed,
            {threshold: one.by_intent for threshold, one in zip(LADDER, ours, strict=True)},
            dict(zip(COSINES, counts[: len(COSINES)], strict=True)),
            dict(zip(COSINES, counts[len(COSINES) :], strict=True)),
        )

    def run(self, kind: Kind, seed: int, tuned: Tuned) -> list[StreamResult]:
        """Every policy on one stream of unseen intents."""
        items, texts, scores = self._made(kind, "test", seed)
        certificates = [self._judge.level(kind, level) for level in LEVELS]
        ours = [math.inf if found is None else found.threshold for found in certificates]
        fixed = [math.inf, *_FIXED]
        families: list[Family] = [
            Cosine([*fixed, *(tuned.static[level] for level in LEVELS)]),
            Oracle(same_key(items, texts.embedded)),
            Guarded([tuned.guarded[level] for level in LEVELS], scores.vetoed),
            Judged(ours, scores),
        ]
        names: list[tuple[str, float | None]] = [("exact only", None)]
        names += [(f"cosine {cosine:.2f}", None) for cosine in _FIXED]
        names += [("best static", level) for level in LEVELS]
        names.append(("oracle", None))
        names += [(name, level) for name in ("static + guards", "ours") for level in LEVELS]
        columns = play(items, texts.embedded, families, CANDIDATES).T
        told = {name: tally(items, column) for name, column in zip(names, columns, strict=True)}
        told["vCache", _VCACHE_LEVEL] = _learnt(items, texts, seed)
        # In the order of the table: first what no level changes.
        levels = {level: at for at, level in enumerate(LEVELS, start=1)}
        ranked = sorted(told, key=lambda own: 0 if own[0] == "vCache" else levels.get(own[1] or 0.0, 0))
        return [_result(kind, seed, name, level, told[name, level], len(items)) for name, level in ranked]

    def _made(self, kind: Kind, split: Split, seed: int) -> tuple[list[Item], Texts, Scores]:
        items = stream(replace(TRAFFIC[kind], requests=self._requests), self._shares[split], seed)
        texts = encode((item.text for item in items), self._encoder, self._judge, self._folder)
        return items, texts, Scores(self._judge, texts, SemanticRule().near_similarity)


def _learnt(items: Sequence[Item], texts: Texts, seed: int) -> Tally:
    """vCache's rule, which learns from every request and so is played by itself."""
    policy = VCache(_VCACHE_LEVEL, seed)
    found = replay(items, texts.embedded, policy, candidates=CANDIDATES, keep_confirmed=False)
    by_edit = {edit: (own.requests, own.wrong) for edit, own in found.by_edit.items() if edit is not None}
    return Tally(found.total.right, found.total.wrong, found.total.exact, by_edit, {})


def _result(kind: Kind, seed: int, name: str, level: float | None, told: Tally, requests: int) -> StreamResult:
    misses = {str(edit): counts for edit, counts in told.by_edit.items()}
    return StreamResult(kind, seed, name, level, told.right, told.wrong, told.exact, requests, misses)


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
