"""A small and a large model that do as they are told, and what comes of asking them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gateway_fakes import FakeDestination
from road_site import ASK, RED, Site

from headgate.engine.text.stream import TextLogprob
from headgate.gateway.road.request import ChatRequest, Chunk, Message
from headgate.gateway.settings import Settings
from headgate.gateway.teams.keys import Principal
from headgate.gateway.telemetry.record import RequestRecord
from headgate.gateway.wire.errors import server_error

HELLO = replace(ASK, model="auto", messages=(Message("user", "Hello!"),))
MATHS = replace(ASK, model="auto", messages=(Message("user", "What is 12 * 7?"),))
BROKEN = (server_error("a step failed"),)


def routed(**routing: Any) -> Settings:
    models = [{"id": "small-1", "path": "x", "tier": "small"}, {"id": "large-1", "path": "x", "tier": "large"}]
    return Settings(models=models, routing=routing)


def pair(small: Sequence[Chunk | Exception] | None = None, **given: Any) -> tuple[FakeDestination, FakeDestination]:
    says = (Chunk(0, "small", finish_reason="stop", token_ids=(1, 2)),)
    large = (Chunk(0, "large", finish_reason="stop", token_ids=(3,)),)
    return FakeDestination("small-1", pieces=small or says, **given), FakeDestination("large-1", pieces=large)


def sure(*probabilities: float) -> list[Chunk]:
    """An answer of one token a piece, as sure as told: natural logarithms."""
    pieces = [
        Chunk(0, f"{at}", (TextLogprob(f"{at}", (48 + at,), value),), token_ids=(at,))
        for at, value in enumerate(probabilities)
    ]
    pieces[-1].finish_reason = "stop"
    return pieces


async def told(site: Site, request: ChatRequest = HELLO, who: Principal = RED) -> tuple[str, str, str]:
    """What was said, by whom, and why."""
    record = RequestRecord("id", "/v1/chat/completions")
    text = ""
    async with site.road.answer(request, who, record) as answer:
        while batch := await answer.next_batch():
            text += "".join(chunk.text for chunk in batch)
    return text, record.model, record.route
