"""`/health` and `/ready`: the wire types."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Health(Struct):
    """The process is alive."""

    status: Literal["ok"] = "ok"


class Part(Struct):
    """One part of the server."""

    state: Literal["loading", "ready", "off", "failed"]
    detail: str


class Readiness(Struct):
    """Whether requests are answered, and the state of each part."""

    status: Literal["ready", "loading", "failing", "draining"]
    parts: dict[str, Part]
