"""How hard the pairs are: cosines of paraphrases and of every kind of near miss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from headgate.bench.cache.edits import Pair
from headgate.bench.cache.policies import Embedded

PARAPHRASE = "paraphrase"


@dataclass(frozen=True, slots=True)
class Cosines:
    """The cosines of one kind of pair.

    Attributes:
        kind: `PARAPHRASE` or the edit type.
        same_words: whether both texts follow one wording.
        values: `[pairs]`, float32.
    """

    kind: str
    same_words: bool
    values: NDArray[np.float32]


def cosines(pairs: Sequence[Pair], embedded: Embedded) -> list[Cosines]:
    """Cosines by kind of pair: paraphrases first, then near misses in the same words, then in other words."""
    groups: dict[tuple[str, bool], list[float]] = {}
    for pair in pairs:
        first, second = (embedded.vectors[embedded.rows[text]] for text in (pair.first, pair.second))
        groups.setdefault((pair.edit or PARAPHRASE, pair.same_words), []).append(float(first @ second))
    ranked = sorted(groups, key=lambda group: (group[0] != PARAPHRASE, not group[1], group[0]))
    return [Cosines(kind, same, np.array(groups[kind, same], dtype=np.float32)) for kind, same in ranked]


def print_cosines(console: Console, found: Sequence[Cosines]) -> None:
    """Prints quantiles by kind, and the share of near misses that look closer than the median paraphrase."""
    paraphrases = np.concatenate([group.values for group in found if group.kind == PARAPHRASE])
    table = Table("kind", "words", "pairs", "p10", "median", "p90", ">= 0.90", "above median paraphrase")
    for group in found:
        quantiles = (f"{value:.3f}" for value in np.quantile(group.values, (0.1, 0.5, 0.9)))
        shares = (np.mean(group.values >= 0.9), np.mean(group.values > np.median(paraphrases)))
        words = "same" if group.same_words else "other"
        table.add_row(group.kind, words, str(len(group.values)), *quantiles, *(f"{100 * s:.0f} %" for s in shares))
    console.print(table)
