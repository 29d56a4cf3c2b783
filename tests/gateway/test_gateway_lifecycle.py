"""Readiness, draining, and keys."""

from __future__ import annotations

import asyncio

import pytest

from headgate.gateway.lifecycle import Lifecycle
from headgate.gateway.settings import KeySection
from headgate.gateway.teams.keys import Keyring, MissingSecretError, Principal
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


def keyring() -> Keyring:
    keys = [KeySection(id="a", team="red", secret="env:A"), KeySection(id="b", team="blue", secret="env:B")]
    return Keyring(keys, {"A": "key-of-a", "B": "key-of-b"})


def test_without_keys_everybody_is_the_default_team() -> None:
    assert Keyring([], {}).authenticate(None) == Principal("default", None)


def test_a_key_names_its_team() -> None:
    assert keyring().authenticate("Bearer key-of-a") == Principal("red", "a")
    assert keyring().authenticate("bearer  key-of-b") == Principal("blue", "b")


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Basic key-of-a", "key-of-a", "Bearer key-of-c"])
def test_other_headers_are_refused_without_telling_the_key(header: str | None) -> None:
    with pytest.raises(ApiError) as caught:
        keyring().authenticate(header)
    assert (caught.value.status, caught.value.code) == (401, "invalid_api_key")
    assert "key-of-c" not in caught.value.message


def test_a_key_whose_variable_is_unset_is_refused_at_the_start() -> None:
    with pytest.raises(MissingSecretError, match="variable A"):
        Keyring([KeySection(id="a", team="red", secret="env:A")], {"A": ""})
