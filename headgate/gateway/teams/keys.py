"""Who may ask: API keys by what was kept of them, and the principal that a key stands for."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from headgate.gateway.configuration.routing import PolicySection
from headgate.gateway.teams.sections import RatesSection, TeamPolicy
from headgate.gateway.wire.errors import invalid_api_key

OPEN_TEAM = "default"
_SALT_BYTES = 16
_SECRET_BYTES = 24


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a request comes from. The team is the engine's tenant and the cache's scope."""

    team: str = OPEN_TEAM
    key_id: str | None = None
    admin: bool = False
    """Whether the key may use `/admin`."""
    policy: TeamPolicy = field(default=TeamPolicy(), compare=False, repr=False)
    """What held for the team when the request came in: it holds for the whole request."""
    models: frozenset[str] | None = field(default=None, compare=False, repr=False)
    """Ids of the models it may ask; None: all."""
    routing: PolicySection = field(default=PolicySection(), compare=False, repr=False)
    """What the key has otherwise than its team."""
    limits: RatesSection = field(default=RatesSection(), compare=False, repr=False)
    """What the key may ask at once and in a minute, within its team's limits."""


@dataclass(frozen=True, slots=True)
class Held:
    """What is kept of an API key.

    Attributes:
        principal: whom it stands for.
        salted: salt and SHA-256 of salt and secret; None where the secret itself is known here.
        secret: as read from a variable or a file.
        expires: Unix time from which on it is refused.
    """

    principal: Principal
    salted: tuple[bytes, bytes] | None = None
    secret: str | None = field(default=None, repr=False)
    expires: float | None = None


class Keyring:
    """Tells whose a key is. Keeps digests only."""

    def __init__(self, keys: Iterable[Held]) -> None:
        self._by_digest: dict[bytes, Held] = {}
        self._salted: list[tuple[bytes, bytes, Held]] = []
        # A digest under a key that nobody knows: how long a look-up takes tells nothing of the secrets.
        self._digest_key = secrets.token_bytes(32)
        for held in keys:
            if held.secret is not None:
                self._by_digest[self._digest(held.secret)] = held
            elif held.salted is not None:
                self._salted.append((*held.salted, held))

    def authenticate(self, authorization: str | None, now: float) -> Principal:
        """The principal of an `Authorization: Bearer …` header at a Unix time; ApiError 401 where there is none."""
        scheme, _, secret = (authorization or "").partition(" ")
        secret = secret.strip()
        if scheme.lower() != "bearer" or not secret:
            message = "You didn't provide an API key. Send it in the header 'Authorization: Bearer YOUR_KEY'."
            raise invalid_api_key(message)
        held = self._find(secret)
        if held is None:
            shown = f"{secret[:3]}***{secret[-4:]}" if len(secret) > 12 else "***"
            raise invalid_api_key(f"Incorrect API key provided: {shown}.")
        if held.expires is not None and now >= held.expires:
            when = datetime.fromtimestamp(held.expires, UTC).isoformat(timespec="seconds")
            raise invalid_api_key(f"The API key '{held.principal.key_id}' expired at {when}.")
        return held.principal

    def _find(self, secret: str) -> Held | None:
        digest = self._digest(secret)
        found = self._by_digest.get(digest)
        if found is None:
            for salt, kept, held in self._salted:
                if hmac.compare_digest(kept, _salted(salt, secret)):
                    # The next request of this key is one look-up.
                    found = self._by_digest[digest] = held
                    break
        return found

    def _digest(self, secret: str) -> bytes:
        return hashlib.blake2b(_raw(secret), key=self._digest_key, digest_size=32).digest()


def new_secret() -> str:
    """A key that nobody can guess: 192 random bits."""
    return f"hg-{secrets.token_hex(_SECRET_BYTES)}"


def hash_secret(secret: str) -> str:
    """What a team file keeps of a key. It is random, so that one round of SHA-256 with a salt hides it."""
    salt = secrets.token_bytes(_SALT_BYTES)
    return f"sha256:{salt.hex()}:{_salted(salt, secret).hex()}"


def read_hash(text: str) -> tuple[bytes, bytes]:
    """Salt and digest of what `hash_secret` wrote."""
    _, salt, digest = text.split(":")
    return bytes.fromhex(salt), bytes.fromhex(digest)


def hash_matches(text: str, secret: str) -> bool:
    """Whether a hash is that of a secret."""
    salt, digest = read_hash(text)
    return hmac.compare_digest(digest, _salted(salt, secret))


def _salted(salt: bytes, secret: str) -> bytes:
    return hashlib.sha256(salt + _raw(secret)).digest()


def _raw(secret: str) -> bytes:
    return secret.encode("utf-8", "surrogateescape")
