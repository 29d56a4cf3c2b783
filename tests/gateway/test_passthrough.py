"""What upstreams serve beside chats, asked by the official client through a whole gateway."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
from gateway_site import forget_environment, gauges, site
from passing_upstream import (
    KEY,
    SOUND,
    Client,
    PassingUpstream,
    answering,
    before,
    cut,
    passing_upstream,
    refused,
    saying,
    then,
    upload,
)

RETRIES: dict[str, Any] = {"retries": {"most": 1, "first_wait_s": 0.001}}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_environment(monkeypatch)
    monkeypatch.setenv("UP_KEY", KEY)


@pytest.fixture
async def fake() -> AsyncIterator[PassingUpstream]:
    async with passing_upstream() as running:
        yield running


@pytest.fixture
async def client(fake: PassingUpstream) -> AsyncIterator[Client]:
    async with before(fake, RETRIES) as running:
        yield running


def official(client: Client, key: str = "any") -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=str(client.make_url("/v1")), api_key=key, max_retries=0)


@pytest.mark.filterwarnings("ignore:deprecated")
async def test_the_official_client_gets_what_the_upstream_answers(fake: PassingUpstream, client: Client) -> None:
    async with official(client) as ask:
        vectors = await ask.embeddings.create(model="other", input=["a", "b"], dimensions=2, user="ann")
        assert vectors.data[0].embedding == [0.5, -1.0]
        assert vectors.usage.prompt_tokens == 12
        judged = await ask.moderations.create(model="other", input="hm")
        assert judged.results[0].flagged
        images = await ask.images.generate(model="other", prompt="a cat", n=2, size="256x256")
        assert images.data is not None
        assert images.data[0].b64_json == "aGk="
        edited = await ask.images.edit(model="other", prompt="a dog", image=("cat.png", b"png", "image/png"))
        assert edited.usage is not None
        assert edited.usage.output_tokens == 7
        heard = await ask.audio.transcriptions.create(
            model="other", file=("a.wav", io.BytesIO(SOUND)), language="en", timestamp_granularities=["word"]
        )
        assert heard.text == "hello there"
        assert (await ask.audio.translations.create(model="other", file=("a.wav", b"x"))).text == "hello there"
        async with ask.audio.speech.with_streaming_response.create(model="other", input="Hi!", voice="v") as spoken:
            assert spoken.headers["content-type"] == "audio/mpeg"
            assert spoken.headers["x-headgate-model"] == "other"
            assert b"".join([piece async for piece in spoken.iter_bytes()]) == SOUND
    by_path = {asked.path: asked for asked in fake.asked}
    sent = by_path["/embeddings"]
    assert sent.body == {"model": "their-model", "input": ["a", "b"], "dimensions": 2, "encoding_format": "base64"}
    assert sent.headers["authorization"] == f"Bearer {KEY}"
    assert sent.headers["x-request-id"].startswith("req_")
    assert by_path["/images/generations"].body["model"] == "their-model"
    form = by_path["/audio/transcriptions"].body
    assert form.pop("file") == ("a.wav", "audio/x-wav", SOUND)
    assert form.pop("response_format", "json") == "json"
    assert form == {"model": "their-model", "language": "en", "timestamp_granularities[]": "word"}
    assert by_path["/images/edits"].body["image"] == ("cat.png", "image/png", b"png")


async def test_rerankers_are_asked_where_their_clients_ask(fake: PassingUpstream, client: Client) -> None:
    asked = {"model": "other", "query": "q", "documents": ["a", {"text": "b"}], "top_n": 1}
    for path in ("/v1/rerank", "/v2/rerank", "/rerank"):
        reply = await client.post(path, json=asked)
        assert (await reply.json())["results"] == [{"index": 1, "relevance_score": 0.9}]
        assert reply.headers["x-headgate-model"] == "other"
        assert float(reply.headers["x-headgate-overhead-ms"]) >= 0
        assert "x-headgate-cache" not in reply.headers
    for path in ("/v1/score", "/score"):
        reply = await client.post(path, json={"model": "other", "text_1": "a", "text_2": "b"})
        assert (await reply.json())["data"][0]["score"] == 0.4
    assert {a.path for a in fake.asked} == {"/rerank", "/score"}
    assert fake.asked[0].body == {**asked, "model": "their-model"}
    counted = await gauges(client)
    assert counted["headgate_prompt_tokens_total"] == 3 * 30 + 2 * 12
    assert counted["headgate_time_to_first_token_seconds_count"] == 0, "they come in one piece"
    text = await (await client.get("/metrics")).text()
    told = (
        'headgate_requests_total{code="200",endpoint="/v2/rerank",model="other",route="requested",team="default"} 1.0'
    )
    assert told in text
    assert 'headgate_upstream_attempts_total{end="answered",model="other"} 5.0' in text


async def test_text_and_events_of_transcriptions_come_as_they_are(fake: PassingUpstream, client: Client) -> None:
    fake.script = answering(200, b"1\n00:00 --> 00:01\nhi\n", "text/plain; charset=utf-8")
    reply = await client.post("/v1/audio/transcriptions", data=upload(response_format="srt"))
    assert (reply.headers["Content-Type"], await reply.text()) == (
        "text/plain; charset=utf-8",
        "1\n00:00 --> 00:01\nhi\n",
    )
    fake.script = answering(200, "hello")
    assert await (await client.post("/v1/audio/transcriptions", data=upload(response_format="text"))).json() == "hello"
    usage = {"type": "tokens", "input_tokens": 9, "output_tokens": 4, "total_tokens": 13}
    done = json.dumps({"type": "transcript.text.done", "text": "hi", "usage": usage})
    delta = 'data: {"type":"transcript.text.delta","delta":"hi"}'
    # The events are cut and their lines end as they like to.
    fake.script = saying(delta[:20], delta[20:] + "\r", "\n\r\n", f"event: done\ndata: {done}\n", "\n")
    async with official(client) as ask:
        stream = await ask.audio.transcriptions.create(model="other", file=("a.wav", b"x"), stream=True)
        kinds = [event.type async for event in stream]
    assert kinds == ["transcript.text.delta", "transcript.text.done"]
    assert fake.asked[-1].body["stream"] == "true"
    (latest, *_) = (await (await client.get("/admin/requests")).json())["requests"]
    assert (latest["prompt_tokens"], latest["completion_tokens"], latest["stream"]) == (9, 4, True)
    reply = await client.post("/v1/audio/transcriptions", data=upload(stream="true"))
    assert (await reply.text()).endswith(": x-headgate-cost-usd: 0\n\n")


async def test_what_is_not_served_is_refused_with_what_is(fake: PassingUpstream, tiny_checkpoint: Path) -> None:
    served = {"base_url": fake.url, "model": "theirs"}
    upstreams = [
        {"id": "vectors", "serves": ["embeddings"], **served},
        {"id": "both", "serves": ["chat", "embeddings"], **served},
        {"id": "ranker", "serves": ["rerank"], **served},
    ]
    hello = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
    async with site(tiny_checkpoint, upstreams=upstreams) as client:
        for model, path, message in (
            ("nobody", "/v1/rerank", "The model 'nobody' does not exist. Available: ranker."),
            ("vectors", "/v1/rerank", "The model 'vectors' does not serve /v1/rerank. Available: ranker."),
            ("tiny", "/v1/rerank", "The model 'tiny' does not serve /v1/rerank. Available: ranker."),
            ("ranker", "/v1/embeddings", "The model 'ranker' does not serve /v1/embeddings. Available: vectors, both."),
            ("ranker", "/v1/moderations", "No model that may be asked here serves /v1/moderations."),
            ("ranker", "/v1/chat/completions", "'ranker' does not serve chats. Available: auto, small, large, tiny, "),
        ):
            asked = {**hello, "input": "x", "query": "x", "documents": []} if "rerank" in path else {"input": "x"}
            found = await refused(client, path, json={"model": model, **(hello if "chat" in path else asked)})
            assert found[:3] == (404, "model_not_found", "model")
            assert message in found[3]
        status, code, param, message = await refused(client, "/v1/rerank", json={"query": "x"})
        assert (status, code, param) == (400, "missing_required_parameter", "model")
        assert message.endswith("Available: ranker.")
        models = {m["id"]: m for m in (await (await client.get("/v1/models")).json())["data"]}
        assert {name: models[name]["serves"] for name in ("tiny", "auto", "both", "ranker")} == {
            "tiny": ["chat"], "auto": ["chat"], "both": ["chat", "embeddings"], "ranker": ["rerank"],
        }  # fmt: skip
        assert (models["vectors"]["task"], models["ranker"]["task"], models["both"]["task"]) == (
            "embeddings", None, "generation",
        )  # fmt: skip
        # Nobody leaves a chat to who takes none.
        for _ in range(3):
            reply = await client.post("/v1/chat/completions", json={"model": "auto", **hello})
            assert reply.headers["x-headgate-model"] in ("tiny", "tiny-2")
        assert not fake.asked


async def test_a_server_that_takes_no_chats_says_so(client: Client) -> None:
    for model in ("auto", "other"):
        asked = {"model": model, "messages": [{"role": "user", "content": "hello"}]}
        found = await refused(client, "/v1/chat/completions", json=asked)
        assert found[:3] == (404, "model_not_found", "model")
        assert found[3].endswith("Available: no model, this server takes no chats.")
    assert [m["id"] for m in (await (await client.get("/v1/models")).json())["data"]] == ["other"]
    assert (await client.get("/ready")).status == 200
    assert (await (await client.get("/admin/live")).json())["models"][0]["upstream"]["ends"] == {}


async def test_what_cannot_be_read_is_refused_here(fake: PassingUpstream, client: Client) -> None:
    kind = {"Content-Type": "multipart/form-data; boundary=b"}
    part = b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nother\r\n'
    for path, asked, expected in (
        ("/v1/rerank", {"data": b"{", "headers": {"Content-Type": "application/json"}}, (400, "invalid_json", None)),
        ("/v1/rerank", {"json": {"model": 7}}, (400, "invalid_type", "model")),
        ("/v1/rerank", {"data": upload()}, (415, "unsupported_media_type", None)),
        ("/v1/audio/speech", {"json": {"model": "other"}}, (400, "missing_required_parameter", "input")),
        ("/v1/rerank", {"json": {"model": "other", "MODEL": "dear"}}, (400, "unknown_parameter", "MODEL")),
        (
            "/v1/audio/speech",
            {"json": {"model": "other", "input": "", "Input": "x"}},
            (400, "unknown_parameter", "Input"),
        ),
        ("/v1/images/generations", {"json": {"model": "other", "n": 0}}, (400, "integer_below_min_value", "n")),
        ("/v1/images/edits", {"data": upload(n="many")}, (400, "invalid_value", "n")),
        ("/v1/audio/transcriptions", {"json": {"model": "other"}}, (415, "unsupported_media_type", None)),
        ("/v1/audio/transcriptions", {"data": upload(stream="maybe")}, (400, "invalid_value", "stream")),
        ("/v1/audio/transcriptions", {"data": part, "headers": kind}, (400, "invalid_body", None)),
        (
            "/v1/audio/transcriptions",
            {"data": part + part + b"--b--", "headers": kind},
            (400, "invalid_value", "model"),
        ),
        ("/v1/audio/transcriptions", {"data": upload(model="")}, (400, "missing_required_parameter", "model")),
        ("/v1/audio/transcriptions", {"data": upload(b"x" * 11_000_000)}, (413, "request_too_large", None)),
    ):
        assert (await refused(client, path, **asked))[:3] == expected, (path, asked)
    assert not fake.asked


async def test_a_page_of_another_site_posts_no_forms(fake: PassingUpstream, client: Client) -> None:
    own = f"http://{client.host}:{client.port}"
    for origin, status in (("https://elsewhere.example", 403), ("null", 403), (own, 200)):
        headers = {"Origin": origin}
        assert (await client.post("/v1/audio/transcriptions", data=upload(), headers=headers)).status == status
    assert len(fake.asked) == 1


async def test_a_large_file_goes_through(fake: PassingUpstream, client: Client) -> None:
    data = SOUND * 30
    assert (await client.post("/v1/audio/transcriptions", data=upload(data))).status == 200
    assert fake.asked[0].body["file"] == ("a b.wav", "audio/wav", data)


async def test_what_fails_before_its_first_byte_is_asked_again(fake: PassingUpstream, client: Client) -> None:
    asks: dict[str, dict[str, Any]] = {
        "/v1/embeddings": {"json": {"model": "other", "input": "x"}},
        "/v1/audio/speech": {"json": {"model": "other", "input": "x"}},
        "/v1/audio/transcriptions": {},
    }
    for path, asked in asks.items():
        for failure in (answering(500), answering(429, retry_after_ms="1"), answering(200, b"<html>", "text/html")):
            fake.script = then(failure, None)(fake)
            reply = await client.post(path, **(asked or {"data": upload()}))
            assert reply.status == 200
            assert await reply.read()
            assert fake.asked[-1].body == fake.asked[-2].body, "a form can be sent twice"


async def test_without_retries_nothing_is_sent_twice_by_a_connection_that_is_lost(fake: PassingUpstream) -> None:
    async def gone(request: Any) -> Any:
        request.transport.abort()
        await asyncio.Event().wait()

    asked = {"json": {"model": "other", "prompt": "x"}}
    async with before(fake, {"retries": {"most": 0}}) as client:
        assert (await client.post("/v1/images/generations", **asked)).status == 200
        fake.script = gone
        assert (await refused(client, "/v1/images/generations", **asked))[:2] == (502, "upstream_unreachable")
        assert len(fake.asked) == 2


async def test_failures_have_a_status_of_their_own(fake: PassingUpstream) -> None:
    async def silent(_request: Any) -> Any:
        await asyncio.Event().wait()

    quick = {"retries": {"most": 0}, "timeouts": {"attempt_s": 0.05}, "breaker": {"failures": 100}}
    async with before(fake, quick) as client:
        for script, status, code in (
            (answering(500), 502, "upstream_failed"),
            (answering(429, Retry_After="60"), 503, "upstream_overloaded"),
            (answering(401), 502, "upstream_setup"),
            (answering(413, {"error": {"message": "too much"}}), 413, "upstream_refused"),
            (answering(400, {"error": {"message": "no", "param": "input", "code": "bad"}}), 400, "bad"),
            (answering(200, {"error": {"message": "hm"}}), 502, "upstream_failed"),
            (answering(200, b"{", "application/json"), 502, "upstream_broken"),
            (answering(200, b"sound", "audio/mpeg"), 502, "upstream_broken"),
            (silent, 504, "upstream_timeout"),
        ):
            fake.script = script
            reply = await client.post("/v1/embeddings", json={"model": "other", "input": "x"})
            assert (reply.status, (await reply.json())["error"]["code"]) == (status, code)
            if code == "upstream_overloaded":
                assert reply.headers["Retry-After"] == "60"
        # What is made before its head is sent may take longer.
        async with client.post(
            "/v1/images/generations", json={"model": "other", "prompt": "x"}, headers={"x-headgate-timeout-ms": "100"}
        ) as reply:
            assert (reply.status, (await reply.json())["error"]["code"]) == (408, "deadline_exceeded")


async def test_an_answer_that_is_cut_is_seen_to_be(fake: PassingUpstream, client: Client) -> None:
    fake.script = cut
    async with client.post("/v1/audio/speech", json={"model": "other", "input": "x"}) as reply:
        assert reply.status == 200
        with pytest.raises(aiohttp.ClientPayloadError):
            await reply.read()

    # Such as nginx speaks to servers unless it is told otherwise.
    body = b'{"model": "other", "input": "x"}'
    reader, writer = await asyncio.open_connection(client.host, client.port)
    head = b"POST /v1/audio/speech HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    writer.write(head % len(body) + body)
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()

    async def events(request: Any) -> Any:
        response = await saying("data: {}\n\n", "data: {")(request)
        request.transport.close()
        return response

    fake.script = events
    text = await (await client.post("/v1/audio/transcriptions", data=upload(stream="true"))).text()
    whole, error, end = text.split("\n\n")
    assert (whole, end) == ("data: {}", ""), "nothing of half an event"
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == "upstream_cut"
    text = await (await client.get("/metrics")).text()
    assert 'headgate_upstream_attempts_total{end="cut",model="other"} 3.0' in text
    assert len(fake.asked) == 3, "what was begun is not asked again"


async def test_an_event_that_tells_an_error_is_one(fake: PassingUpstream, client: Client) -> None:
    told = json.dumps({"type": "error", "error": {"message": f"no such key: {KEY}", "code": 401}})
    error, asked = f"event: error\ndata: {told}\n\n", {"model": "other", "prompt": "x", "stream": True}
    broken = 'data: {"type":"error","error":"\\ud800 \x00","usage":{}}\n\n'
    fake.script = then(saying(error.replace("401", "500")), saying(broken, "data: {}\n\n"))(fake)
    text = await (await client.post("/v1/images/generations", json=asked)).text()
    assert text == broken + "data: {}\n\n: x-headgate-cost-usd: 0\n\n", "nothing was passed on, so it was asked again"
    fake.script = saying(error)
    assert (await refused(client, "/v1/images/generations", json=asked))[:2] == (400, "401")
    gone = asyncio.Event()

    async def script(request: Any) -> Any:
        response = await saying("data: {}\n\n")(request)
        await gone.wait()
        await response.write(error.encode())
        return response

    fake.script = script
    reply = await client.post("/v1/images/generations", json=asked)
    assert await reply.content.readuntil(b"\n\n") == b"data: {}\n\n"
    gone.set()
    text = await reply.text()
    assert json.loads(text.removeprefix("data: "))["error"]["code"] == "401"
    assert KEY not in text


async def test_a_client_that_leaves_ends_the_work(fake: PassingUpstream, client: Client) -> None:
    async def endless(request: Any) -> Any:
        response = await saying("data: {}\n\n")(request)
        await fake.left.wait()
        return response

    fake.script = endless
    reply = await client.post("/v1/audio/speech", json={"model": "other", "input": "x"})
    assert await reply.content.readany() == b"data: {}\n\n"
    reply.close()
    await fake.left.wait()


async def test_an_upstream_that_goes_on_failing_is_left_alone(fake: PassingUpstream) -> None:
    section = {"retries": {"most": 0}, "breaker": {"failures": 2, "open_s": 60, "longest_s": 60}}
    async with before(fake, section) as client:
        fake.script = answering(500)
        asked = {"model": "other", "query": "x", "documents": ["y"]}
        codes = [(await refused(client, "/v1/rerank", json=asked))[1] for _ in range(3)]
        assert codes == ["upstream_failed", "upstream_failed", "upstream_down"]
        assert len(fake.asked) == 2
        assert 'headgate_route_breaker_state{model="other"} 2.0' in await (await client.get("/metrics")).text()
