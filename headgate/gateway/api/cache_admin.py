"""`/admin/cache`: what the answer cache holds and did, and forgetting parts of it."""

from __future__ import annotations

import msgspec
from aiohttp import web

from headgate.gateway import keys
from headgate.gateway.middleware import read_body
from headgate.gateway.wire.admin import CacheReport, Invalidated, parse_invalidation


async def report(http: web.Request) -> web.Response:
    """The cache's state and counts."""
    backend = await keys.backend(http)
    state = http.app[keys.LOADER].cache_state()
    counts = http.app[keys.METRICS].cache.counts()
    body = CacheReport(
        backend.answers.kind,
        await backend.answers.count(),
        state.bytes,
        state.max_bytes,
        state.evictions,
        state.indexed,
        state.lag_s,
        state.staleness_s,
        dict(state.faults),
        {name: int(count) for name, count in counts.items() if not name.startswith("saved_")},
        {name.removeprefix("saved_"): count for name, count in counts.items() if name.startswith("saved_")},
    )
    return web.Response(body=msgspec.json.encode(body), content_type="application/json")


async def invalidate(http: web.Request) -> web.Response:
    """Forget an answer by its key, or those of a tag, of a team, or all."""
    wanted = parse_invalidation(await read_body(http))
    answers = (await keys.backend(http)).answers
    if wanted.key is not None:
        gone = await answers.invalidate_key(wanted.key)
    elif wanted.tag is not None:
        teams = http.app[keys.KEYRING].teams if wanted.team is None else {wanted.team}
        gone = await answers.invalidate_tag(wanted.tag, teams)
    elif wanted.team is not None:
        gone = await answers.invalidate_team(wanted.team)
    else:
        gone = await answers.invalidate_all()
    return web.Response(body=msgspec.json.encode(Invalidated(gone)), content_type="application/json")
