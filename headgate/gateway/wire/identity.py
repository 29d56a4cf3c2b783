"""What every piece of one reply repeats."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Identity:
    """Id, creation time (seconds since the epoch), answering model and system fingerprint of a reply."""

    id: str
    created: int
    model: str
    fingerprint: str
