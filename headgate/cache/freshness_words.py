"""Words of other languages than English that ask about now: "heute", "ahora", "今天"."""

from __future__ import annotations

import re
import unicodedata
from importlib.resources import files

_FILE = files("headgate.cache") / "data" / "now_words.txt"
_WORD = re.compile(r"[\w\u0900-\u0963\u0966-\u097f]+")
"""A word; Hindi writes vowels as marks, which are no letters to `\\w`."""
_MARKS = re.compile("[\u0307\u064b-\u0652]")
"""The dot that a Turkish capital leaves behind, and Arabic vowels, which are written or not."""
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
"""Scripts that put no spaces between words, or write particles onto them."""


class NowWords:
    """What `data/now_words.txt` has."""

    def __init__(self) -> None:
        """Read the file."""
        words: set[str] = set()
        phrases: list[str] = []
        parts: list[str] = []
        otherwise: list[str] = []
        self._beside: dict[str, frozenset[str]] = {}
        for line in _FILE.read_text(encoding="utf-8").splitlines():
            if not line or line.startswith("#"):
                continue
            kind, _, items = line.partition(":")
            language, _, company = kind.partition(" (")
            for item in map(str.strip, _plain(items).split(",")):
                spoken = _spoken(item)
                if language == "otherwise":
                    otherwise.append(item if _UNSPACED.search(item) else spoken)
                elif _UNSPACED.search(item):
                    parts.append(item)
                elif company:
                    self._beside[spoken.strip()] = frozenset(company.removesuffix(")").split())
                elif " " in spoken.strip():
                    phrases.append(spoken)
                else:
                    words.add(spoken.strip())
        self._words = frozenset(words)
        self._phrases, self._otherwise = tuple(phrases), tuple(otherwise)
        self._parts = re.compile("|".join(map(re.escape, parts)))
        # Most texts have not even one of these: all words, and one of each phrase.
        needed = {max(phrase.split(), key=len) for phrase in phrases}
        self._hints = frozenset({*words, *needed, *self._beside})

    def among(self, text: str) -> bool:
        """Whether a text in lower case asks about now by one of them."""
        text = _plain(text)
        if not text.isascii() and self._parts.search(text) and self._parts.search(self._without(text)):
            return True
        if self._hints.isdisjoint(_WORD.findall(text)):
            return False
        spoken = self._without(_spoken(text))
        found = set(spoken.split())
        return (
            not self._words.isdisjoint(found)
            or any(phrase in spoken for phrase in self._phrases)
            or any(word in found and not company.isdisjoint(found) for word, company in self._beside.items())
        )

    def _without(self, text: str) -> str:
        for phrase in self._otherwise:
            text = text.replace(phrase, " ")
        return text


def _plain(text: str) -> str:
    """The text in Unicode's composed form (NFC), without marks that may be left out."""
    return text if text.isascii() else _MARKS.sub("", unicodedata.normalize("NFC", text))


def _spoken(text: str) -> str:
    return f" {' '.join(_WORD.findall(text))} "
