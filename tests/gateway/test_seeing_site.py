"""Models of this process that see: pictures by the official clients, through a whole gateway."""

from __future__ import annotations

import asyncio
import base64
import importlib.util
import json
import logging
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anthropic
import numpy as np
import openai
import pytest
import yaml
from click.testing import CliRunner
from gateway_site import Client, forget_environment, gauges, site, until
from pictures_made import data_url, file_of, gradient, hollow_png, shown
from seeing_models import TEMPLATE, write_seeing
from team_files import key, write_team
from upstream_gateway import KEY
from upstream_server import upstream_server

from headgate.engine.stepping.seeing import Seeing
from headgate.gateway import keys
from headgate.gateway.cli import main
from headgate.gateway.local.destination import LocalDestination
from headgate.gateway.road.request import CacheControl
from headgate.gateway.teams.keys import Principal
from headgate.gateway.wire.chat import parse_chat

LOOK = {"type": "text", "text": "What is this?"}
RED, OTHER = file_of(gradient(40, 28)), file_of(gradient(40, 28, seed=3))
LARGE = file_of(gradient(1024, 1024))


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_environment(monkeypatch)
    monkeypatch.setenv("UP_KEY", KEY)
    monkeypatch.setenv("RED_KEY", "secret-of-red")


@asynccontextmanager
async def seeing(checkpoint: Path, **sections: Any) -> AsyncIterator[tuple[Client, openai.AsyncOpenAI]]:
    models = [{"id": "eyes", "path": str(checkpoint), "tier": "large"}]
    async with (
        site(checkpoint, **{"models": models, **sections}) as client,
        openai.AsyncOpenAI(base_url=str(client.make_url("/v1")), api_key="any", max_retries=0) as ai,
    ):
        yield client, ai


def asked(*parts: Any, model: str = "eyes", **fields: Any) -> Any:
    return {
        "model": model, "messages": [{"role": "user", "content": list(parts)}], "temperature": 0, "max_tokens": 4,
        **fields,
    }  # fmt: skip


async def refusal(ai: openai.AsyncOpenAI, request: Any) -> tuple[str | None, str | None, str]:
    with pytest.raises(openai.BadRequestError) as caught:
        await ai.chat.completions.create(**request)
    error: Any = caught.value.body
    return error["param"], error["code"], error["message"]


async def test_a_chat_with_a_picture_is_answered_streamed_and_not(seeing_checkpoint: Path) -> None:
    async with seeing(seeing_checkpoint) as (_, ai):
        request = asked(LOOK, shown(RED), extra_headers={"cache-control": "no-cache"})
        whole = await ai.chat.completions.create(**request)
        text = whole.choices[0].message.content
        pieces = [e async for e in await ai.chat.completions.create(**request, stream=True)]
        assert text == "".join(e.choices[0].delta.content or "" for e in pieces if e.choices)
        assert whole.usage is not None
        bare = await ai.chat.completions.create(**asked(LOOK))
        assert bare.usage is not None
        assert whole.usage.prompt_tokens > bare.usage.prompt_tokens, "its tokens count, as they are"


async def test_tokens_of_pictures_are_told_apart_streamed_and_stored_too(seeing_checkpoint: Path) -> None:
    options = {"stream": True, "stream_options": {"include_usage": True}}
    async with seeing(seeing_checkpoint) as (client, _):

        async def used(*parts: Any, **fields: Any) -> Any:
            async with client.post("/v1/chat/completions", json=asked(*parts, **fields)) as reply:
                if "stream" not in fields:
                    return reply.headers["x-headgate-cache"], (await reply.json())["usage"]
                events = [line for line in (await reply.text()).split("\n") if line.startswith("data: {")]
                return reply.headers["x-headgate-cache"], json.loads(events[-1].removeprefix("data: "))["usage"]

        text = (await used(LOOK))[1]
        for fields, verdict in (({}, "miss"), ({}, "exact"), (options, "exact"), ({**options, "n": 2}, "miss")):
            found, usage = await used(LOOK, shown(RED), shown(OTHER), **fields)
            details = usage["prompt_tokens_details"]
            assert found == verdict
            assert details["image_tokens"] == usage["prompt_tokens"] - text["prompt_tokens"] > 2
            assert details["text_tokens"] == text["prompt_tokens"] == text["prompt_tokens_details"]["text_tokens"]


