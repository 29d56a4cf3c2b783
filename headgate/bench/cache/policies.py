"""Streams replayed against a policy, without HTTP: which answers it serves, and how many of them are wrong.

Policies that learn nothing are played by `side_by_side`, which counts the same in less time.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headgate.bench.cache.edits import Differences
from headgate.bench.cache.slots import EditType
from headgate.bench.cache.streams import Item
from headgate.cache.binomial import lower_bound, upper_bound


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


@dataclass(frozen=True)
class Embedded:
    """The vectors of all texts of some streams.

    Attributes:
        rows: row by text.
        vectors: `[texts, dim]`, float32, unit norm.
    """

    rows: Mapping[str, int]
    vectors: NDArray[np.float32]

    @cached_property
    def cosines(self) -> NDArray[np.float32]:
        """`[texts, texts]`, of all pairs."""
        found: NDArray[np.float32] = np.minimum(self.vectors @ self.vectors.T, np.float32(1.0))
        return found

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """For each row all rows, itself included, the closest first: every policy and threshold asks for them."""
        return np.argsort(-self.cosines, axis=1, kind="stable")


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
        self._offered: dict[int, tuple[int, str]] = {}
        self.exact: set[str] = set()
        self.keys: set[str] = set()

    def add(self, item: Item, row: int, *, entry: int, offered: bool) -> None:
        self.exact.add(item.text)
        self.keys.add(item.key)
        if offered:
            self._offered[row] = entry, item.text

    def nearest(self, asked: int, count: int) -> list[Candidate]:
        cosines = self._embedded.cosines[asked]
        stored = (
            Candidate(*self._offered[row], row, float(cosines[row]))
            for row in self._embedded.order[asked].tolist()
            if row in self._offered
        )
        return list(itertools.islice(stored, min(count, len(self._offered))))
