"""Readiness, draining, and keys."""

from __future__ import annotations

import asyncio

import pytest

from headgate.gateway.lifecycle import Lifecycle
from headgate.gateway.wire.errors import ApiError


async def test_ready_means_every_required_part() -> None:
    lifecycle = Lifecycle()
    lifecycle.set("a", "loading")
    lifecycle.set("b", "loading")
    lifecycle.set("extra", "failed", "no package", required=False)
    lifecycle.set("a", "ready")
    assert not lifecycle.ready
    lifecycle.set("b", "ready")
    assert lifecycle.ready
    assert lifecycle.parts["extra"] == ("failed", "no package")


async def test_a_request_waits_for_loading_parts_and_no_longer_than_told() -> None:
    lifecycle = Lifecycle()
    lifecycle.set("model a", "loading")
    with pytest.raises(ApiError) as caught:
        await lifecycle.wait_ready(0.0)
    assert (caught.value.status, caught.value.headers["Retry-After"]) == (503, "1")
    assert "model a" in caught.value.message
    waiting = asyncio.create_task(lifecycle.wait_ready(60.0))
    await asyncio.sleep(0)
    lifecycle.set("model a", "ready")
    await waiting


async def test_draining_refuses_new_requests_and_waits_for_the_old() -> None:
    lifecycle = Lifecycle()
    with lifecycle.request():
        draining = asyncio.create_task(lifecycle.drain(60.0))
        await asyncio.sleep(0)
        assert lifecycle.draining
        assert not draining.done()
        with pytest.raises(ApiError) as caught, lifecycle.request():
            raise AssertionError("admitted while draining")
        assert caught.value.status == 503
    assert await draining


async def test_draining_ends_at_the_deadline() -> None:
    lifecycle = Lifecycle()
    with lifecycle.request():
        assert not await lifecycle.drain(0.0)
    assert lifecycle.in_flight == 0