async def test_the_same_picture_is_found_again_and_another_never(seeing_checkpoint: Path) -> None:
    async with seeing(seeing_checkpoint) as (_, ai):
        for parts, verdict in (
            ((LOOK, shown(RED)), "miss"), ((LOOK, shown(RED)), "exact"), ((LOOK, shown(OTHER)), "miss"),
            ((shown(RED), LOOK), "miss"), ((LOOK, shown(RED, detail="low")), "miss"), ((LOOK, shown(OTHER)), "exact"),
            ((LOOK,), "miss"),
        ):  # fmt: skip
            raw = await ai.chat.completions.with_raw_response.create(**asked(*parts))
            assert raw.headers["x-headgate-cache"] == verdict


async def test_what_nobody_can_see_is_refused_by_its_place(seeing_checkpoint: Path) -> None:
    async with seeing(seeing_checkpoint, server={"max_pictures": 3, "max_pixels": 1_500_000}) as (client, ai):
        for parts, place, code in (
            ((LOOK, shown(RED[:60])), 1, "image_parse_error"),
            ((shown(RED), shown(b"MZ nothing")), 1, "invalid_image_format"),
            ((LOOK, shown(hollow_png(50_000, 50_000))), 1, "image_too_large"),
            ((shown(LARGE), LOOK, shown(LARGE)), 2, "image_too_large"),
            ((LOOK, *[shown(RED)] * 4), 4, "too_many_images"),
            ((shown(RED), LOOK, shown(file_of(gradient(1, 1)))), 2, "invalid_image"),
        ):
            param, found, message = await refusal(ai, asked(*parts))
            assert (param, found) == (f"messages[0].content[{place}]", code)
            assert param in message
        away = {"type": "image_url", "image_url": {"url": "http://169.254.169.254/latest/meta-data"}}
        param, code, message = await refusal(ai, asked(LOOK, away))
        assert (param, code) == ("messages[0].content[1]", "unsupported_parameter")
        assert "the model 'eyes' takes no pictures by an http(s) URL (send a data URL)" in message
        assert not {"code 200", "code 500"} & set(await gauges(client))


async def test_little_detail_takes_fewer_tokens(seeing_checkpoint: Path, tmp_path: Path) -> None:
    sharp = shutil.copytree(seeing_checkpoint, tmp_path / "sharp")
    processor = json.loads((sharp / "preprocessor_config.json").read_text())
    (sharp / "preprocessor_config.json").write_text(json.dumps({**processor, "size": {"longest_edge": 700}}))
    async with seeing(sharp) as (client, _):
        counts = []
        for detail in ("high", "low"):
            body = {"model": "eyes", "messages": asked(shown(LARGE, detail=detail))["messages"]}
            async with client.post("/tokenize", json=body) as reply:
                counts.append((await reply.json())["count"])
        # 25 and 19 rows of as many squares of 28 pixels, and the end of each row.
        assert counts[0] - counts[1] == 25 * 26 - 19 * 20


async def test_auto_leads_to_who_sees(seeing_checkpoint: Path, tiny_checkpoint: Path) -> None:
    models = [
        {"id": "blind", "path": str(tiny_checkpoint), "tier": "small"},
        {"id": "shut", "path": str(seeing_checkpoint), "tier": "large", "lacks": ["vision"]},
        {"id": "eyes", "path": str(seeing_checkpoint), "tier": "large"},
    ]
    async with upstream_server() as fake:
        upstreams = [{"id": "up", "base_url": fake.url, "model": "m", "tier": "large"}]
        sections: dict[str, Any] = {"models": models, "upstreams": upstreams}
        async with seeing(seeing_checkpoint, **sections) as (client, ai):
            for model in ("auto", "large", "small"):
                raw = await ai.chat.completions.with_raw_response.create(**asked(LOOK, shown(RED), model=model))
                assert raw.headers["x-headgate-model"] == "eyes"
            assert fake.asked == []
            async with client.post("/admin/route", json=asked(shown(RED), model="auto")) as reply:
                report = await reply.json()
            assert (report["model"], report["fallbacks"]) == ("eyes", [])
            excluded = {weighed["model"]: weighed["excluded"] for weighed in report["destinations"]}
            assert excluded == dict.fromkeys(("blind", "shut", "up"), "lacks_vision") | {"eyes": ""}
            for model in ("blind", "shut"):
                param, _, message = await refusal(ai, asked(LOOK, shown(RED), model=model))
                assert param == "messages[0].content[1]"
                assert message.endswith(f"the model '{model}' takes no pictures. Models that do: 'eyes'.")
            # What is wrong with a picture is said, and not that the others take none.
            for model in ("auto", "small", "large"):
                assert (await refusal(ai, asked(LOOK, shown(RED[:60]), model=model)))[1] == "image_parse_error"


