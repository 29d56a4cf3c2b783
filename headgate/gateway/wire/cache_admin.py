"""`/admin/cache`: the wire types."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from headgate.gateway.wire.decode import decode
from headgate.gateway.wire.errors import ApiError, invalid

TARGETS = ("key", "tag", "author", "team", "epoch", "all")
LIFTED = ("key", "all", "threshold")


class Invalidation(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What to forget: exactly one of these, where `tag` and `author` may have a `team` beside them."""

    key: Annotated[str, Meta(description="As in x-headgate-cache-key.")] | None = None
    tag: Annotated[str, Meta(description="As in x-headgate-cache-tags; of `team`, or of all teams.")] | None = None
    author: Annotated[str, Meta(description="Id of the API key that made them; of `team`, or of all teams.")] | None = (
        None
    )
    team: str | None = None
    epoch: Annotated[str, Meta(max_length=64, description="Begin it: answers of others are not found.")] | None = None
    all: Annotated[bool, Meta(description="Every answer.")] = False


class Invalidated(Struct):
    """How many answers there were; for an epoch, how many are stored, of whatever epoch."""

    invalidated: int


class Lift(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What audits found and is to be forgotten: exactly one of `key`, `all` and `threshold`."""

    key: Annotated[str, Meta(description="Of an entry that is held back.")] | None = None
    all: Annotated[bool, Meta(description="Every entry that is held back.")] = False
    threshold: Annotated[bool, Meta(description="The threshold that breaches raised.")] = False


class Lifted(Struct):
    """How many entries are served again, and whether the threshold was lowered."""

    lifted: int
    threshold_lowered: bool


class HeldEntry(Struct):
    """An answer that an audit found wrong. Times are seconds since the epoch."""

    key: str
    model: str
    created: float
    expires: float
    found: float | None
    wrong: int
    """Labels that call it wrong."""


class AuditReport(Struct):
    """What the audits found."""

    rule: str
    """Names the rule that is watched; empty before the semantic cache is there."""
    threshold: float | None
    """Log odds above the certified threshold from which on hits are served; null: none are."""
    lower: float
    """Bounds on the share of wrong hits among those served since the threshold rose last."""
    upper: float
    labelled: float | None
    hits: int
    audited: int
    labels: int
    quarantine: list[HeldEntry]


class LabelLine(Struct):
    """One label, as the log has it."""

    key: str
    created: float
    similarity: float
    against: str | None
    right: bool
    kind: str
    source: str
    at: float
    rule: str
    log_odds: float | None
    evidence: dict[str, float]


class CacheReport(Struct):
    """The cache as it stands, and what it did since the server started. null is what this server cannot know."""

    store: str
    """memory, redis or off."""
    epoch: str
    entries: int
    """Answers stored; with Redis those of all gateways with the same `cache.secret`."""
    bytes: int | None
    max_bytes: int | None
    evictions: int | None
    indexed: int | None
    lag_s: float | None
    staleness_s: float | None
    copying: int | None
    """Vectors taken from Redis so far, while the index is made anew."""
    faults: dict[str, int]
    lookups: dict[str, int]
    saved: dict[str, float]


def parse_invalidation(body: bytes) -> Invalidation:
    """The request in `body`; ApiError 400 where it does not say exactly what to forget."""
    wire = decode(body, Invalidation)
    # An epoch may be called nothing, as that of the default configuration is.
    given = [name for name in TARGETS if getattr(wire, name) or (name == "epoch" and wire.epoch is not None)]
    if len(given) != 1 and given not in (["tag", "team"], ["author", "team"]):
        raise _not_one(TARGETS, given, ", or 'tag' or 'author' with 'team'")
    # Beside a tag it would be taken for a team that has nothing, and nothing would be forgotten.
    for name in ("key", "tag", "author", "team"):
        if getattr(wire, name) == "":
            raise invalid(f"Invalid '{name}': it is empty.", name, "invalid_value")
    return wire


def parse_lift(body: bytes) -> Lift:
    """The request in `body`; ApiError 400 where it does not say exactly what to lift."""
    wire = decode(body, Lift)
    given = [name for name in LIFTED if getattr(wire, name)]
    if len(given) != 1:
        raise _not_one(LIFTED, given)
    return wire


def _not_one(names: tuple[str, ...], given: list[str], more: str = "") -> ApiError:
    accepted = ", ".join(f"'{name}'" for name in names[:-1])
    said = f"but got {' and '.join(given)}" if given else "but got none"
    message = f"Expected exactly one of {accepted} and '{names[-1]}'{more}, {said}."
    return invalid(message, given[-1] if given else names[0], "invalid_value")
