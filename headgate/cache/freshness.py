"""Texts whose right answer changes by the day: told by their words."""

from __future__ import annotations

import re

from headgate.cache.guards.lexicon import TIME_SENSITIVE, TIME_SENSITIVE_PHRASES

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")


def time_sensitive(text: str) -> bool:
    """Whether a text asks about now: "today's weather", "the latest release", "how old is she"."""
    # 's is taken off, so that "today's" is found.
    words = [word.removesuffix("'s") for word in _WORD.findall(text.lower().replace("’", "'"))]
    if not TIME_SENSITIVE.isdisjoint(words):
        return True
    spoken = f" {' '.join(words)} "
    return any(f" {phrase} " in spoken for phrase in TIME_SENSITIVE_PHRASES)
