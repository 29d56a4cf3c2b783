"""`POST /admin/route`: where a conversation would be answered now, and why. Nothing is generated or counted."""

from __future__ import annotations

from aiohttp import web

from headgate.gateway import keys
from headgate.gateway.api.json_reply import json_reply
from headgate.gateway.middleware import read_body
from headgate.gateway.routing.explain import explained
from headgate.gateway.teams.overrides import as_team
from headgate.gateway.wire.chat import parse_chat
from headgate.gateway.wire.errors import invalid
from headgate.gateway.wire.headers import cache_control, session
from headgate.gateway.wire.query import read_query


async def explain(http: web.Request) -> web.Response:
    """The decision about a chat completion's body, for the team and key of the query, else for who asks.

    What would be refused is refused.
    """
    request = parse_chat(await read_body(http), cache_control(http.headers), session(http.headers))
    roster, who = http.app[keys.TEAMS].roster, http[keys.PRINCIPAL]
    if query := read_query(http.query, ("team", "key")):
        try:
            who = roster.principal(query.get("team"), query.get("key"))
        except LookupError as error:
            raise invalid(f"Nobody to explain for: {error.args[0]}.", "team") from None
    routes = (await keys.backend(http)).routes
    request = http.app[keys.ADMISSION].foreseen(as_team(request, who, routes.destinations)[0], who)
    return json_reply(await explained(routes, request, who, roster.revision))
