"""`/admin/keys`: the wire types."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from headgate.gateway.teams.iso_time import moment
from headgate.gateway.wire.errors import invalid

MOST_GRACE_S = 3_153_600_000
"""A hundred years: what is meant to hold for good is a key of its own."""


class NewKey(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A key to make."""

    team: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="Its file is made if need be.")]
    id: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="Nobody else's.")]
    role: Literal["member", "admin"] = "member"
    expires: (
        Annotated[
            str,
            Meta(
                description="From then on it is refused: a time, or the beginning of a day, in UTC without a zone.",
                extra_json_schema={"anyOf": [{"format": "date-time"}, {"format": "date"}]},
            ),
        ]
        | None
    ) = None

    def ends(self) -> datetime | None:
        """When it expires; ApiError 400 where that is no time."""
        if self.expires is None:
            return None
        try:
            return moment(self.expires)
        except ValueError:
            message = f"Invalid 'expires': '{self.expires[:80]}'. Expected such as 2027-06-30 or 2027-06-30T12:00:00Z."
            raise invalid(message, "expires", "invalid_value") from None


class Rotation(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A key to get a new secret."""

    id: str
    grace_s: Annotated[
        float, Meta(ge=0, le=MOST_GRACE_S, description="Seconds the old secret still holds, as the key ID.old.")
    ] = 0.0


class Revocation(Struct, forbid_unknown_fields=True):
    """A key to take away."""

    id: str


class KeySecret(Struct):
    """A key just made: the secret is shown this once."""

    id: str
    team: str
    secret: str


class KeyBody(Struct):
    """A key as it is known. Times are as in its file."""

    id: str
    team: str
    role: str
    kept: Literal["hash", "reference"]
    created: datetime | None
    expires: datetime | None
    expired: bool
    limits: dict[str, int]
    """Of this key, beside its team's."""


class KeyList(Struct):
    """Every key."""

    data: list[KeyBody]
    object: Literal["list"] = "list"


class Revoked(Struct):
    """The key that is refused from now on."""

    id: str
    revoked: bool = True
