"""Entries of a store in memory, and what one is charged."""

from __future__ import annotations

import msgspec

from headgate.cache.store.memory import ENTRY_BYTES
from headgate.cache.verdict import Entry, StoredChoice


def entry(
    key: str, *, body: int = 0, created: float = 0.0, expires: float = 1e9, device_s: float = 0.0, text: str = "q"
) -> Entry:
    return Entry(key, text, (StoredChoice("x" * body, "stop"),), "m", 1, 1, device_s, created, expires)


def charge(item: Entry) -> int:
    """All fields but the key, without their names."""
    _, *fields = msgspec.structs.astuple(msgspec.convert(item, Fields, from_attributes=True))
    return ENTRY_BYTES + len(msgspec.msgpack.encode(fields))


class Choice(msgspec.Struct, array_like=True):
    text: str
    finish_reason: str
    token_ids: tuple[int, ...]
    logprobs: bytes
    beside: bytes


class Fields(msgspec.Struct):
    key: str
    text: str
    choices: tuple[Choice, ...]
    model: str
    prompt_tokens: int
    completion_tokens: int
    device_s: float
    created: float
    expires: float
    sketch: bytes
    seal: bytes
    image_tokens: int


SIZE = charge(entry("a"))
