"""Words that hint at what is asked for, in a dozen languages: read from data, looked up in microseconds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files

import yaml

_WORDS = re.compile(r"c\+\+|[cf]#|[^\W\d]+(?:\.js)?(?:'[^\W\d]+)*|\d+")
_ELISION = re.compile(r"\b(l|d|j|qu|n|s|c|m|t|un|dell|all)'(?=\w)")
_UNSPACED = re.compile("[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_LONGEST_PHRASE = 4
_MOST_CHARS = 100_000
_CODE = re.compile(
    r"```|^[ \t]*(?:def \w+\(|class \w+[(:]|#include\b|import \w+$|public (?:static|class)\b)", re.MULTILINE
)


def has_code(text: str) -> bool:
    """Whether a text carries source code, not only talk of it; of a long one the first 100,000 characters are read."""
    return _CODE.search(text, 0, _MOST_CHARS) is not None


def words(text: str) -> list[str]:
    """The words of a text in lower case, numbers as `0`; scripts without spaces are cut into pairs of characters."""
    found: list[str] = []
    for word in _WORDS.findall(_ELISION.sub(r"\1 ", text.lower().replace("’", "'"))):
        if word[0].isdigit():
            found.append("0")
        elif len(word) > 1 and _UNSPACED.match(word):
            found.extend(word[at : at + 2] for at in range(len(word) - 1))
        else:
            found.append(word)
    return found


class Cues:
    """A lexicon: groups of words, phrases and stems, and where they occur in a text."""

    def __init__(self, groups: Mapping[str, str]) -> None:
        """Index the groups: each lists its entries apart by blanks; a hyphen joins a phrase, `*` ends a stem."""
        self.names = tuple(groups)
        self._exact: dict[str, list[int]] = {}
        self._stems: dict[str, list[int]] = {}
        self._unspaced: list[tuple[str, int]] = []
        for at, entries in enumerate(groups.values()):
            for entry in entries.split():
                if _UNSPACED.match(entry):
                    self._unspaced.append((entry, at))
                elif entry.endswith("*"):
                    self._stems.setdefault(entry[:-1], []).append(at)
                else:
                    self._exact.setdefault(" ".join(words(entry)), []).append(at)
        self._stem_lengths = sorted({len(stem) for stem in self._stems})

    @classmethod
    def load(cls) -> Cues:
        """The lexicon that ships."""
        path = files("headgate.routing") / "data" / "cues.yaml"
        return cls(yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader))

    def find(self, text: str, tokens: Sequence[str]) -> list[tuple[int, int]]:
        """Every occurrence in a text as (group, place of its first word); `tokens` are the text's `words`."""
        found: list[tuple[int, int]] = []
        for at, token in enumerate(tokens):
            for end in range(at + 1, min(at + _LONGEST_PHRASE, len(tokens)) + 1):
                phrase = token if end == at + 1 else " ".join(tokens[at:end])
                found.extend((group, at) for group in self._exact.get(phrase, ()))
            for length in self._stem_lengths:
                if length > len(token):
                    break
                found.extend((group, at) for group in self._stems.get(token[:length], ()))
        if _UNSPACED.search(text):
            found.extend((group, text.index(entry)) for entry, group in self._unspaced if entry in text)
        return found