async def test_a_url_leads_to_an_upstream_that_fetches_and_a_broken_model_to_one_that_sees(
    seeing_checkpoint: Path,
) -> None:
    async with upstream_server() as fake:
        upstreams = [{"id": "up", "base_url": fake.url, "model": "m", "inputs": ["image"], "input_urls": True}]
        models = [{"id": "eyes", "path": str(seeing_checkpoint), "tier": "large"}]
        upstreams[0]["tier"] = "large"
        sections = {"models": models, "upstreams": upstreams, "server": {"max_pictures": 1}}
        async with seeing(seeing_checkpoint, **sections) as (_, ai):
            away = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
            for parts in ((LOOK, away), (shown(RED), shown(OTHER))):
                raw = await ai.chat.completions.with_raw_response.create(**asked(*parts, model="auto"))
                assert raw.headers["x-headgate-model"] == "up"
            assert len(fake.asked) == 2


async def test_tokens_are_counted_as_they_are(seeing_checkpoint: Path, tmp_path: Path) -> None:
    write_team(tmp_path, "red", key("red"), limits={"tokens_per_minute": 300})
    async with seeing(seeing_checkpoint, teams=tmp_path) as (client, _):
        headers = {"Authorization": "Bearer secret-of-red", "cache-control": "no-store"}
        body = asked(LOOK, shown(RED))
        async with client.post("/v1/chat/completions", json=body, headers=headers) as reply:
            assert reply.status == 200, "a guess of a thousand would not have fitted"
            used = (await reply.json())["usage"]["prompt_tokens"]
        counted = {"model": "eyes", "messages": body["messages"]}
        async with client.post("/tokenize", json=counted, headers=headers) as reply:
            assert (await reply.json())["count"] == used
        image = {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": base64.b64encode(RED).decode()},
        }
        said = {"model": "eyes", "messages": [{"role": "user", "content": [LOOK, image]}]}
        async with client.post("/v1/messages/count_tokens", json=said, headers=headers) as reply:
            assert (await reply.json())["input_tokens"] == used
        many = asked(LOOK, *[shown(LARGE)] * 15)
        async with client.post("/v1/chat/completions", json=many, headers=headers) as reply:
            error = (await reply.json())["error"]
            assert (reply.status, error["code"]) == (429, "rate_limit_exceeded")
        async with client.post("/tokenize", json={**counted, "messages": asked(shown(b"x"))["messages"]},
                               headers=headers) as reply:  # fmt: skip
            error = (await reply.json())["error"]
            assert (reply.status, error["param"]) == (400, "messages[0].content[0]")


async def test_a_picture_that_leaves_no_room_is_too_long_a_prompt(seeing_checkpoint: Path) -> None:
    models = [{"id": "eyes", "path": str(seeing_checkpoint), "tier": "large", "context_length": 128}]
    async with seeing(seeing_checkpoint, models=models) as (_, ai):
        assert (await refusal(ai, asked(LOOK, *[shown(LARGE)] * 7)))[:2] == ("messages", "context_length_exceeded")


async def test_anthropics_client_and_responses_show_pictures_too(seeing_checkpoint: Path) -> None:
    async with seeing(seeing_checkpoint) as (client, ai):
        chat = await ai.chat.completions.create(**asked(LOOK, shown(RED)))
        said = chat.choices[0].message.content
        image: Any = {"type": "input_image", "image_url": data_url(RED)}
        content: Any = [{"type": "input_text", "text": LOOK["text"]}, image]
        first = await ai.responses.create(
            model="eyes", input=[{"role": "user", "content": content}], temperature=0, max_output_tokens=4
        )
        assert first.output_text == said
        after = await ai.responses.create(
            model="eyes", input="And?", previous_response_id=first.id, max_output_tokens=4
        )
        assert after.usage is not None
        assert first.usage is not None
        assert after.usage.input_tokens > first.usage.input_tokens, "it is shown again"
        claude = anthropic.AsyncAnthropic(base_url=str(client.make_url("/")), api_key="any", max_retries=0)
        source: Any = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(RED).decode()}
        async with claude:
            blocks: Any = [LOOK, {"type": "image", "source": source}]
            answer = await claude.messages.create(
                model="eyes",
                max_tokens=4,
                messages=[{"role": "user", "content": blocks}],
                extra_body={"temperature": 0},
            )
            assert answer.content[0].type == "text"
            assert answer.content[0].text == said
            broken: Any = {**source, "data": source["data"][:80]}
            with pytest.raises(anthropic.BadRequestError, match=r"messages\[0\]\.content\[0\]"):
                await claude.messages.create(
                    model="eyes", max_tokens=4,
                    messages=[{"role": "user", "content": [{"type": "image", "source": broken}]}],
                )  # fmt: skip


