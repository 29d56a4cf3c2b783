"""`/admin/models`: the wire types."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct


class ModelChoice(Struct, forbid_unknown_fields=True):
    """Which model sleeps or wakes."""

    model: Annotated[str, Meta(description="The id of a model of this server.")]


class ModelState(Struct):
    """A model of this server as it stands, and counts since the start. Times are seconds."""

    model: str
    state: Literal["awake", "falling_asleep", "asleep", "waking"]
    running: int
    waiting: int
    """Both with those of its adapters; 0 for an adapter."""
    kv_bytes: int
    """Kept for its keys and values now; 0 for an adapter, which keeps them with its model."""
    sleeps: int
    wakes: int
    wake_seconds: float
    last_wake_s: float


class ModelStates(Struct):
    """All of them."""

    models: list[ModelState]
