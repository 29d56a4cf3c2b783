"""Exact look-up: the same request again."""

from __future__ import annotations

from headgate.cache.store.base import Entries
from headgate.cache.verdict import Entry


async def find(store: Entries, key: str, *, now: float, max_age: float | None) -> Entry | None:
    """The entry of `key` where it may be served now, else None."""
    entry = await store.get(key)
    return entry if entry is not None and fresh(entry, now=now, max_age=max_age) else None


def fresh(entry: Entry, *, now: float, max_age: float | None) -> bool:
    """Whether an entry has not expired and is no older than `max_age` seconds; None sets no bound, 0 serves nothing.

    A clock that went back makes an entry look younger than it is; its age is then taken as 0.
    """
    if entry.expires <= now:
        return False
    return max_age is None or (max_age > 0 and max(0.0, now - entry.created) <= max_age)
