"""Streams replayed against a policy, without HTTP: which answers it serves, and how many of them are wrong."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headgate.bench.cache.edits import Differences
from headgate.bench.cache.slots import EditType
from headgate.bench.cache.streams import Item
from headgate.cache.binomial import lower_bound, upper_bound
from headgate.cache.embedder import Embedder

Guard = Callable[[str, str], str | None]
"""Says why the answer to the first text may not be served for the second, or None if it may."""


@dataclass(frozen=True, slots=True)
class Query:
    """A request as a policy sees it; `row` is the text's row in `Embedded.vectors`."""

    tenant: str
    text: str
    row: int
    time: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """A stored question close to the query.

    Attributes:
        entry: its number, never given twice in a replay.
        text: the question as it was stored.
        row: the text's row in `Embedded.vectors`.
        similarity: cosine of the two texts' vectors.
    """

    entry: int
    text: str
    row: int
    similarity: float


class Policy(Protocol):
    """Decides which stored answer is served, and may learn from what comes out."""

    def offer(self, query: Query, candidates: Sequence[Candidate]) -> Candidate | None:
        """The candidate whose answer is served, or None for the model. The closest candidate comes first."""
        ...

    def feedback(self, query: Query, candidate: Candidate, *, right: bool, served: bool) -> None:
        """A label: whether the candidate's answer is right for the query.

        Comes for a served candidate if it is audited, and for the closest one if none was served and the model's answer
        was compared with it.
        """
        ...


@dataclass(frozen=True, slots=True)
class Embedded:
    """The vectors of all texts of some streams.

    Attributes:
        rows: row by text.
        vectors: `[texts, dim]`, float32, unit norm.
    """

    rows: Mapping[str, int]
    vectors: NDArray[np.float32]


async def embed(texts: Iterable[str], embedder: Embedder) -> Embedded:
    """Every text's vector once."""
    distinct = list(dict.fromkeys(texts))
    vectors = await asyncio.gather(*(embedder.embed(text) for text in distinct))
    return Embedded({text: row for row, text in enumerate(distinct)}, np.stack(vectors))


@dataclass(frozen=True, slots=True)
class Labels:
    """How many requests are labelled, as shares from 0 to 1.

    Attributes:
        served: share of the served answers that are audited.
        unserved: share of the requests that went to the model although there was a candidate, whose answer is compared.
        flipped: share of the labels that are wrong.
    """

    served: float = 0.0
    unserved: float = 1.0
    flipped: float = 0.0

    def __post_init__(self) -> None:
        for name in ("served", "unserved", "flipped"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} is {getattr(self, name)}; 0 to 1 is accepted")


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of some requests. Those with a text that was stored literally are `exact` and not looked at further.

    Attributes:
        requests: all of them.
        possible: those whose answer was stored for the tenant, `exact` included: what a perfect cache would serve.
        exact: served because the tenant had stored the very text.
        right: served by the policy with an answer to an equivalent question.
        wrong: served by the policy with an answer to another question.
    """

    requests: int = 0
    possible: int = 0
    exact: int = 0
    right: int = 0
    wrong: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.requests + other.requests,
            self.possible + other.possible,
            self.exact + other.exact,
            self.right + other.right,
            self.wrong + other.wrong,
        )

    @property
    def missed(self) -> int:
        """Requests that went to the model."""
        return self.requests - self.exact - self.right - self.wrong

    @property
    def per_hit(self) -> Rate:
        """Wrong answers per answer that the policy served; exact hits, which are always right, are left out."""
        return Rate(self.wrong, self.right + self.wrong)


@dataclass(frozen=True, slots=True)
class Rate:
    """So many errors in so many trials."""

    errors: int
    trials: int

    @property
    def share(self) -> float:
        """Errors per trial, 0.0 without trials."""
        return self.errors / self.trials if self.trials else 0.0

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """The two-sided Clopper-Pearson interval, as if trials were independent; (0, 1) without trials."""
        alpha = (1.0 - confidence) / 2
        return lower_bound(self.errors, self.trials, alpha), upper_bound(self.errors, self.trials, alpha)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a policy did with one or several streams.

    Attributes:
        total: over all requests.
        by_edit: by `Item.edit`; what is no new near miss is under None.
        wrong_by_edit: wrong answers by the one edit between the question served and the question asked, None where they
            are further apart. It also finds a paraphrase of an old question served with the answer to its near miss.
    """

    total: Counts = field(default_factory=Counts)
    by_edit: Mapping[EditType | None, Counts] = field(default_factory=dict)
    wrong_by_edit: Mapping[EditType | None, int] = field(default_factory=dict)

    def __add__(self, other: Outcome) -> Outcome:
        by_edit = dict(self.by_edit)
        for edit, counts in other.by_edit.items():
            by_edit[edit] = by_edit.get(edit, Counts()) + counts
        wrong = Counter(self.wrong_by_edit)
        wrong.update(other.wrong_by_edit)
        return Outcome(self.total + other.total, by_edit, dict(wrong))


