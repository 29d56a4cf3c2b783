"""Lists of words as they are easiest to read: one string."""

from __future__ import annotations


def word_set(text: str) -> frozenset[str]:
    """The words of a text, parted by spaces."""
    return frozenset(text.split())
