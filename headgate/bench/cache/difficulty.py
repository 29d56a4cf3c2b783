"""How hard the pairs are: cosines of paraphrases and of every kind of near miss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