def replay(
    items: Sequence[Item],
    embedded: Embedded,
    policy: Policy,
    *,
    labels: Labels = Labels(),
    candidates: int = 3,
    keep_confirmed: bool = True,
    seed: int = 0,
) -> Outcome:
    """Serves a stream from an empty cache, every tenant from what that tenant had stored.

    A request whose very text is stored is an exact hit; else the policy is offered the closest stored questions. What
    it does not serve is answered by the model and stored.

    Args:
        items: in order of time.
        embedded: holds every text of the items.
        policy: fresh, or as an earlier replay left it.
        labels: which requests the policy gets a label for; `Labels()` by default.
        candidates: how many of the closest stored questions are offered.
        keep_confirmed: whether the text of a labelled request is offered later on although the closest candidate's
            answer was right for it; vCache's rule says no.
        seed: of the draws that decide which requests are labelled.
    """
    labels = labels or Labels()
    rng = random.Random(f"{seed}/labels")
    differences = Differences()
    stores: dict[str, _Store] = {}
    keys: list[str] = []
    by_edit: dict[EditType | None, Counts] = {}
    wrong_by_edit: Counter[EditType | None] = Counter()
    for item in items:
        store = stores.setdefault(item.tenant, _Store(embedded))
        possible = item.key in store.keys
        if item.text in store.exact:
            counts = Counts(1, 1, exact=1)
        else:
            query = Query(item.tenant, item.text, embedded.rows[item.text], item.time)
            close = store.nearest(query.row, candidates)
            served = policy.offer(query, close)
            judged = served or (close[0] if close else None)
            right = judged is not None and keys[judged.entry] == item.key
            share = labels.unserved if served is None else labels.served
            labelled = judged is not None and rng.random() < share
            label = right != (rng.random() < labels.flipped)
            if served is None:
                offered = keep_confirmed or not (labelled and label)
                store.add(item, query.row, entry=len(keys), offered=offered)
                keys.append(item.key)
                counts = Counts(1, possible)
            else:
                counts = Counts(1, possible, right=right, wrong=not right)
                if not right:
                    wrong_by_edit[differences.between(keys[served.entry], item.key)] += 1
            if judged is not None and labelled:
                policy.feedback(query, judged, right=label, served=served is not None)
        by_edit[item.edit] = by_edit.get(item.edit, Counts()) + counts
    return Outcome(sum(by_edit.values(), Counts()), by_edit, dict(wrong_by_edit))


class _Store:
    """What one tenant has stored."""

    def __init__(self, embedded: Embedded) -> None:
        self._embedded = embedded
        self._vectors = np.empty((64, embedded.vectors.shape[1]), dtype=np.float32)
        self._offered: list[tuple[int, str, int]] = []
        self.exact: set[str] = set()
        self.keys: set[str] = set()

    def add(self, item: Item, row: int, *, entry: int, offered: bool) -> None:
        self.exact.add(item.text)
        self.keys.add(item.key)
        if not offered:
            return
        size = len(self._offered)
        if size == len(self._vectors):
            self._vectors = np.concatenate([self._vectors, np.empty_like(self._vectors)])
        self._vectors[size] = self._embedded.vectors[row]
        self._offered.append((entry, item.text, row))

    def nearest(self, asked: int, count: int) -> list[Candidate]:
        cosines = self._vectors[: len(self._offered)] @ self._embedded.vectors[asked]
        count = min(count, len(cosines))
        if count == 0:
            return []
        best = np.argpartition(-cosines, count - 1)[:count]
        best = best[np.argsort(-cosines[best], kind="stable")]
        found = ((*self._offered[at], min(1.0, float(cosines[at]))) for at in best)
        return [Candidate(entry, text, row, similarity) for entry, text, row, similarity in found]


