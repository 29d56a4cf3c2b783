"""The cores of a request: what is left of it without what somebody may have put before it."""

from __future__ import annotations

import re
from bisect import bisect_left

MOST_CORES = 3
"""Cores that a text has at most."""
_DROPPED = 12
_LEAST = 3
_WORD = re.compile(r"\S+\s*")
_SENTENCE_END = re.compile(r"(?<=[.!?:])\s+|\n+")


def cores(text: str) -> tuple[str, ...]:
    """Up to three ends of a text: without its first twelve words, its second half, and its last sentence.

    None of them has fewer than three words, and a text that is too short for any has none. A router that believes the
    lowest escalation of a text and of its cores is not talked into the large model by a prefix that has nothing to do
    with the request: a short one is not in the first two, and one of any length is not in the last sentence, if the
    request has one of its own.
    """
    starts = [match.start() for match in _WORD.finditer(text)]
    cut = [_DROPPED, len(starts) // 2]
    found = [text[starts[at] :] for at in cut if 0 < at <= len(starts) - _LEAST]
    sentences = [match.end() for match in _SENTENCE_END.finditer(text)]
    # The last one that leaves enough words: an end mark may be followed by nothing.
    for at in reversed(sentences):
        if len(starts) - bisect_left(starts, at) >= _LEAST:
            found.append(text[at:])
            break
    return tuple(dict.fromkeys(found))
