"""Upstreams that answer, seen by a client: a whole gateway before a scripted server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from gateway_site import forget_environment, site
from team_files import key, write_team
from upstream_gateway import KEY, ask, before, post, refusal
from upstream_server import event, finish_event, streamed, text_event, upstream_server

from headgate.gateway import keys
from headgate.gateway.teams.ledger import FILE
from headgate.gateway.teams.ledger_file import read_usage


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_environment(monkeypatch)
    monkeypatch.setenv("UP_KEY", KEY)
    monkeypatch.setenv("RED_KEY", "secret-of-red")


async def test_an_upstream_answers_by_its_name_streamed_and_not() -> None:
    async with upstream_server() as fake, before(fake) as client:
        status, headers, body = await post(client, max_tokens=20, temperature=0.5, seed=7)
        assert (status, headers["x-headgate-model"], headers["x-headgate-route"]) == (200, "up", "requested")
        assert body["choices"][0]["message"]["content"] == "Hello!"
        assert body["choices"][0]["finish_reason"] == "stop"
        assert body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"] == (11, 3)
        sent = fake.asked[0]
        assert sent["model"] == "their-model"
        assert (sent["stream"], sent["stream_options"]) == (True, {"include_usage": True})
        assert (sent["max_tokens"], sent["temperature"], sent["seed"]) == (20, 0.5, 7)
        assert fake.headers[0]["Authorization"] == f"Bearer {KEY}"
        status, _, events = await post(client, stream=True, stream_options={"include_usage": True})
        assert events[-1] == "[DONE]"
        assert "".join(e["choices"][0]["delta"].get("content", "") for e in events[:-2]) == "Hello!"
        assert events[-3]["choices"][0]["finish_reason"] == "stop"
        assert events[-2]["usage"]["total_tokens"] == 14


async def test_what_a_server_gives_besides_text_reaches_the_client() -> None:
    async with upstream_server() as fake, before(fake) as client:
        call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a"'}}
        rest = {"index": 0, "function": {"arguments": ": 1}"}}
        logprob = {"token": "x", "logprob": -0.5, "bytes": [120], "top_logprobs": []}
        said = {"index": 0, "delta": {"content": "x"}, "logprobs": {"content": [logprob]}}

        async def script(request: web.Request, _: dict[str, Any]) -> web.StreamResponse:
            parts = [
                text_event("", reasoning_content="hmm"),
                event({"choices": [said]}),
                text_event("", tool_calls=[call]),
                text_event("", tool_calls=[rest]),
                finish_event("tool_calls"),
                text_event("y", index=1),
                finish_event("content_filter", index=1),
                event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 9,
                       "completion_tokens_details": {"reasoning_tokens": 2}}}),
            ]  # fmt: skip
            return await streamed(request, parts)

        fake.script = script
        tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": True}}
        schema = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}}
        predicted = {"type": "content", "content": "y as before"}
        _, _, body = await post(
            client, n=2, logprobs=True, tools=[tool], tool_choice="required", parallel_tool_calls=False,
            response_format=schema, stop=["END"], top_k=3, reasoning_effort="low", user="somebody",
            prediction=predicted,
        )  # fmt: skip
        sent = fake.asked[0]
        assert (sent["n"], sent["logprobs"], sent["stop"], sent["top_k"]) == (2, True, ["END"], 3)
        assert (sent["tool_choice"], sent["parallel_tool_calls"]) == ("required", False)
        assert sent["tools"][0]["function"]["strict"] is True
        assert sent["response_format"] == schema
        assert sent["reasoning_effort"] == "low"
        assert sent["prediction"] == predicted
        assert not {"user", "metadata", "cache"} & sent.keys()
        first, second = body["choices"]
        assert first["message"]["reasoning_content"] == "hmm"
        assert first["message"]["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a": 1}'}
        assert first["logprobs"]["content"][0]["token"] == "x"
        assert (first["finish_reason"], second["finish_reason"]) == ("tool_calls", "content_filter")
        assert second["message"]["content"] == "y"
        assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] == 2


async def test_a_server_is_not_told_how_much_to_think_where_that_is_left_to_its_model() -> None:
    message = {"model": "up", "max_tokens": 20, "messages": [{"role": "user", "content": "hi"}]}
    bounded = {"type": "enabled", "budget_tokens": 10}
    async with upstream_server() as fake, before(fake) as client:
        for thinking, status in (({"type": "adaptive"}, 200), ({"type": "disabled"}, 200), (bounded, 400)):
            reply = await client.post("/v1/messages", json={**message, "thinking": thinking})
            assert reply.status == status
        assert (await reply.json())["error"]["message"].startswith("'thinking.budget_tokens' is not supported")
    assert [asked.get("reasoning_effort") for asked in fake.asked] == [None, "none"]


async def test_answers_are_cached_and_paid_for_once() -> None:
    price = {"usd_per_million_prompt_tokens": 2, "usd_per_million_completion_tokens": 10}
    async with upstream_server() as fake, before(fake, price=price) as client:
        _, first, body = await post(client, temperature=0)
        _, again, same = await post(client, temperature=0)
        assert (first["x-headgate-cache"], again["x-headgate-cache"]) == ("miss", "exact")
        assert (first["x-headgate-cost-usd"], again["x-headgate-cost-usd"]) == ("0.000052", "0")
        assert same["choices"] == body["choices"]
        assert len(fake.asked) == 1
        # Without a temperature such servers draw, so nothing is kept.
        _, headers, _ = await post(client)
        assert headers["x-headgate-cache"] == "bypass"
        filtered = [text_event("no"), finish_event("content_filter")]
        fake.script = lambda request, _: streamed(request, filtered)
        for asked in (3, 4):
            await post(client, temperature=0, seed=1, messages=[{"role": "user", "content": "Something else."}])
            assert len(fake.asked) == asked


async def test_what_a_provider_charges_is_spent_of_its_teams_budget_to_the_cent(tmp_path: Path) -> None:
    # 500 prompt tokens at 10 dollars a million and 50 of the answer at 100: an answer is a cent.
    price = {"usd_per_million_prompt_tokens": 10, "usd_per_million_completion_tokens": 100}
    write_team(tmp_path, "red", key("red"), budgets={"daily_usd": 0.03})
    async with upstream_server() as fake:
        fake.usage = {"prompt_tokens": 500, "completion_tokens": 50}
        upstream = {"id": "up", "base_url": fake.url, "model": "their-model", "price": price, "retries": {"most": 0}}
        parts: dict[str, Any] = {"upstreams": [upstream], "storage": {"folder": str(tmp_path / "data")}}
        async with site(Path("unused"), models=[], teams=tmp_path, **parts) as client:
            client.session.headers["Authorization"] = "Bearer secret-of-red"
            stored = {"temperature": 0, "max_tokens": 50}
            assert (await post(client, **stored))[1]["x-headgate-cost-usd"] == "0.01"
            assert (await post(client, stream=True, max_tokens=50))[0] == 200
            fake.script = refusal(500)
            assert (await post(client, max_tokens=50))[0] == 502, "what failed costs nothing"
            fake.script = None
            assert (await post(client, max_tokens=50))[1]["x-headgate-budget"] == "daily_usd=100.0%"
            asked = len(fake.asked)
            status, headers, body = await post(client, max_tokens=1)
            assert (status, body["error"]["code"], headers["x-should-retry"]) == (429, "insufficient_quota", "false")
            assert len(fake.asked) == asked, "nothing more is asked for there"
            assert (await post(client, **stored))[1]["x-headgate-cache"] == "exact", "what was paid for is served"
    rows = {cause: counts for cause, *counts in read_usage(tmp_path / "data" / FILE, ("cause",), None, None)}
    assert (rows["generated"][0], rows["generated"][5]) == (3, 30_000_000)
    assert (set(rows), rows["exact"][5]) == ({"generated", "exact"}, 0)


async def test_a_client_that_leaves_ends_the_work_there() -> None:
    async with upstream_server() as fake, before(fake) as client:

        async def script(request: web.Request, _: dict[str, Any]) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            await response.write(text_event("a"))
            await asyncio.Event().wait()
            return response

        fake.script = script
        async with client.post("/v1/chat/completions", json=ask(stream=True)) as reply:
            await reply.content.readuntil(b'"content":"a"')
            assert not fake.left.is_set()
        async with asyncio.timeout(10):
            await fake.left.wait()


async def test_what_outlasts_a_drain_ends_with_an_error_streamed_or_not() -> None:
    retries = {"most": 1, "first_wait_s": 60, "longest_wait_s": 60, "within_s": 600}
    async with upstream_server() as fake, before(fake, retries=retries) as client:
        asked = asyncio.Event()

        async def script(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
            said = body["messages"][0]["content"]
            if said == "fail":
                asked.set()
                return web.json_response({}, status=500)
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            if said == "silent":
                asked.set()
                await asyncio.Event().wait()
            await response.prepare(request)
            await response.write(text_event("a"))
            if said == "whole":
                asked.set()
            await asyncio.Event().wait()
            return response

        fake.script = script
        streaming = client.post("/v1/chat/completions", json=ask(stream=True))
        async with asyncio.timeout(20), streaming as reply:
            await reply.content.readuntil(b'"content":"a"')
            others = []
            for said in ("whole", "silent", "fail"):
                asked.clear()
                messages = [{"role": "user", "content": said}]
                others.append(asyncio.create_task(post(client, messages=messages, stream=said == "silent")))
                await asked.wait()
            await client.app[keys.LOADER].cancel()
            rest = (await reply.content.read()).decode()
            for other in others:
                status, headers, body = await other
                assert (status, body["error"]["code"]) == (503, "overloaded")
                assert "retry-after" in headers
                assert "shutting down" in body["error"]["message"]
        assert "shutting down" in rest
        assert 'finish_reason":"stop' not in rest
        assert "[DONE]" not in rest
        assert (await post(client))[0] == 503, "nothing begins any more"


async def test_unknown_fields_go_on_by_switch_and_are_refused_without() -> None:
    fields = {"guided_choice": ["a", {"b": 1.5}], "verbosity": "low"}
    async with upstream_server() as fake:
        async with before(fake) as client:
            status, _, body = await post(client, **fields)
            assert (status, body["error"]["param"], fake.asked) == (400, "guided_choice", [])
        async with before(fake, pass_through_unknown=True) as client:
            status, _, body = await post(client, **fields)
            assert status == 200
            assert {name: fake.asked[0][name] for name in fields} == fields
            status, _, body = await post(client, messages=[{"role": "user", "content": "x", "mood": 1}])
            assert (status, body["error"]["param"]) == (400, "messages[0].mood")
            status, _, body = await post(client, MODEL="another")
            assert (status, body["error"]["param"], len(fake.asked)) == (400, "MODEL", 1)


async def test_a_slow_first_attempt_is_hedged_and_the_loser_is_cancelled() -> None:
    hedge = {"after": 0.01, "most_share": 1}
    async with upstream_server() as fake, before(fake, hedge=hedge) as client:

        async def script(request: web.Request, _: dict[str, Any]) -> web.StreamResponse:
            if len(fake.asked) == 1:
                await asyncio.Event().wait()
            return await streamed(request, fake.events())

        fake.script = script
        _, _, body = await post(client)
        assert body["choices"][0]["message"]["content"] == "Hello!"
        assert len(fake.asked) == 2
        async with asyncio.timeout(10):
            await fake.left.wait()
        metrics = await (await client.get("/metrics")).text()
        assert 'headgate_upstream_hedges_total{model="up",result="won"} 1.0' in metrics


async def test_a_team_that_waits_a_moment_for_a_turn_waits_longer_for_the_end(tmp_path: Path) -> None:
    write_team(tmp_path, "red", key("red"), scheduling={"max_queue_s": 0.3})
    async with upstream_server() as fake:

        async def slow(request: web.Request, _: dict[str, Any]) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            await response.write(text_event("a"))
            await asyncio.sleep(0.7)
            await response.write(finish_event())
            return response

        fake.script = slow
        upstream = {"id": "up", "base_url": fake.url, "model": "m"}
        async with site(Path("unused"), models=[], upstreams=[upstream], teams=tmp_path) as client:
            headers = {"Authorization": "Bearer secret-of-red"}
            reply = await client.post("/v1/chat/completions", json=ask(), headers=headers)
            assert (await reply.json())["choices"][0]["message"]["content"] == "a"


async def test_a_local_model_and_an_upstream_share_the_names(tiny_checkpoint: Path) -> None:
    async with upstream_server() as fake:
        upstream = {"id": "up", "base_url": fake.url, "model": "m", "tier": "large", "pass_through_unknown": True}
        model = {"id": "tiny", "path": str(tiny_checkpoint), "tier": "small"}
        async with site(tiny_checkpoint, models=[model], upstreams=[upstream]) as client:
            _, headers, _ = await post(client, model="small", max_tokens=2)
            assert (headers["x-headgate-model"], fake.asked) == ("tiny", [])
            # What the model here does not know goes to who is sent it on, and is refused where the model is named.
            _, headers, _ = await post(client, model="auto", max_tokens=2, mood="good")
            assert (headers["x-headgate-model"], fake.asked[0]["mood"]) == ("up", "good")
            status, _, body = await post(client, model="tiny", mood="good")
            assert (status, body["error"]["param"]) == (400, "mood")


async def test_plain_completions_and_anthropics_messages_go_there_too() -> None:
    async with upstream_server() as fake, before(fake) as client:

        async def script(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
            if "prompt" not in body:
                return await streamed(request, fake.events())
            pieces = [event({"choices": [{"index": 0, "text": t, "finish_reason": None}]}) for t in ("a", "b")]
            end = event({"choices": [{"index": 0, "text": "", "finish_reason": "length"}]})
            return await streamed(request, [*pieces, end])

        fake.script = script
        body = await (await client.post("/v1/completions", json={"model": "up", "prompt": "x", "max_tokens": 2})).json()
        assert (body["choices"][0]["text"], body["choices"][0]["finish_reason"]) == ("ab", "length")
        assert (fake.asked[0]["prompt"], fake.asked[0]["max_tokens"]) == ("x", 2)
        message = {"model": "up", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]}
        body = await (await client.post("/v1/messages", json=message)).json()
        assert body["content"][0]["text"] == "Hello!"