class Threshold:
    """Serves the closest candidate from a cosine on that a guard, if there is one, lets through. Learns nothing."""

    def __init__(self, similarity: float, guard: Guard | None = None) -> None:
        """`similarity` is the least cosine; infinity serves nothing, so that only exact hits are left."""
        self._similarity = similarity
        self._guard = guard
        self.alike = ("similarity", similarity, guard is not None) if similarity < math.inf else ("nothing",)
        """Equal for policies that serve alike, given one guard."""

    def offer(self, query: Query, candidates: Sequence[Candidate]) -> Candidate | None:
        """The closest candidate that passes."""
        for candidate in candidates:
            if candidate.similarity < self._similarity:
                return None
            if self._guard is None or self._guard(candidate.text, query.text) is None:
                return candidate
        return None

    def feedback(self, query: Query, candidate: Candidate, *, right: bool, served: bool) -> None:
        """Nothing is learnt from a label."""


class Oracle:
    """Serves the closest candidate that is right: the most that any policy can do with the candidates it is offered."""

    def __init__(self, streams: Iterable[Sequence[Item]]) -> None:
        """Knows the keys of these streams' texts.

        Raises:
            ValueError: a text has another key in another of the streams.
        """
        self._keys: dict[str, str] = {}
        for item in itertools.chain.from_iterable(streams):
            if self._keys.setdefault(item.text, item.key) != item.key:
                raise ValueError(
                    f"{item.text!r} has the keys {self._keys[item.text]!r} and {item.key!r}; one is accepted"
                )

    def offer(self, query: Query, candidates: Sequence[Candidate]) -> Candidate | None:
        """The closest candidate with the query's key."""
        key = self._keys[query.text]
        return next((candidate for candidate in candidates if self._keys[candidate.text] == key), None)

    def feedback(self, query: Query, candidate: Candidate, *, right: bool, served: bool) -> None:
        """Nothing is learnt from a label."""


GRID = tuple(round(0.995 - 0.005 * step, 3) for step in range(80))
"""Cosines tried for the best static threshold, from 0.995 down to 0.6."""


def best_threshold(
    streams: Sequence[Sequence[Item]],
    embedded: Embedded,
    max_error: float,
    *,
    guard: Guard | None = None,
    grid: Sequence[float] = GRID,
) -> float:
    """The cosine with the most right hits among those whose errors per hit over all streams are at most `max_error`.

    Infinity, which serves nothing, if there is none. The error is the one realised on these streams, without a margin:
    the choice an operator with labelled traffic would make.

    Raises:
        ValueError: `max_error` is not from 0 to 1.
    """
    if not 0.0 <= max_error <= 1.0:
        raise ValueError(f"max_error is {max_error}; 0 to 1 is accepted")
    best, most = math.inf, 0
    for similarity in grid:
        outcome = Outcome()
        for items in streams:
            outcome += replay(items, embedded, Threshold(similarity, guard))
        if outcome.total.per_hit.share <= max_error and outcome.total.right > most:
            best, most = similarity, outcome.total.right
    return best


def baselines(
    calibration: Sequence[Sequence[Item]],
    tested: Sequence[Sequence[Item]],
    embedded: Embedded,
    max_error: float,
    guard: Guard,
) -> dict[str, Policy]:
    """The policies that every other one is compared with, by name.

    Args:
        calibration: streams that the tuned ones are tuned on.
        tested: streams that the oracle knows.
        embedded: holds the texts of the calibration streams.
        max_error: accepted errors per hit for the tuned ones.
        guard: for static + guards, which is tuned with it.
    """
    fixed = {f"cosine {similarity:.2f}": Threshold(similarity) for similarity in (0.80, 0.90, 0.95, 0.97)}
    return {
        "exact only": Threshold(math.inf),
        **fixed,
        "best static": Threshold(best_threshold(calibration, embedded, max_error)),
        "static + guards": Threshold(best_threshold(calibration, embedded, max_error, guard=guard), guard),
        "oracle": Oracle(tested),
    }
