"""Replies of JSON that are there at once: everything but answers of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from aiohttp import web
from msgspec import Struct


def json_reply(body: Struct, headers: Mapping[str, str] | None = None) -> web.Response:
    """One object, with status 200."""
    return web.Response(body=msgspec.json.encode(body), content_type="application/json", headers=headers)


def json_lines(bodies: Sequence[Struct]) -> web.Response:
    """An object a line."""
    return web.Response(body=msgspec.json.Encoder().encode_lines(bodies), content_type="application/x-ndjson")
