"""What a request looks like from outside: its words, marks, length and form, as numbers a linear head can weigh."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from headgate.routing.instruction import instruction
from headgate.routing.lexical import Cues, words
from headgate.routing.types import RouteFeatures, Vector

_SUMS = re.compile(r"\d\s*[-+*/×÷^=<>]\s*\(?-?[\dx(]|\d\s*%|[a-z]\^\d|\d[xy]\b|√|∫|∑|[xy]\s*=|\bsqrt\(")
_CODE = re.compile(
    r"```|[{};]\s*$|\w\(\w*\)|=>|==|\bdef \w|\bimport \w|</?\w+>|\bSELECT\b|::|\w\.\w+\(|\bconst \w|//|\w_\w",
    re.MULTILINE,
)
# Begun only where a word begins: from each of its letters, one of thousands would be read to its end again.
_CHOICE = re.compile(
    r"\b\w+(?:,\s+[\w-]+)+,?\s+(?:or|oder|ou|o|of|или)\s+\w+"
    r"|(?<![\w-])-*\b[\w-]+\s+(?:or|vs\.?|oder|ou|или)\s+(?:not\s+)?[\w-]+"
    r"|\b\w+/\w+/\w+|\b\w+(?:,\s*[\w-]+){2,}\)|\[\w[\w /-]*(?:,\s*[\w/ -]+)+\]"
)
_FORM_WEIGHT, _CUE_WEIGHT, _SYSTEM_WEIGHT = 0.3, 0.15, 0.8
"""Of a request's form, of its cues and of the system's, against its words."""
_STARTS = 3
"""Words at the beginning, where a cue weighs otherwise than later."""
_MOST_WORDS = 120
_MOST_CHARS = 4000
_MARKS = 20


@dataclass(frozen=True, slots=True)
class Reading:
    """A request as a linear head sees it."""

    grams: frozenset[str]
    """Words and pairs of words of what is asked; with `^` the first ones, with `$` the last, with `S` the system's."""
    marks: Vector
    """`[width]`: form and cues, each 0 to about 1."""


class Reader:
    """Reads requests with a lexicon. Pure."""

    def __init__(self, cues: Cues) -> None:
        self._cues = cues
        each = np.array([_CUE_WEIGHT, _CUE_WEIGHT, _SYSTEM_WEIGHT], np.float32)
        self._weights = np.repeat(each, len(cues.names))
        self._json = cues.names.index("json")

    @property
    def width(self) -> int:
        """Length of `Reading.marks`."""
        return _MARKS + 3 * len(self._cues.names)

    def read(self, features: RouteFeatures) -> Reading:
        """The words and marks of a request."""
        asked = instruction(features.text)
        tokens = words(asked)[:_MOST_WORDS]
        grams = set(tokens)
        grams.update(f"{first} {second}" for first, second in pairwise(tokens))
        if tokens:
            grams.update((f"^{tokens[0]}", f"^{' '.join(tokens[:2])}", f"${tokens[-1]}"))
        count = len(self._cues.names)
        cues = np.zeros(3 * count, np.float32)
        for group, at in self._cues.find(asked, tokens):
            cues[group] = 1.0
            if at < _STARTS:
                cues[count + group] = 1.0
        if features.system:
            ordered = instruction(features.system)
            said = words(ordered)[:_MOST_WORDS]
            grams.update(said)
            grams.update(f"S{word}" for word in said)
            for group, _ in self._cues.find(ordered, said):
                cues[2 * count + group] = 1.0
        if features.format != "text":
            cues[2 * count + self._json] = 1.0
        marks = np.concatenate([_FORM_WEIGHT * surface(features, asked), self._weights * cues])
        return Reading(frozenset(grams), marks)


def surface(features: RouteFeatures, asked: str) -> Vector:
    """The form of a request: `[20]` numbers from 0 to about 1.

    Args:
        features: the request.
        asked: its `instruction`.
    """
    text = features.text
    if len(text) > _MOST_CHARS:
        text = f"{text[: _MOST_CHARS // 2]}\n{text[-_MOST_CHARS // 2 :]}"
    letters = sum(c.isalpha() for c in text) or 1
    foreign = 0 if text.isascii() else sum(c > "ɏ" and c.isalpha() for c in text)
    accents = 0 if text.isascii() else sum("\x7f" < c <= "ɏ" and c.isalpha() for c in text)
    length, core, end = len(text.split()), len(asked.split()), asked.rstrip()
    return np.array(
        [
            np.log1p(length) / 5,
            np.log1p(core) / 4,
            min(text.count("\n"), 10) / 10,
            min(4 * sum(c.isdigit() for c in text) / max(len(text), 1), 1.0),
            min(len(_SUMS.findall(asked)), 4) / 4,
            min(len(_CODE.findall(text)), 4) / 4,
            end.endswith(("?", "？")),
            "?" in asked,
            foreign > 0.3 * letters,
            accents > 0.01 * letters,
            end.endswith(":"),
            any(mark in text for mark in '"“«'),
            length <= 3,
            "{" in text,
            _CHOICE.search(asked) is not None,
            core < 0.7 * length,
            "!" in asked,
            bool(features.system),
            "```" in text,
            features.turns > 2,
        ],
        np.float32,
    )
