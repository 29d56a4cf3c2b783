"""The trial of the rule: streams of unseen intents, every policy replayed on each, and hand-written pairs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from headgate.bench.cache.intents import Share, Split, deal
from headgate.bench.cache.policies import GRID, Guard, Oracle, Outcome, Policy, Rate, Threshold, replay
from headgate.bench.cache.rules import Judged, Scores, Texts, VCache, certified, encode, would_be_hits
from headgate.bench.cache.streams import TRAFFIC, Item, Kind, stream
from headgate.cache.binomial import lower_bound
from headgate.cache.encoder import BertEncoder
from headgate.cache.guards import compare, reading_of
from headgate.cache.judge import LEVELS, Judge, Thresholds, veto

CANDIDATES = 8
KINDS: tuple[Kind, ...] = ("natural", "heavy", "adversarial")
_ALPHA = 0.05
_COSINES = GRID[::4]
_CALIBRATION_SEED = 100_000
_HAND_WRITTEN = Path(__file__).with_name("handwritten.txt")


@dataclass(frozen=True, slots=True)
class Tuned:
    """What the calibration streams of one kind decided: thresholds for our rule, a cosine a level for the baselines."""

    thresholds: Thresholds

    static: Mapping[float, float]
    guarded: Mapping[float, float]


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

    def __init__(self, judge: Judge, encoder: BertEncoder, requests: int, deal_seed: int = 0) -> None:
        """`requests` per stream; `deal_seed` must be the one the judge was fitted with."""
        self._judge = judge
        self._encoder = encoder
        self._shares: Mapping[Split, Share] = deal(deal_seed)
        self._requests = requests

    def _streams(self, kind: Kind, split: Split, seeds: Sequence[int]) -> list[list[Item]]:
        traffic = replace(TRAFFIC[kind], requests=self._requests)
        return [stream(traffic, self._shares[split], seed) for seed in seeds]

    def _encoded(self, streams: Sequence[Sequence[Item]]) -> tuple[Texts, Scores]:
        texts = encode((item.text for items in streams for item in items), self._encoder, self._judge)
        return texts, Scores(self._judge, texts.sketches)

    def calibrate(self, kind: Kind, streams: int) -> Tuned:
        """Thresholds and baselines from so many streams of the calibration split."""
        made = self._streams(kind, "calibrate", range(_CALIBRATION_SEED, _CALIBRATION_SEED + streams))
        texts, scores = self._encoded(made)
        found = [hit for items in made for hit in would_be_hits(items, texts, scores, CANDIDATES)]
        return Tuned(
            certified(found, _ALPHA), _best_cosines(made, texts, None), _best_cosines(made, texts, scores.veto)
        )

    def run(self, kind: Kind, seed: int, tuned: Tuned) -> list[StreamResult]:
        """Every policy on one stream of unseen intents."""
        (items,) = self._streams(kind, "test", [seed])
        texts, scores = self._encoded([items])
        policies: list[tuple[str, float | None, Policy]] = [("exact only", None, Threshold(math.inf))]
        policies += [(f"cosine {cosine:.2f}", None, Threshold(cosine)) for cosine in (0.80, 0.90, 0.95, 0.97)]
        policies.append(("oracle", None, Oracle([items])))
        for level in LEVELS:
            certificate = self._judge.level(kind, level)
            policies += [
                ("best static", level, Threshold(tuned.static[level])),
                ("static + guards", level, Threshold(tuned.guarded[level], scores.veto)),
                ("vCache", level, VCache(level, seed)),
                ("ours", level, Judged(scores, math.inf if certificate is None else certificate.threshold)),
            ]
        return [
            _result(
                kind,
                seed,
                name,
                level,
                replay(items, texts.embedded, policy, candidates=CANDIDATES, keep_confirmed=name != "vCache"),
            )
            for name, level, policy in policies
        ]


def _best_cosines(streams: Sequence[Sequence[Item]], texts: Texts, guard: Guard | None) -> dict[float, float]:
    """For each level what `policies.best_threshold` would find, from one replay for each cosine."""
    outcomes = []
    for cosine in _COSINES:
        parts = (replay(items, texts.embedded, Threshold(cosine, guard), candidates=CANDIDATES) for items in streams)
        outcomes.append((cosine, sum(parts, Outcome()).total))
    best = {}
    for level in LEVELS:
        fitting = [(total.right, cosine) for cosine, total in outcomes if total.per_hit.share <= level and total.right]
        best[level] = max(fitting)[1] if fitting else math.inf
    return best


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


@dataclass(frozen=True, slots=True)
class HandWritten:
    """How the rule does on pairs nobody generated.

    Attributes:
        by_kind: `paraphrase` or the kind of near miss, the pairs served and all.
        wrong: near misses that were served.
        missed: paraphrases that were not, with the reason: a guard or `bound`.
    """

    by_kind: Mapping[str, tuple[int, int]]
    wrong: tuple[tuple[str, str], ...]
    missed: tuple[tuple[str, str, str], ...]


def hand_written_pairs() -> list[tuple[str, str, str]]:
    """Kind, stored and asked text of every pair."""
    lines = _HAND_WRITTEN.read_text(encoding="utf-8").splitlines()
    return [(kind, first, second) for kind, first, second in (line.split("\t") for line in lines)]


def hand_written(judge: Judge, encoder: BertEncoder, threshold: float, near_similarity: float) -> HandWritten:
    """Every pair asked in the order it is written, from a cache that holds its first text."""
    pairs = hand_written_pairs()
    texts = encode((text for _, *both in pairs for text in both), encoder, judge)
    counts: dict[str, tuple[int, int]] = {}
    wrong, missed = [], []
    for kind, stored, asked in pairs:
        rows_ = [texts.embedded.rows[text] for text in (stored, asked)]
        cosine = min(1.0, float(texts.embedded.vectors[rows_[0]] @ texts.embedded.vectors[rows_[1]]))
        seen = compare(reading_of(stored), reading_of(asked))
        sketches = [texts.sketches[text] for text in (asked, stored)]
        why = veto(seen) or ("similarity" if cosine < near_similarity else None)
        if why is None and (sketches[0] is None or sketches[1] is None):
            why = "length"
        if why is None and sketches[0] is not None and sketches[1] is not None:
            odds = judge.log_odds(sketches[0], [sketches[1]], [cosine], [seen])[0]
            why = None if odds >= threshold else "bound"
        served, all_ = counts.get(kind, (0, 0))
        counts[kind] = (served + (why is None), all_ + 1)
        if kind == "paraphrase" and why is not None:
            missed.append((stored, asked, why))
        elif kind != "paraphrase" and why is None:
            wrong.append((stored, asked))
    return HandWritten(counts, tuple(wrong), tuple(missed))


def append(path: Path, results: Sequence[StreamResult]) -> None:
    """One JSON line per result, so that a run can be cut off and go on."""
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(asdict(result)) + "\n" for result in results)


def read(path: Path) -> list[StreamResult]:
    """What `append` wrote; nothing without the file."""
    if not path.is_file():
        return []
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for one in found:
        one["near_misses"] = {edit: (counts[0], counts[1]) for edit, counts in one["near_misses"].items()}
    return [StreamResult(**one) for one in found]
