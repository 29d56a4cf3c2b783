"""Cascades and fallbacks as OpenAI's client sees them, over real engines with a tiny model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import openai
import pytest
from aiohttp.test_utils import TestClient
from gateway_site import forget_environment, site

from headgate.engine.runner import Runner

Client = TestClient[Any, Any]
Serve = Callable[..., Awaitable[Client]]
HELLO: dict[str, Any] = {"model": "auto", "messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 6}
STAY = {"switch_gain": 1}


@pytest.fixture
async def serve(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serve]:
    forget_environment(monkeypatch)
    async with AsyncExitStack() as stack:

        async def start(**routing: Any) -> Client:
            sections = {"routing": {"sessions": STAY, **routing}}
            return await stack.enter_async_context(site(tiny_checkpoint, **sections))

        yield start


def client_of(server: Client) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=str(server.make_url("/v1")), api_key="none", max_retries=0)


def cascade(least_probability: float) -> dict[str, Any]:
    return {"enabled": True, "least_probability": least_probability, "quantile": 0.0}


async def test_an_unsure_answer_is_taken_over_and_cached_as_it_was_given(serve: Serve) -> None:
    async with client_of(await serve(cascade=cascade(1.0))) as client:
        raw = await client.chat.completions.with_raw_response.create(**HELLO)
        reply = raw.parse()
        assert (raw.headers["x-headgate-model"], raw.headers["x-headgate-route"]) == ("tiny-2", "cascade:escalated")
        assert reply.model == "tiny-2"
        assert reply.usage is not None
        assert reply.usage.completion_tokens_details is not None
        rejected = reply.usage.completion_tokens_details.rejected_prediction_tokens or 0
        assert rejected > 0
        assert reply.usage.completion_tokens == 6 + rejected
        again = await client.chat.completions.with_raw_response.create(**HELLO)
        assert again.headers["x-headgate-cache"] == "exact"
        assert again.headers["x-headgate-model"] == "tiny-2"
        assert again.parse().choices[0].message.content == reply.choices[0].message.content


async def test_a_streamed_answer_that_stands_is_that_of_the_small_model(serve: Serve) -> None:
    async with client_of(await serve(cascade={**cascade(1e-9), "hold_tokens": 2})) as client:
        named = await client.chat.completions.create(**{**HELLO, "model": "tiny"})
        raw = await client.chat.completions.with_raw_response.create(**HELLO, stream=True)
        assert (raw.headers["x-headgate-model"], raw.headers["x-headgate-route"]) == ("tiny", "cascade:kept")
        chunks = [chunk async for chunk in raw.parse()]
        assert "".join(c.choices[0].delta.content or "" for c in chunks) == named.choices[0].message.content
        assert all(c.choices[0].logprobs is None for c in chunks)


async def test_a_model_whose_step_fails_is_replaced_unless_it_was_named(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with client_of(await serve()) as client:
        run = Runner.run
        failing: list[Runner] = []

        def broken(self: Runner, *arguments: Any, **named: Any) -> Any:
            if not failing:
                failing.append(self)
            if self is failing[0]:
                raise RuntimeError("out of luck")
            return run(self, *arguments, **named)

        monkeypatch.setattr(Runner, "run", broken)
        raw = await client.chat.completions.with_raw_response.create(**HELLO)
        assert (raw.headers["x-headgate-model"], raw.headers["x-headgate-route"]) == ("tiny-2", "fallback:failed")
        assert raw.parse().usage is not None
        with pytest.raises(openai.InternalServerError):
            await client.chat.completions.create(**{**HELLO, "model": "tiny"})
