"""Conversations: which destination a session's last turn went to, for a bounded number of sessions."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b


def session_key(tenant: str, *parts: str) -> str:
    """A session's key. Lengths are part of what is hashed, so that no two sequences of parts collide."""
    digest = blake2b(digest_size=16)
    for part in (tenant, *parts):
        raw = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(raw))
        digest.update(raw)
    return digest.hexdigest()


class Sessions:
    """Remembers the destination of each session; those not heard of longest are forgotten first."""

    def __init__(self, most: int) -> None:
        """`most`: sessions that are remembered; 0 remembers none."""
        if most < 0:
            raise ValueError(f"most must be at least 0, got {most}")
        self._most = most
        self._destinations: OrderedDict[str, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._destinations)

    def destination(self, key: str) -> str:
        """Where the session's last turn went; empty where that is not known."""
        return self._destinations.get(key, "")

    def keep(self, key: str, destination: str) -> None:
        """The session's last turn went there."""
        self._destinations[key] = destination
        self._destinations.move_to_end(key)
        while len(self._destinations) > self._most:
            self._destinations.popitem(last=False)
