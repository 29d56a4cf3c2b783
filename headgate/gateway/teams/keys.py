"""Who may ask: API keys from the configuration, or everybody where none is configured."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headgate.gateway.settings import KeySection, secret_name
from headgate.gateway.teams.sections import TeamPolicy
from headgate.gateway.wire.errors import invalid_api_key

OPEN_TEAM = "default"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a request comes from. The team is the engine's tenant and the cache's scope."""

    team: str = OPEN_TEAM
    key_id: str | None = None
    admin: bool = False
    """Whether the key may use `/admin`."""
    policy: TeamPolicy = field(default=TeamPolicy(), compare=False, repr=False)
    """What held for the team when the request came in: it holds for the whole request."""


class MissingSecretError(ValueError):
    """A key refers to a variable of the environment that is not set."""


class Keyring:
    """Tells whose a key is. Keeps digests only and compares them in constant time."""

    def __init__(
        self, keys: Sequence[KeySection], environ: Mapping[str, str], policy: TeamPolicy | None = None
    ) -> None:
        """Read the secrets. `policy` holds for every team.

        Raises:
            MissingSecretError: a variable that a key refers to is unset or empty.
        """
        self._policy = TeamPolicy() if policy is None else policy
        self._entries: list[tuple[bytes, Principal]] = []
        for index, key in enumerate(keys):
            name = secret_name(key.secret)
            secret = environ.get(name, "")
            if not secret:
                raise MissingSecretError(f"'keys[{index}].secret' refers to the variable {name}, which is not set")
            self._entries.append((_digest(secret), Principal(key.team, key.id, key.admin, self._policy)))

    @property
    def open(self) -> bool:
        """Whether everybody may ask."""
        return not self._entries

    @property
    def teams(self) -> frozenset[str]:
        """Every team that can ask."""
        return frozenset(principal.team for _, principal in self._entries) or frozenset({OPEN_TEAM})

    def named(self, team: str, key_id: str | None) -> Principal | None:
        """Who a key belongs to by its id, for work that goes on without a request; None where it is gone."""
        if self.open:
            return Principal(policy=self._policy) if key_id is None else None
        found = [principal for _, principal in self._entries if (principal.team, principal.key_id) == (team, key_id)]
        return found[0] if found else None

    def authenticate(self, authorization: str | None) -> Principal:
        """The principal of an `Authorization: Bearer …` header; ApiError 401 where there is none."""
        if self.open:
            return Principal(policy=self._policy)
        scheme, _, secret = (authorization or "").partition(" ")
        secret = secret.strip()
        if scheme.lower() != "bearer" or not secret:
            message = "You didn't provide an API key. Send it in the header 'Authorization: Bearer YOUR_KEY'."
            raise invalid_api_key(message)
        given = _digest(secret)
        found: Principal | None = None
        # Every entry is compared, so that the time taken tells nothing of which one matched.
        for digest, principal in self._entries:
            if hmac.compare_digest(digest, given):
                found = principal
        if found is None:
            shown = f"{secret[:3]}***{secret[-4:]}" if len(secret) > 12 else "***"
            raise invalid_api_key(f"Incorrect API key provided: {shown}.")
        return found


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