async def test_nothing_of_a_picture_is_logged(
    seeing_checkpoint: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    write_team(tmp_path, "red", key("red"), logging={"content": "full"})
    async with seeing(seeing_checkpoint, teams=tmp_path) as (client, _):
        headers = {"Authorization": "Bearer secret-of-red"}
        for file, status in ((RED, 200), (RED[:60], 400), (b"MZ" + RED, 400)):
            body = asked(LOOK, shown(file))
            async with client.post("/v1/chat/completions", json=body, headers=headers) as reply:
                assert reply.status == status
        metrics = await (await client.get("/metrics", headers=headers)).text()
    told = "\n".join([caplog.text, metrics])
    assert '"attached": ["image"]' in told
    data = base64.b64encode(RED).decode()
    assert not any(data[at : at + 16] in told for at in range(0, len(data) - 16, 16))


async def test_without_pillow_a_model_takes_none(
    seeing_checkpoint: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "PIL" else find(name, *rest))
    async with seeing(seeing_checkpoint) as (_, ai):
        assert "the model 'eyes' takes no pictures" in (await refusal(ai, asked(LOOK, shown(RED))))[2]
        await ai.chat.completions.create(**asked(LOOK))
    assert "pip install 'headgate[pictures]'" in caplog.text


async def test_who_asks_the_same_at_the_same_time_shares_an_answer_and_others_do_not(seeing_checkpoint: Path) -> None:
    async with seeing(seeing_checkpoint) as (client, ai):
        ask = ai.chat.completions.with_raw_response.create
        asking = [ask(**asked(LOOK, shown(file), max_tokens=24)) for file in (RED, RED, OTHER)]
        found = [raw.headers["x-headgate-cache"] for raw in await asyncio.gather(*asking)]
        assert sorted(found) == ["exact", "miss", "miss"]
        assert found[2] == "miss"
        assert (await gauges(client))["headgate_generation_tokens_total"] == 48


async def test_what_functions_show_is_seen_where_the_template_shows_it(seeing_checkpoint: Path, tmp_path: Path) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    request = asked(LOOK, logprobs=True)
    request["messages"] += [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "here"}, shown(RED)]},
    ]
    async with seeing(seeing_checkpoint) as (_, ai):
        one = await ai.chat.completions.create(**request)
        request["messages"][-1]["content"][1] = shown(OTHER)
        other = await ai.chat.completions.create(**request)
        assert one.choices[0].logprobs != other.choices[0].logprobs
    as_text = TEMPLATE.replace("m['content'] is string", "m['content'] is string or m['role'] == 'tool'")
    async with seeing(write_seeing(tmp_path / "plain", "mistral3", as_text)) as (_, ai):
        param, code, message = await refusal(ai, request)
        assert (param, code) == ("messages[2].content[1]", "unsupported_parameter")
        assert "does not show what functions give" in message


