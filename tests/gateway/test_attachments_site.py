"""Pictures, sound and files by the official clients, through a whole gateway, to scripted servers."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from gateway_site import Client, forget_environment, site
from team_files import key, write_team
from upstream_gateway import KEY, before, refusal
from upstream_server import FakeUpstream, upstream_server

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(48))).decode()
URL = f"data:image/png;base64,{PNG}"
PDF = base64.b64encode(b"%PDF-1.4 ...").decode()
PDF_URL = f"data:application/pdf;base64,{PDF}"
PICTURE = {"type": "image_url", "image_url": {"url": URL}}
SOUND = {"type": "input_audio", "input_audio": {"data": PNG, "format": "wav"}}
FILE_PART = {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF_URL}}
LOOK = {"type": "text", "text": "What is this?"}
ALL = {"inputs": ["image", "audio", "file"]}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_environment(monkeypatch)
    monkeypatch.setenv("UP_KEY", KEY)
    monkeypatch.setenv("RED_KEY", "secret-of-red")


def official(client: Client) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=str(client.make_url("/v1")), api_key="any", max_retries=0)


def asked(*parts: Any, model: str = "up", **fields: Any) -> Any:
    return {"model": model, "messages": [{"role": "user", "content": list(parts)}], "temperature": 0, **fields}


@asynccontextmanager
async def mixed(checkpoint: Path, *fakes: FakeUpstream, **sections: Any) -> AsyncIterator[Client]:
    """A gateway with the model `tiny`, and upstreams `up-0` … of the large tier, of which the last takes all."""
    upstreams: list[dict[str, Any]] = [
        {"id": f"up-{at}", "base_url": fake.url, "model": "m", "tier": "large", "retries": {"most": 0}}
        for at, fake in enumerate(fakes)
    ]
    upstreams[-1] |= ALL
    models = [{"id": "tiny", "path": str(checkpoint), "tier": "small"}]
    async with site(checkpoint, models=models, upstreams=upstreams, **sections) as client:
        yield client


async def test_openais_client_shows_what_chats_have_streamed_and_not() -> None:
    async with upstream_server() as fake, before(fake, **ALL, input_urls=True) as client, official(client) as ai:
        away = {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}}
        request = asked(LOOK, PICTURE, away, SOUND, FILE_PART)
        answer = await ai.chat.completions.create(**request)
        assert answer.choices[0].message.content == "Hello!"
        assert answer.usage is not None
        assert answer.usage.prompt_tokens == 11, "as the server counts it"
        events = [e async for e in await ai.chat.completions.create(**request, stream=True)]
        assert "".join(e.choices[0].delta.content or "" for e in events if e.choices) == "Hello!"
        assert [told["messages"] for told in fake.asked] == [request["messages"]] * 2


async def test_texts_alone_are_sent_as_they_were() -> None:
    async with upstream_server() as fake, before(fake, **ALL) as client, official(client) as ai:
        await ai.chat.completions.create(**asked(LOOK, {"type": "text", "text": "Tell."}))
        assert fake.asked[0]["messages"] == [{"role": "user", "content": "What is this?\nTell."}]


async def test_anthropics_client_shows_pictures_and_documents() -> None:
    async with upstream_server() as fake, before(fake, **ALL) as client:
        ai = anthropic.AsyncAnthropic(base_url=str(client.make_url("/")), api_key="any", max_retries=0)
        image: Any = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
        pdf = {"type": "base64", "media_type": "application/pdf", "data": PDF}
        messages: Any = [
            {"role": "user", "content": [{"type": "document", "source": pdf}, image, {"type": "text", "text": "See"}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [image]}]},
        ]
        async with ai:
            answer = await ai.messages.create(model="up", max_tokens=9, messages=messages)
            assert answer.content[0].type == "text"
            with pytest.raises(anthropic.BadRequestError, match="must end"):
                await ai.messages.create(model="up", max_tokens=9, messages=messages[:2])
            remote: Any = {"type": "image", "source": {"type": "url", "url": "http://10.0.0.1/a.png"}}
            said = r"\[0\]': the model 'up' takes no pictures by an http\(s\) URL \(send a data URL\)"
            with pytest.raises(anthropic.BadRequestError, match=said):
                await ai.messages.create(
                    model="up", max_tokens=9, messages=[{"role": "user", "content": [remote]}]
                )  # fmt: skip
        (told,) = fake.asked
        document = {"type": "file", "file": {"filename": "document.pdf", "file_data": PDF_URL}}
        assert told["messages"][0]["content"] == [document, PICTURE, {"type": "text", "text": "See"}]
        below = "What it gave is shown in the next message of the user."
        assert told["messages"][2:] == [
            {"role": "tool", "content": below, "tool_call_id": "t1"},
            {"role": "user", "content": [{"type": "text", "text": "Given by the call t1:"}, PICTURE]},
        ]


async def test_responses_go_on_from_what_was_shown() -> None:
    async with upstream_server() as fake, before(fake, **ALL) as client, official(client) as ai:
        image: Any = {"type": "input_image", "image_url": URL, "detail": "high"}
        file: Any = {"type": "input_file", "file_data": PDF_URL, "filename": "a.pdf"}
        sound: Any = {"type": "input_audio", "input_audio": {"data": PNG, "format": "wav"}}
        content = [{"type": "input_text", "text": "See"}, image, file, sound]
        first = await ai.responses.create(model="up", input=[{"role": "user", "content": content}])
        assert first.output_text == "Hello!"
        await ai.responses.create(model="up", input="And now?", previous_response_id=first.id)
        shown = {"type": "image_url", "image_url": {"url": URL, "detail": "high"}}
        parts = [{"type": "text", "text": "See"}, shown, FILE_PART, SOUND]
        assert [told["messages"] for told in fake.asked] == [
            [{"role": "user", "content": parts}],
            [
                {"role": "user", "content": parts},
                {"role": "assistant", "content": "Hello!"},
                {"role": "user", "content": "And now?"},
            ],
        ]
        async with client.get(f"/v1/responses/{first.id}/input_items") as reply:
            listed = await reply.json()
        assert listed["data"][0]["content"] == [
            {"type": "input_text", "text": "See"}, {**image, "file_id": None}, file, sound
        ]  # fmt: skip
        output: Any = {"type": "function_call_output", "call_id": "c1", "output": [image]}
        call: Any = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
        behind = await ai.responses.create(model="up", input=[call, output], background=True)
        while behind.status in ("queued", "in_progress"):
            behind = await ai.responses.retrieve(behind.id)
        assert behind.output_text == "Hello!"
        assert fake.asked[2]["messages"][-1]["content"][-1] == shown


async def test_who_takes_no_pictures_is_not_asked_and_it_is_said_who_does(tiny_checkpoint: Path) -> None:
    async with (
        upstream_server() as blind,
        upstream_server() as fake,
        mixed(tiny_checkpoint, blind, fake) as client,
        official(client) as ai,
    ):
        for model, reason in (
            ("auto", None), ("large", "tier:large"), ("small", "fallback:lacks_vision"), ("up-1", "requested")
        ):  # fmt: skip
            raw = await ai.chat.completions.with_raw_response.create(
                **asked(LOOK, PICTURE, model=model, max_tokens=2), extra_headers={"cache-control": "no-store"}
            )
            assert (raw.headers["x-headgate-model"], blind.asked) == ("up-1", [])
            assert reason in (None, raw.headers["x-headgate-route"])
        for model in ("tiny", "up-0"):
            with pytest.raises(openai.BadRequestError) as caught:
                await ai.chat.completions.create(**asked(LOOK, PICTURE, model=model))
            error: Any = caught.value.body
            assert (error["param"], error["code"]) == ("messages[0].content[1]", "unsupported_parameter")
            assert error["message"] == (
                f"'messages[0].content[1]': the model '{model}' takes no pictures. Models that do: 'up-1'."
            )
        async with client.post("/admin/route", json=asked(PICTURE, model="auto")) as reply:
            report = await reply.json()
        assert (report["model"], report["fallbacks"]) == ("up-1", [])
        assert {w["model"]: w["excluded"] for w in report["destinations"]}["tiny"] == "lacks_vision"
        async with client.post("/admin/route", json=asked(PICTURE, model="tiny")) as reply:
            assert (await reply.json())["error"]["param"] == "messages[0].content[0]"


async def test_where_nobody_takes_it_that_is_said(tiny_checkpoint: Path) -> None:
    async with upstream_server() as fake, upstream_server() as other:
        section = {"base_url": fake.url, "model": "m"}
        upstreams = [
            {"id": "eyes", **section, "inputs": ["image"]},
            {"id": "ears", "base_url": other.url, "model": "m", "inputs": ["audio"]},
        ]
        async with site(tiny_checkpoint, models=[], upstreams=upstreams) as client, official(client) as ai:
            for parts, place, said in (
                ((LOOK, FILE_PART), 1, "no model that 'auto' may lead to takes files. No model that you may ask does."),
                ((PICTURE, SOUND), 0, "no model that 'auto' may lead to takes all of sound, pictures. No model that"),
            ):
                with pytest.raises(openai.BadRequestError) as caught:
                    await ai.chat.completions.create(**asked(*parts, model="auto"))
                error: Any = caught.value.body
                assert error["param"] == f"messages[0].content[{place}]"
                assert error["message"].startswith(f"'messages[0].content[{place}]': {said}")
            assert (fake.asked, other.asked) == ([], [])


async def test_fallbacks_see_too(tiny_checkpoint: Path) -> None:
    async with upstream_server() as one, upstream_server() as blind, upstream_server() as two:
        one.script = refusal(500, message="broken")
        two.script = refusal(500, message="broken too")
        common = {"model": "m", "tier": "large", "retries": {"most": 0}}
        upstreams = [
            {"id": "one", "base_url": one.url, **common, **ALL},
            {"id": "blind", "base_url": blind.url, **common},
            {"id": "two", "base_url": two.url, **common, **ALL},
        ]
        sections = {"upstreams": upstreams, "models": [], "routing": {"chain": ["one", "blind", "two"]}}
        async with site(tiny_checkpoint, **sections) as client, official(client) as ai:
            with pytest.raises(openai.APIStatusError) as caught:
                await ai.chat.completions.create(**asked(PICTURE, model="auto"))
            assert caught.value.status_code == 502
            two.script = None
            raw = await ai.chat.completions.with_raw_response.create(**asked(PICTURE, model="auto"))
            assert raw.headers["x-headgate-model"] == "two"
            assert raw.headers["x-headgate-route"].startswith("fallback:")
            assert blind.asked == []
            text = await ai.chat.completions.with_raw_response.create(**asked(LOOK, model="auto"))
            assert text.headers["x-headgate-model"] == "blind", "with text it is the next"


async def test_an_experiment_whose_model_sees_nothing_leaves_it_to_who_does(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
    write_team(tmp_path, "red", key("red"), experiments={"weights": {"up-0": 1.0}, "shadow": {"tiny": 1.0}})
    async with (
        upstream_server() as blind,
        upstream_server() as fake,
        mixed(tiny_checkpoint, blind, fake, teams=tmp_path) as client,
    ):
        headers = {"Authorization": "Bearer secret-of-red"}
        async with client.post("/v1/chat/completions", json=asked(PICTURE, model="auto"), headers=headers) as reply:
            assert reply.headers["x-headgate-model"] == "up-1", await reply.text()
            assert reply.headers["x-headgate-route"] == "fallback:refused"
        assert blind.asked == []
        text = await (await client.get("/metrics")).text()
        assert "headgate_shadow_requests_total{" not in text, "nothing was tried, so nothing failed"


async def test_the_same_bytes_are_answered_from_the_cache_and_others_are_not() -> None:
    async with upstream_server() as fake, before(fake, **ALL, input_urls=True) as client, official(client) as ai:
        other = {"type": "image_url", "image_url": {"url": URL[:-4] + "Li9="}}
        assert other != PICTURE
        away = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
        for parts, verdict in (
            ((LOOK, PICTURE), "miss"), ((LOOK, PICTURE), "exact"), ((PICTURE, LOOK), "miss"), ((LOOK, other), "miss"),
            ((LOOK,), "miss"), ((LOOK, away), "bypass"), ((LOOK, away), "bypass"), ((LOOK, FILE_PART), "miss"),
        ):  # fmt: skip
            raw = await ai.chat.completions.with_raw_response.create(**asked(*parts))
            assert raw.headers["x-headgate-cache"] == verdict
        assert len(fake.asked) == 7
        text = await (await client.get("/metrics")).text()
        assert 'headgate_cache_lookups_total{reason="url",verdict="bypass"} 2.0' in text


async def test_what_is_shown_is_reserved_by_an_estimate_and_settled_by_the_servers_account(tmp_path: Path) -> None:
    write_team(tmp_path, "red", key("red"), limits={"tokens_per_minute": 1500})
    async with upstream_server() as fake:
        fake.usage = {"prompt_tokens": 400, "completion_tokens": 3}
        upstream = {"id": "up", "base_url": fake.url, "model": "m", **ALL}
        async with site(Path("unused"), models=[], upstreams=[upstream], teams=tmp_path) as client:
            headers = {"Authorization": "Bearer secret-of-red", "cache-control": "no-store"}

            async def ask(*parts: Any) -> tuple[int, Any, str]:
                body = asked(*parts, max_tokens=10)
                async with client.post("/v1/chat/completions", json=body, headers=headers) as reply:
                    return reply.status, await reply.json(), reply.headers["x-ratelimit-remaining-tokens"]

            long = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "AAAA" * 20_000}}
            status, body, _ = await ask(LOOK, long)
            assert (status, body["usage"]["prompt_tokens"]) == (200, 400), "a picture, and not 80,000 letters"
            status, body, left = await ask(LOOK, PICTURE, PICTURE)
            assert (status, body["error"]["code"]) == (429, "rate_limit_exceeded")
            assert 1500 - 403 <= int(left) < 1500 - 403 + 100, "what was counted, and not what was set aside"


async def test_local_models_count_and_read_text_alone(tiny_checkpoint: Path) -> None:
    async with upstream_server() as fake, mixed(tiny_checkpoint, fake) as client:
        messages = [{"role": "user", "content": [PICTURE]}]
        async with client.post("/tokenize", json={"model": "tiny", "messages": messages}) as reply:
            error = (await reply.json())["error"]
        assert (error["param"], error["message"]) == (
            "messages[0].content[0]",
            "'messages[0].content[0]': the model 'tiny' takes no pictures.",
        )
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
        count = {"model": "tiny", "messages": [{"role": "user", "content": [image]}]}
        async with client.post("/v1/messages/count_tokens", json=count) as reply:
            assert (reply.status, "takes no pictures" in await reply.text()) == (400, True)
