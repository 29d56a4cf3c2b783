"""The block `sleep:` of a model's settings."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from headgate.gateway.section import Section


class SleepSection(Section):
    """When a model gives its memory back, and who gets it back."""

    idle_s: float = Field(default=0.0, ge=0, description="Seconds without work after which it sleeps; 0: never.")
    on_request: Literal["wake", "refuse"] = Field(
        default="wake",
        description="wake: a request wakes it; refuse: only an administrator does, requests get 503 or other models.",
    )
    wake_wait_s: float = Field(
        default=60.0, gt=0, description="Longest that a request waits for it to wake, before it gets 503."
    )
