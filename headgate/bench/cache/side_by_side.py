"""Policies played through a stream side by side: every threshold from an empty cache of its own, without HTTP.

What a replay takes most of its time for is what all policies that learn nothing share: which texts are closest, and
what the rule says of a pair. Here a request is looked up once for all, and a pair is judged once at most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headgate.bench.cache.slots import EditType
from headgate.bench.cache.streams import Item

Bools = NDArray[np.bool_]
Floats = NDArray[np.float32]
Rows = NDArray[np.int64]

MISSED, EXACT, RIGHT, WRONG = range(4)
"""What becomes of a request: the model answers it, its very text was stored, or a hit by meaning is right or wrong."""
_NOTHING = -1


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


class Family(Protocol):
    """Policies that differ in their threshold only: a column each."""

    @property
    def columns(self) -> int:
        """How many there are."""
        ...

    def choose(self, asked: int, rows: Rows, cosines: Floats, offered: Bools) -> Rows:
        """Which text's answer each of them serves for the text in a row: its place among `rows`, or -1 for none.

        Args:
            asked: row of the text asked.
            rows: `[texts]`, of the stored texts that any policy may serve, the closest first.
            cosines: `[texts]`, of those and the text asked.
            offered: `[texts, columns]`: which of them each policy has stored among its closest.
        """
        ...


class Cosine:
    """Serves the closest text from a cosine on; infinity serves nothing, so that only exact hits are left."""

    def __init__(self, thresholds: Sequence[float]) -> None:
        self._thresholds = np.array(thresholds)
        self.columns = len(thresholds)

    def choose(self, asked: int, rows: Rows, cosines: Floats, offered: Bools) -> Rows:  # noqa: ARG002
        """The closest that is offered."""
        first = offered.argmax(axis=0)
        served = offered.any(axis=0) & (cosines[first] >= self._thresholds)
        return np.where(served, first, _NOTHING)


class Guarded:
    """Serves the closest text from a cosine on that a guard lets through."""

    def __init__(self, thresholds: Sequence[float], vetoed: Callable[[int, int], bool]) -> None:
        """`vetoed` is asked for the row of a stored text and that of the text asked, only where it decides."""
        self._thresholds = np.array(thresholds)
        self._vetoed = vetoed
        self.columns = len(thresholds)

    def choose(self, asked: int, rows: Rows, cosines: Floats, offered: Bools) -> Rows:
        """The first that passes."""
        chosen = np.full(self.columns, _NOTHING)
        may = offered & (cosines[:, None] >= self._thresholds)
        for at in np.flatnonzero(may.any(axis=1)).tolist():
            left = may[at] & (chosen == _NOTHING)
            if left.any() and not self._vetoed(int(rows[at]), asked):
                chosen[left] = at
        return chosen


class Judged:
    """Serves the text with the highest score, from a score on, unless another that it is told apart from is close."""

    def __init__(
        self,
        thresholds: Sequence[float],
        scores: Callable[[int, Rows, Floats], Sequence[float]],
        apart: Callable[[int, int], bool],
        margin: float,
    ) -> None:
        """What a policy does for each threshold.

        Args:
            thresholds: the scores from which on it serves.
            scores: gives those of some rows, with their cosines, for the row of the text asked; minus infinity for what
                may not be served.
            apart: whether the texts of two rows are told apart; asked only where it decides.
            margin: nothing is served where a text told apart from the best is within so much of its score.
        """
        self._thresholds = np.array(thresholds)
        self._scores = scores
        self._apart = apart
        self._margin = margin
        self.columns = len(thresholds)

    def choose(self, asked: int, rows: Rows, cosines: Floats, offered: Bools) -> Rows:
        """The best that is offered; of equals the closest."""
        wanted = np.flatnonzero(offered.any(axis=1))
        if not len(wanted):
            return np.full(self.columns, _NOTHING)
        scores = np.array(self._scores(asked, rows[wanted], cosines[wanted]))
        worth = np.where(offered[wanted], scores[:, None], -math.inf)
        best = worth.argmax(axis=0)
        served = np.take_along_axis(worth, best[None], axis=0)[0] >= self._thresholds
        for first in np.unique(best[served]).tolist():
            own = served & (best == first)
            for other in np.flatnonzero(scores >= scores[first] - self._margin).tolist():
                both = own & offered[wanted[other]]
                if other != first and both.any() and self._apart(int(rows[wanted[first]]), int(rows[wanted[other]])):
                    served[both] = False
        return np.where(served, wanted[best], _NOTHING)


class Oracle:
    """Serves the closest text that is right: the most that any policy can do with what it is offered."""

    columns = 1

    def __init__(self, right: Callable[[int, Rows], Bools]) -> None:
        """`right` says of which rows one answer serves the text asked too."""
        self._right = right

    def choose(self, asked: int, rows: Rows, cosines: Floats, offered: Bools) -> Rows:  # noqa: ARG002
        """The first right one."""
        right = offered & self._right(asked, rows)[:, None]
        return np.where(right.any(axis=0), right.argmax(axis=0), _NOTHING)


@dataclass(frozen=True, slots=True)
class Tally:
    """What one policy did with a stream.

    Attributes:
        right: hits by meaning with the right answer.
        wrong: those with a wrong one.
        exact: hits on the very text.
        by_edit: by edit type, requests that were new near misses, and those of them answered wrongly.
        by_intent: right and wrong hits by meaning by the intent of the request, where there are any.
    """

    right: int
    wrong: int
    exact: int
    by_edit: Mapping[EditType, tuple[int, int]]
    by_intent: Mapping[str, tuple[int, int]]


def same_key(items: Sequence[Item], embedded: Embedded) -> Callable[[int, Rows], Bools]:
    """Which rows have the key of a row, for texts of the items."""
    numbers: dict[str, int] = {}
    of_row = np.zeros(len(embedded.vectors), np.int64)
    for item in items:
        of_row[embedded.rows[item.text]] = numbers.setdefault(item.key, len(numbers))

    def right(asked: int, rows: Rows) -> Bools:
        alike: Bools = of_row[rows] == of_row[asked]
        return alike

    return right


def play(items: Sequence[Item], embedded: Embedded, families: Sequence[Family], candidates: int) -> NDArray[np.int8]:
    """What becomes of every request under every policy: `[requests, columns]`, the columns family by family.

    Every policy begins with an empty cache and serves a tenant from what that tenant has stored under it: what it does
    not serve is answered by the model and stored. A request whose very text is stored is an exact hit; else the policy
    is offered so many of the closest stored texts.
    """
    right = same_key(items, embedded)
    ends = np.cumsum([family.columns for family in families]).tolist()
    parts = [slice(end - family.columns, end) for family, end in zip(families, ends, strict=True)]
    made = np.full((len(items), ends[-1]), MISSED, np.int8)
    stored: dict[str, Bools] = {}
    for at, item in enumerate(items):
        asked = embedded.rows[item.text]
        own = stored.setdefault(item.tenant, np.zeros((len(embedded.vectors), ends[-1]), np.bool_))
        exact: Bools = own[asked].copy()
        if not exact.all():
            order = embedded.order[asked]
            rows = order[_in_any(own)[order]]
            offered: Bools = own[rows] & ~exact
            offered &= np.cumsum(offered, axis=0) <= candidates
            some = _in_any(offered)
            rows, offered = rows[some], offered[some]
            cosines = embedded.cosines[asked, rows]
            for family, part in zip(families, parts, strict=True) if len(rows) else ():
                chosen = family.choose(asked, rows, cosines, offered[:, part])
                hits = np.where(right(asked, rows[chosen]), RIGHT, WRONG)
                made[at, part] = np.where(chosen == _NOTHING, MISSED, hits)
            own[asked] |= made[at] == MISSED
        made[at, exact] = EXACT
    return made


def _in_any(columns: Bools) -> Bools:
    found: Bools = np.logical_or.reduce(columns, axis=1)
    return found


def tally(items: Sequence[Item], outcomes: NDArray[np.int8]) -> Tally:
    """Counts one column `[requests]` of what `play` gives."""
    by_edit: dict[EditType, tuple[int, int]] = {}
    by_intent: dict[str, tuple[int, int]] = {}
    for item, outcome in zip(items, outcomes.tolist(), strict=True):
        if item.edit is not None:
            trials, errors = by_edit.get(item.edit, (0, 0))
            by_edit[item.edit] = trials + 1, errors + (outcome == WRONG)
        if outcome in (RIGHT, WRONG):
            intent = item.key.partition("|")[0]
            good, bad = by_intent.get(intent, (0, 0))
            by_intent[intent] = good + (outcome == RIGHT), bad + (outcome == WRONG)
    right, wrong, exact = (int((outcomes == kind).sum()) for kind in (RIGHT, WRONG, EXACT))
    return Tally(right, wrong, exact, by_edit, by_intent)
