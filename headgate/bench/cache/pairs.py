"""The rule on pairs written by hand: what is served of the paraphrases, and which near misses pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from headgate.bench.cache.rules import encode
from headgate.bench.cache.written import LATER, written_groups
from headgate.cache.embedding.encoder import BertEncoder
from headgate.cache.judge import Judge
from headgate.cache.semantic import Close, SemanticRule, asked_of, choose

Vectors = NDArray[np.float32]

_FOLDER = Path(__file__).parent
File = Literal[
    "development",
    "fresh",
    "second",
    "holdout",
    "independent",
    "final",
    "wide",
    "sealed",
    "unseen",
    "blind",
    "apart",
    "probe",
]
FILES: Mapping[File, str] = {
    "development": "handwritten.txt",
    "fresh": "handwritten_fresh.txt",
    "second": "handwritten_second.txt",
    "holdout": "handwritten_holdout.txt",
    "independent": "handwritten_independent.txt",
    "final": "handwritten_final.txt",
    "wide": "handwritten_wide.txt",
    "sealed": "handwritten_sealed.txt",
    "unseen": "handwritten_unseen.txt",
    "blind": "handwritten_blind.txt",
    "apart": "handwritten_apart.txt",
    "probe": "handwritten_probe.txt",
}
"""By what the others gave guards and rule have been mended; by what `unseen` gave only after it had been counted, and
by the kinds of what passed. Nothing was changed by what `blind` gave, which somebody wrote who had read the guards but
no result, nor by what `apart` gave, which was written before guards were mended by what streams let through, and was
counted before and after. `probe` is of domains that no intent is of; its writer had seen some guards and no written
group; by the one near miss of it that passed a guard was mended after it had been counted. The five before these three
were written by somebody who had seen neither guards nor pairs."""

FAMILIAR = 0.85
"""Cosine with a text that the rule was fitted on from which a pair is left out of what is new to it."""


@dataclass(frozen=True, slots=True)
class HandWritten:
    """How the rule does on pairs nobody generated.

    Attributes:
        by_kind: `paraphrase` or the kind of near miss, the pairs served and all.
        wrong: near misses that were served: kind, stored and asked.
        missed: paraphrases that were not, with the reason: a guard, `similarity` or `bound`.
        new: the same counts for all paraphrases and all near misses of which neither text is like one of those that the
            rule was fitted on.
    """

    by_kind: Mapping[str, tuple[int, int]]
    wrong: tuple[tuple[str, str, str], ...]
    missed: tuple[tuple[str, str, str], ...]
    new: Mapping[str, tuple[int, int]]


def hand_written_pairs(file: File) -> list[tuple[str, str, str]]:
    """Kind, stored and asked text of every pair."""
    lines = (_FOLDER / FILES[file]).read_text(encoding="utf-8").splitlines()
    return [(kind, first, second) for kind, first, second in (line.split("\t") for line in lines)]


def later_pairs() -> list[tuple[str, str, str]]:
    """The same of the groups written later: every question with its other wordings and with its near misses."""
    made = []
    for group in written_groups(LATER):
        question, *others = group.same
        made += [("paraphrase", question, other) for other in others]
        made += [(kind, question, near) for kind, near in group.near]
    return made


def fitted_on(encoder: BertEncoder) -> Vectors:
    """Vectors `[texts, dim]` of the written texts that the rule was fitted on."""
    texts = sorted(
        (text for group in written_groups() for text in (*group.same, *(near for _, near in group.near))), key=len
    )
    batches = [encoder.encode(texts[start : start + 64]) for start in range(0, len(texts), 64)]
    return np.stack([seen.vector for batch in batches for seen in batch])


def hand_written(
    judge: Judge, encoder: BertEncoder, rule: SemanticRule, pairs: Sequence[tuple[str, str, str]], fitted: Vectors
) -> HandWritten:
    """Every pair asked in the order it is written, from a cache that holds its first text only.

    `pairs` as `hand_written_pairs` or `later_pairs` gives them, `fitted` as `fitted_on` does.
    """
    texts = encode((text for _, *both in pairs for text in both), encoder, judge)
    packed = {text: b"" if sketch is None else judge.comparator.pack(sketch) for text, sketch in texts.sketches.items()}
    familiar = (texts.embedded.vectors @ fitted.T).max(axis=1) >= FAMILIAR
    counts: dict[str, tuple[int, int]] = {}
    new = {"paraphrase": (0, 0), "near miss": (0, 0)}
    wrong, missed = [], []
    for kind, stored, asked in pairs:
        rows = [texts.embedded.rows[text] for text in (stored, asked)]
        cosine = min(1.0, float(texts.embedded.vectors[rows[0]] @ texts.embedded.vectors[rows[1]]))
        why = "similarity"
        if cosine >= rule.near_similarity:
            close = Close(stored, cosine, packed[stored], None)
            why = choose(asked_of(asked, rule, judge), packed[asked], [close], rule, judge, None).reason
        served, all_ = counts.get(kind, (0, 0))
        counts[kind] = (served + (not why), all_ + 1)
        if not familiar[rows].any():
            name = kind if kind == "paraphrase" else "near miss"
            new[name] = (new[name][0] + (not why), new[name][1] + 1)
        if kind == "paraphrase" and why:
            missed.append((stored, asked, why))
        elif kind != "paraphrase" and not why:
            wrong.append((kind, stored, asked))
    return HandWritten(counts, tuple(wrong), tuple(missed), new)
