"""`/admin/keys`: the keys of all teams, and making, rotating and revoking them in the team files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

from aiohttp import web

from headgate.gateway import keys
from headgate.gateway.api.json_reply import json_reply
from headgate.gateway.configuration.document import ConfigError
from headgate.gateway.middleware import read_body
from headgate.gateway.teams.key_store import KeyStore, KeyStoreError, KeysUnwritableError
from headgate.gateway.wire.decode import decode
from headgate.gateway.wire.errors import ApiError, disk_failed
from headgate.gateway.wire.key_admin import KeyBody, KeyList, KeySecret, NewKey, Revocation, Revoked, Rotation

T = TypeVar("T")


async def list_keys(http: web.Request) -> web.Response:
    """Every key, without its secret."""
    now = datetime.now(UTC)
    found = await _done(_store(http).keys)
    return json_reply(
        KeyList(
            [
                KeyBody(
                    key.id, team, key.role, "reference" if key.hash is None else "hash", key.created, key.expires,
                    key.expires is not None and key.expires <= now, key.limits.model_dump(exclude_none=True),
                )
                for team, key in found
            ]
        )
    )  # fmt: skip


async def create(http: web.Request) -> web.Response:
    """Make a key; it holds when the reply is there."""
    wanted, store = decode(await read_body(http), NewKey), _store(http)
    ends = wanted.ends()
    made = await _changed(http, lambda: store.create(wanted.team, wanted.id, wanted.role, ends))
    return json_reply(KeySecret(made.id, made.team, made.secret))


async def rotate(http: web.Request) -> web.Response:
    """Give a key a new secret."""
    wanted, store = decode(await read_body(http), Rotation), _store(http)
    made = await _changed(http, lambda: store.rotate(wanted.id, wanted.grace_s))
    return json_reply(KeySecret(made.id, made.team, made.secret))


async def revoke(http: web.Request) -> web.Response:
    """Take a key away; requests that run end as they would have."""
    wanted, store = decode(await read_body(http), Revocation), _store(http)
    await _changed(http, lambda: store.revoke(wanted.id))
    return json_reply(Revoked(wanted.id))


def _store(http: web.Request) -> KeyStore:
    return KeyStore(http.app[keys.SETTINGS])


async def _done(work: Callable[[], T]) -> T:
    try:
        return await asyncio.to_thread(work)
    except KeysUnwritableError as error:
        raise disk_failed("The team files cannot be changed", error) from None
    except KeyStoreError as error:
        raise ApiError(409, f"{error}.", code="key_conflict", headers={"x-should-retry": "false"}) from None
    except ConfigError as error:
        raise _unusable(f"The team files cannot be used as they are: {'; '.join(error.problems)}.") from None


async def _changed(http: web.Request, work: Callable[[], T]) -> T:
    """What a change of the files gives, which holds then; ApiError 409 where it cannot."""
    reloader = http.app[keys.RELOADER]
    if reloader.problem is not None:
        # What put it right may be a file that it does not look at by itself, such as a secret's.
        reloader.ask()
    await reloader.look()
    if reloader.problem is not None:
        # The files are taken over as a whole: a change beside what is wrong would not hold.
        raise _unusable(f"Nothing was changed, for the configuration cannot be used as it is: {reloader.problem}.")
    found = await _done(work)
    reloader.ask()
    await reloader.look()
    if reloader.problem is not None:
        raise _unusable(f"The team files were changed, but that does not hold yet: {reloader.problem}.")
    return found


def _unusable(message: str) -> ApiError:
    return ApiError(409, message, code="bad_configuration", headers={"x-should-retry": "false"})
