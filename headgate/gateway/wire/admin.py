"""`/admin/cache`: the wire types."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from headgate.gateway.wire.decode import decode
from headgate.gateway.wire.errors import invalid

TARGETS = ("key", "tag", "team", "all")


class Invalidation(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What to forget: exactly one of `key`, `tag`, `team` and `all`, where `tag` may have a `team` beside it."""

    key: Annotated[str, Meta(description="As in x-headgate-cache-key.")] | None = None
    tag: Annotated[str, Meta(description="As in x-headgate-cache-tags; of `team`, or of all teams.")] | None = None
    team: str | None = None
    all: Annotated[bool, Meta(description="Every answer.")] = False


class Invalidated(Struct):
    """How many answers there were."""

    invalidated: int


class CacheReport(Struct):
    """The cache as it stands, and what it did since the server started. null is what this server cannot know."""

    store: str
    """memory, redis or off."""
    entries: int
    """Answers stored; with Redis those of all gateways with the same `cache.secret`."""
    bytes: int | None
    max_bytes: int | None
    evictions: int | None
    indexed: int | None
    lag_s: float | None
    staleness_s: float | None
    faults: dict[str, int]
    lookups: dict[str, int]
    saved: dict[str, float]


_DECODER = msgspec.json.Decoder(Invalidation)


def parse_invalidation(body: bytes) -> Invalidation:
    """The request in `body`; ApiError 400 where it does not say exactly what to forget."""
    wire = decode(body, Invalidation, _DECODER)
    given = [name for name in TARGETS if getattr(wire, name)]
    if len(given) != 1 and given != ["tag", "team"]:
        said = f"but got {' and '.join(given)}" if given else "but got none"
        message = f"Expected exactly one of 'key', 'tag', 'team' and 'all', or 'tag' and 'team', {said}."
        raise invalid(message, given[-1] if given else "key", "invalid_value")
    return wire
