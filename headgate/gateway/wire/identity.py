"""What every piece of one reply repeats."""

from __future__ import annotations

import msgspec


class Identity(msgspec.Struct, frozen=True):
    """Id, creation time (seconds since the epoch), answering model and system fingerprint of a reply."""

    id: str
    created: int
    model: str
    fingerprint: str
