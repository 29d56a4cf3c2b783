"""The rule on pairs written by hand: what is served of the paraphrases, and which near misses pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headgate.bench.cache.rules import encode
from headgate.cache.encoder import BertEncoder
from headgate.cache.judge import Judge
from headgate.cache.semantic import Close, SemanticRule, asked_of, choose

_FOLDER = Path(__file__).parent
File = Literal["development", "fresh", "second", "holdout", "independent", "final"]
FILES: Mapping[File, str] = {
    "development": "handwritten.txt",
    "fresh": "handwritten_fresh.txt",
    "second": "handwritten_second.txt",
    "holdout": "handwritten_holdout.txt",
    "independent": "handwritten_independent.txt",
    "final": "handwritten_final.txt",
}
"""By the first three guards and rule have been mended, and by what passed of the
fourth and fifth; nothing was changed by what the last one gave. The last two were written by somebody who had seen
neither guards nor pairs."""


@dataclass(frozen=True, slots=True)
class HandWritten:
    """How the rule does on pairs nobody generated.

    Attributes:
        by_kind: `paraphrase` or the kind of near miss, the pairs served and all.
        wrong: near misses that were served: kind, stored and asked.
        missed: paraphrases that were not, with the reason: a guard, `similarity` or `bound`.
    """

    by_kind: Mapping[str, tuple[int, int]]
    wrong: tuple[tuple[str, str, str], ...]
    missed: tuple[tuple[str, str, str], ...]


def hand_written_pairs(file: File) -> list[tuple[str, str, str]]:
    """Kind, stored and asked text of every pair."""
    lines = (_FOLDER / FILES[file]).read_text(encoding="utf-8").splitlines()
    return [(kind, first, second) for kind, first, second in (line.split("\t") for line in lines)]


def hand_written(judge: Judge, encoder: BertEncoder, rule: SemanticRule, file: File) -> HandWritten:
    """Every pair asked in the order it is written, from a cache that holds its first text only."""
    pairs = hand_written_pairs(file)
    texts = encode((text for _, *both in pairs for text in both), encoder, judge)
    packed = {text: b"" if sketch is None else judge.comparator.pack(sketch) for text, sketch in texts.sketches.items()}
    counts: dict[str, tuple[int, int]] = {}
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
        if kind == "paraphrase" and why:
            missed.append((stored, asked, why))
        elif kind != "paraphrase" and not why:
            wrong.append((kind, stored, asked))
    return HandWritten(counts, tuple(wrong), tuple(missed))
