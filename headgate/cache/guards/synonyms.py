"""Words that ask for the same in nearly every question; see english/synonyms.txt."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from headgate.cache.guards.english import lines
from headgate.cache.guards.inflection import base_form


def _words() -> Mapping[str, str]:
    table: dict[str, str] = {}
    for line in lines("synonyms.txt"):
        first, *others = line.split()
        table |= {base_form(word): first for word in others if base_form(word) not in table}
    return MappingProxyType(table)


WORDS = _words()
"""Base form of a word → the first of its group; a word without synonyms is absent."""
