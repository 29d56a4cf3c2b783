"""`/admin/cache`: what the answer cache holds and did, and forgetting parts of it."""

from __future__ import annotations

from collections.abc import Awaitable
from itertools import count
from typing import TypeVar

from aiohttp import web

from headgate.gateway import keys
from headgate.gateway.api.json_reply import json_lines, json_reply
from headgate.gateway.caching.audits import Audits
from headgate.gateway.middleware import read_body
from headgate.gateway.wire.cache_admin import (
    AuditReport,
    CacheReport,
    HeldEntry,
    Invalidated,
    LabelLine,
    Lifted,
    parse_invalidation,
    parse_lift,
)
from headgate.gateway.wire.errors import ApiError, overloaded

T = TypeVar("T")


async def report(http: web.Request) -> web.Response:
    """The cache's state and counts."""
    backend = await keys.backend(http)
    state = http.app[keys.LOADER].cache.state()
    counts = http.app[keys.METRICS].cache.counts()
    body = CacheReport(
        backend.answers.kind,
        backend.answers.epoch,
        await backend.answers.count(),
        state.bytes,
        state.max_bytes,
        state.evictions,
        state.indexed,
        state.lag_s,
        state.staleness_s,
        state.copying,
        dict(state.faults),
        {name: int(count) for name, count in counts.items() if not name.startswith("saved_")},
        {name.removeprefix("saved_"): count for name, count in counts.items() if name.startswith("saved_")},
    )
    return json_reply(body)


async def invalidate(http: web.Request) -> web.Response:
    """Forget an answer by its key, or those of a tag, of a key's making, of a team, of other epochs, or all."""
    wanted = parse_invalidation(await read_body(http))
    answers = (await keys.backend(http)).answers
    if wanted.key is not None:
        gone = await answers.invalidate_key(wanted.key)
    elif wanted.tag is not None:
        gone = await answers.invalidate_tag(wanted.tag, _teams(http, wanted.team))
    elif wanted.author is not None:
        gone = sum([await answers.invalidate_author(team, wanted.author) for team in _teams(http, wanted.team)])
    elif wanted.team is not None:
        gone = await answers.invalidate_team(wanted.team)
    elif wanted.epoch is not None:
        gone = await answers.turn_epoch(wanted.epoch)
    else:
        gone = await answers.invalidate_all()
    return json_reply(Invalidated(gone))


async def audits(http: web.Request) -> web.Response:
    """What the audits found: the interval, the threshold, and the answers that are held back."""
    watch = (await _audits(http)).watch
    found, held = watch.interval(), await _asked(watch.quarantine())
    return json_reply(
        AuditReport(
            watch.rule,
            watch.threshold,
            found.lower,
            found.upper,
            found.estimate,
            found.hits,
            found.audited,
            found.labels,
            [HeldEntry(e.key, e.model, e.created, e.expires, e.found, e.wrong) for e in held],
        )
    )


async def lift(http: web.Request) -> web.Response:
    """Serve an answer again that audits found wrong, or all of them, or as freely as before a breach."""
    wanted = parse_lift(await read_body(http))
    watch = (await _audits(http)).watch
    if wanted.threshold:
        return json_reply(Lifted(0, await _asked(watch.lower())))
    held = [wanted.key] if wanted.key is not None else [e.key for e in await _asked(watch.quarantine())]
    return json_reply(Lifted(sum([await _asked(watch.lift(key)) for key in held]), threshold_lowered=False))


async def labels(http: web.Request) -> web.Response:
    """The label log, a JSON object a line, the oldest first."""
    watch = (await _audits(http)).watch
    await _asked(watch.log.load())
    lines = [
        LabelLine(
            r.entry_key, r.created, r.similarity, r.against, r.right, r.kind, r.source, r.at, r.rule, r.log_odds,
            dict(zip(watch.evidence_names if r.rule == watch.rule else map(str, count()), r.evidence, strict=False)),
        )
        for r in watch.log
    ]  # fmt: skip
    return json_lines(lines)


async def _audits(http: web.Request) -> Audits:
    found = (await keys.backend(http)).audits
    if found is None:
        message = "Nothing is served by meaning here, so that nothing is audited: see 'semantic cache' under /ready."
        raise ApiError(404, message, code="no_audits")
    return found


async def _asked(answer: Awaitable[T]) -> T:
    try:
        return await answer
    except OSError as error:
        raise overloaded(f"The cache's store cannot be reached: {error}.") from None


def _teams(http: web.Request, named: str | None) -> list[str]:
    return sorted(http.app[keys.TEAMS].roster.names) if named is None else [named]
