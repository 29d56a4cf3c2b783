"""`POST /v1/audio/…`, of upstreams: text that is spoken, and sound that is written down."""

from __future__ import annotations

from aiohttp import web

from headgate.gateway.api.passthrough import pass_on
from headgate.gateway.upstream.endpoints import SPEECH, TRANSCRIPTIONS, TRANSLATIONS


async def speech(http: web.Request) -> web.StreamResponse:
    """Speak a text; the sound goes on as it comes."""
    return await pass_on(http, SPEECH)


async def transcriptions(http: web.Request) -> web.StreamResponse:
    """Write down what is said in a file."""
    return await pass_on(http, TRANSCRIPTIONS)


async def translations(http: web.Request) -> web.StreamResponse:
    """Write it down in English."""
    return await pass_on(http, TRANSLATIONS)