async def test_lines_of_a_batch_have_pictures(seeing_checkpoint: Path, tmp_path: Path) -> None:
    async with seeing(seeing_checkpoint, storage={"folder": str(tmp_path)}) as (_, ai):
        said = await ai.chat.completions.create(**asked(LOOK, shown(RED)))
        lines = [
            json.dumps({"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body})
            for name, body in (("good", asked(LOOK, shown(RED))), ("cut", asked(LOOK, shown(RED[:60]))))
        ]
        file = await ai.files.create(file=("in.jsonl", "\n".join(lines).encode()), purpose="batch")
        batch = await ai.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
        async with asyncio.timeout(20):
            while batch.status not in ("completed", "failed"):
                batch = await ai.batches.retrieve(batch.id)
        assert batch.output_file_id is not None
        assert batch.error_file_id is not None
        good = json.loads((await ai.files.content(batch.output_file_id)).text)["response"]["body"]
        assert good["choices"][0]["message"]["content"] == said.choices[0].message.content
        bad = json.loads((await ai.files.content(batch.error_file_id)).text)["response"]["body"]
        assert (bad["error"]["param"], bad["error"]["code"]) == ("messages[0].content[1]", "image_parse_error")


async def test_probes_scores_and_the_prefix_cache_see_which_picture_it_is(seeing_checkpoint: Path) -> None:
    async with seeing(seeing_checkpoint) as (client, _):
        eyes = client.app[keys.LOADER].backend.routes.destination("eyes")
        assert isinstance(eyes, LocalDestination)
        assert eyes.pictures is not None
        who, none = Principal("red"), CacheControl()
        one, other = [
            await eyes.prepare(parse_chat(json.dumps(asked(LOOK, shown(file), shown(LARGE))).encode(), none))
            for file in (RED, OTHER)
        ]
        assert one.prompt == other.prompt, "pictures of one size are the same tokens"
        assert eyes.resident(one, who) == 0
        state = await eyes.probe(one, who)
        assert state is not None
        assert eyes.resident(one, who) == len(one.prompt) - 1
        # What stands before the picture is the same, in whole blocks of 16.
        assert eyes.resident(other, who) <= one.sights("red")[0].start
        assert eyes.resident(one, Principal("blue")) == 0
        second = await eyes.probe(other, who)
        assert second is not None
        assert not np.array_equal(state, second)
        scores = [(await eyes.score(prepared, (5, 6), "s", who)).mean for prepared in (one, other)]
        assert scores[0] != scores[1]
        assert eyes.pictures.nbytes > 0
        del one, other
        assert eyes.pictures.nbytes == 0


async def test_what_a_model_saw_for_a_team_is_looked_at_again_for_another(
    seeing_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BLUE_KEY", "secret-of-blue")
    write_team(tmp_path, "red", key("red"))
    write_team(tmp_path, "blue", key("blue"))
    real, looks = Seeing.look, list[None]()

    def look(self: Seeing, *sights: Any) -> Any:
        looks.append(None)
        return real(self, *sights)

    monkeypatch.setattr(Seeing, "look", look)
    async with seeing(seeing_checkpoint, teams=tmp_path) as (client, _):
        for team, text, count in (("red", "a", 1), ("red", "b", 1), ("blue", "a", 2), ("blue", "b", 2)):
            headers = {"Authorization": f"Bearer secret-of-{team}"}
            body = asked({"type": "text", "text": text}, shown(RED))
            async with client.post("/v1/chat/completions", json=body, headers=headers) as reply:
                assert reply.status == 200
            assert len(looks) == count


async def test_prepared_pictures_are_bounded_and_go_with_their_answers(seeing_checkpoint: Path) -> None:
    async with seeing(seeing_checkpoint, server={"max_picture_bytes": 1}) as (client, ai):
        stream = await ai.chat.completions.create(**asked(LOOK, shown(RED), max_tokens=400), stream=True)
        await anext(stream)
        with pytest.raises(openai.InternalServerError) as caught:
            await ai.chat.completions.create(**asked(LOOK, shown(OTHER)))
        assert caught.value.status_code == 503
        assert "retry-after" in caught.value.response.headers
        await ai.chat.completions.create(**asked(LOOK))
        assert (await gauges(client))["headgate_picture_bytes"] > 0
        await stream.close()
        await until(client, lambda found: found["headgate_requests_running"] == 0)
        await until(client, lambda found: found["headgate_picture_bytes"] == 0)
        await ai.chat.completions.create(**asked(LOOK, shown(OTHER)))


def test_it_is_explained_without_a_server(seeing_checkpoint: Path, tiny_checkpoint: Path, tmp_path: Path) -> None:
    models = [
        {"id": "blind", "path": str(tiny_checkpoint), "tier": "small"},
        {"id": "eyes", "path": str(seeing_checkpoint), "tier": "large"},
    ]
    config, body = tmp_path / "headgate.yaml", tmp_path / "request.json"
    cache = {"redis": "off", "semantic": {"enabled": False}}
    config.write_text(yaml.safe_dump({"models": models, "cache": cache, "teams": {"folder": None}}))
    body.write_text(json.dumps(asked(LOOK, shown(LARGE), model="auto")))
    told = CliRunner().invoke(main, ["explain", "--request", str(body), "--config", str(config), "--json"])
    assert told.exit_code == 0, told.output
    report = json.loads(told.stdout)
    assert report["model"] == "eyes"
    weighed = {entry["model"]: entry for entry in report["destinations"]}
    assert weighed["blind"]["excluded"] == "lacks_vision"
    assert weighed["eyes"]["price"]["computed_tokens"] > 20, "those of the picture are among them"
    body.write_text(json.dumps(asked(LOOK, shown(RED[:60]), model="eyes")))
    told = CliRunner().invoke(main, ["explain", "--request", str(body), "--config", str(config)])
    assert "'messages[0].content[1]': the picture is damaged or cut off." in told.output
