"""`/v1/embeddings` with the bundled model behind a real server, and what is refused."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import time
from collections.abc import AsyncIterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np
import openai
import pytest
from aiohttp.test_utils import TestClient
from gateway_site import forget_environment, site
from passing_upstream import passing_upstream
from prometheus_client.parser import text_string_to_metric_families
from pydantic import ValidationError
from team_files import key, write_team

from headgate.cache.embedding.embedder import SentenceEmbedder
from headgate.cache.embedding.sentence_model import Vector
from headgate.engine.request import Priority
from headgate.gateway.embedding.embeddings import Embedding, Embeddings
from headgate.gateway.lifecycle import Lifecycle
from headgate.gateway.settings import EmbeddingsSection, Settings
from headgate.gateway.teams.admission import Admission
from headgate.gateway.teams.deadlines import Deadline
from headgate.gateway.teams.keys import Principal
from headgate.gateway.teams.ledger import FILE
from headgate.gateway.teams.ledger_file import read_usage
from headgate.gateway.teams.sections import SchedulingSection, TeamPolicy
from headgate.gateway.telemetry.record import RequestRecord
from headgate.gateway.wire.embeddings import parse_embedding
from headgate.gateway.wire.errors import ApiError

Client = TestClient[Any, Any]
MODEL = "all-minilm-l6-v2"
BUNDLED: dict[str, Any] = {"enabled": "auto"}
TEXTS = ["How do I reset my password?", "I forgot my password, how can I reset it?", "Bake a chocolate cake"]

pytestmark = pytest.mark.skipif(find_spec("sentence_transformers") is None, reason="no embedding package")


@pytest.fixture
async def client(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    forget_environment(monkeypatch)
    async with site(tiny_checkpoint, embeddings={**BUNDLED, "max_inputs": 8}) as running:
        yield running


async def test_the_official_client_gets_vectors_that_mean_something(client: Client) -> None:
    async with openai.AsyncOpenAI(base_url=str(client.make_url("/v1")), api_key="any", max_retries=0) as official:
        # The client asks for base64 by itself and decodes it.
        reply = await official.embeddings.create(model=MODEL, input=TEXTS)
        plain = await official.embeddings.create(model=MODEL, input=TEXTS[0], encoding_format="float")
        models = [m.id async for m in official.models.list()]
    one, other, cake = (np.array(item.embedding) for item in reply.data)
    assert [item.index for item in reply.data] == [0, 1, 2]
    assert np.linalg.norm(one) == pytest.approx(1.0, abs=1e-5)
    assert one @ other > 0.7 > 0.4 > one @ cake
    assert np.array(plain.data[0].embedding) @ one > 0.9999, "sums of bfloat16 round by the shape of the batch"
    assert models == ["tiny", "tiny-2", "auto", "small", "large", MODEL]
    assert (await (await client.get(f"/v1/models/{MODEL}")).json())["context_length"] == 256


async def test_usage_is_what_the_model_read_and_is_counted(client: Client) -> None:
    body = await (await client.post("/v1/embeddings", json={"model": MODEL, "input": ["hello world", "hi"]})).json()
    assert body["usage"] == {"prompt_tokens": 4 + 3, "total_tokens": 7}, "words and the marks at both ends"
    cut = {"model": MODEL, "input": "word " * 1000, "truncate_prompt_tokens": -1}
    assert (await (await client.post("/v1/embeddings", json=cut)).json())["usage"]["prompt_tokens"] == 256
    text = await (await client.get("/metrics")).text()
    samples = [s for f in text_string_to_metric_families(text) for s in f.samples]
    (counted,) = [s.value for s in samples if s.name == "headgate_prompt_tokens_total" and s.labels["model"] == MODEL]
    assert counted == 7 + 256
    (latest, _) = (await (await client.get("/admin/requests")).json())["requests"]
    told = await (await client.get(f"/admin/requests/{latest['id']}")).json()
    admit, answer = told["stages"]
    assert (admit["name"], answer["name"]) == ("admit", "answer"), "the time that it took is not that of letting it in"
    assert 0 < admit["end_s"] == answer["begin_s"] < answer["end_s"] == latest["total_s"]


async def test_base64_is_little_endian_float32(client: Client) -> None:
    asked = {"model": MODEL, "input": "hello", "encoding_format": "base64"}
    (item,) = (await (await client.post("/v1/embeddings", json=asked)).json())["data"]
    vector = np.frombuffer(base64.b64decode(item["embedding"]), "<f4")
    assert vector.shape == (384,)
    assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(
    ("change", "code", "param"),
    [
        ({"input": []}, "empty_array", "input"),
        ({"input": ""}, "empty_string", "input"),
        ({"input": ["a", ""]}, "empty_string", "input[1]"),
        ({"input": ["a", None]}, "invalid_type", "input[1]"),
        ({"input": [1, 2]}, "unsupported_parameter", "input"),
        ({"input": [[1, 2]]}, "unsupported_parameter", "input"),
        ({"dimensions": 128}, "unsupported_parameter", "dimensions"),
        ({"encoding_format": "hex"}, "invalid_value", "encoding_format"),
        ({"truncate_prompt_tokens": 5}, "invalid_value", "truncate_prompt_tokens"),
        ({"modle": "x"}, "unknown_parameter", "modle"),
    ],
)
def test_what_is_refused_names_the_parameter(change: dict[str, Any], code: str, param: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_embedding(json.dumps({"model": MODEL, "input": "x", **change}).encode())
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, code, param)


async def test_what_the_model_cannot_read_is_refused(client: Client) -> None:
    for change, status, code, param in (
        ({"model": "tiny"}, 404, "model_not_found", "model"),
        ({"input": ["a"] * 9}, 400, "array_above_max_length", "input"),
        ({"input": ["a", "word " * 400]}, 400, "context_length_exceeded", "input[1]"),
    ):
        response = await client.post("/v1/embeddings", json={"model": MODEL, "input": "x", **change})
        error = (await response.json())["error"]
        assert (response.status, error["code"], error["param"]) == (status, code, param)


async def test_limits_hold_for_vectors_too(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_environment(monkeypatch)
    async with site(tiny_checkpoint, embeddings=BUNDLED, defaults={"limits": {"tokens_per_minute": 10}}) as client:
        asked = {"model": MODEL, "input": ["hello world", "hi"]}
        first = await client.post("/v1/embeddings", json=asked)
        second = await client.post("/v1/embeddings", json=asked)
        assert (first.status, second.status) == (200, 429)
        assert (await second.json())["error"]["type"] == "rate_limit_error"
        assert int(second.headers["Retry-After"]) > 0
        small = await client.post("/v1/embeddings", json={"model": MODEL, "input": "hi"})
        assert small.status == 200, "7 of 10 tokens are used, and what was refused took none"
        refused = await client.post(
            "/v1/messages", json={"model": "tiny", "max_tokens": 8, "messages": [{"role": "user", "content": "hello"}]}
        )
        assert (refused.status, (await refused.json())["error"]["type"]) == (429, "rate_limit_error")
        metrics = await (await client.get("/metrics")).text()
        assert re.search(r'headgate_refused_requests_total\{reason="tokens",team="\w+"\} 2\.0', metrics)


async def test_vectors_are_billed_and_a_retry_of_them_is_not(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    forget_environment(monkeypatch)
    parts: dict[str, Any] = {
        "embeddings": {**BUNDLED, "usd_per_million_tokens": 1000},
        "defaults": {"budgets": {"daily_usd": 0.016}},
        "logging": {"content": "redacted"},
        "storage": {"folder": str(tmp_path)},
    }
    asked = {"model": MODEL, "input": ["hello world", "12345"]}
    async with site(tiny_checkpoint, **parts) as client:
        with caplog.at_level("INFO", logger="headgate.content"):
            told = []
            for count in ("0", "1", "0", "0"):
                headers = {"x-stainless-retry-count": count, "x-request-id": f"id-{len(told)}"}
                reply = await client.post("/v1/embeddings", json=asked, headers=headers)
                told.append((reply.status, reply.headers.get("x-headgate-cost-usd")))
    # Each of the two texts is read as 4 tokens, the marks at its ends included.
    assert told == [(200, "0.008"), (200, "0"), (200, "0.008"), (429, None)], "a budget that is spent is spent"
    rows = {cause: counts for cause, *counts in read_usage(tmp_path / FILE, ("cause",), None, None)}
    assert set(rows) == {"generated", "retried"}
    requests, prompt, _, _, device_us, nano_usd, _ = rows["generated"]
    assert (requests, prompt, nano_usd) == (3, 16, 16_000_000)
    assert int(str(device_us)) > 0
    assert rows["retried"] == [0, 8, 0, 0, 0, 0, 0]
    content = [json.loads(r.message) for r in caplog.records if r.name == "headgate.content"]
    assert content[0] == {"id": "id-0", "team": "default", "asked": ["hello world", "[number]"]}


class Fake:
    """A model that reads a text as so many tokens as it has letters, a pass when it is let through."""

    longest = 1_000_000

    def __init__(self) -> None:
        self.gate, self.begun = asyncio.Semaphore(0), asyncio.Event()

    def lengths(self, texts: Sequence[str], *, cut: bool = False) -> list[int]:
        return [min(len(text), self.longest if cut else len(text)) for text in texts]

    async def passages(self, texts: Sequence[str]) -> tuple[list[Vector], float]:
        self.begun.set()
        await self.gate.acquire()
        return [np.zeros(1, np.float32) for _ in texts], 1.0


async def test_vectors_come_in_time_or_not_at_all(tmp_path: Path) -> None:
    fake = Fake()
    part = Embeddings(EmbeddingsSection(id="mine", folder=str(tmp_path)), Lifecycle(), Admission())
    await part.load(cast(SentenceEmbedder, fake), tmp_path)

    async def embed(*texts: str, seconds: float = 60.0, priority: Priority = "foreground") -> RequestRecord:
        record = RequestRecord("id", "/v1/embeddings", arrived=time.monotonic())
        record.deadline = Deadline(seconds, streams=True)
        policy = TeamPolicy(scheduling=SchedulingSection(max_queue_s=0.1, priority="interactive"))
        asked = Embedding("mine", Principal("red", policy=policy), record, priority=priority)
        await part.embed(asked, texts, cut=False, wait_s=0)
        return record

    # A pass takes the first text. Until it is let through 600 tokens wait, which take 0.12 s at first.
    first = asyncio.create_task(embed("a" * 600, "b" * 600))
    await fake.begun.wait()
    for seconds in (60, 0.05):
        with pytest.raises(ApiError, match="s, and this request waits at most") as caught:
            await embed("c", seconds=seconds)
        assert (caught.value.status, caught.value.code) == (503, "overloaded")
    fake.gate.release()
    fake.begun.clear()
    await fake.begun.wait()
    with pytest.raises(ApiError) as caught:
        await embed("d", seconds=0.2)
    assert (caught.value.status, caught.value.code) == (408, "deadline_exceeded")
    for _ in range(2):
        fake.gate.release()
    await asyncio.gather(first, embed("e", priority="background"))
    await part.close()


async def test_a_server_without_the_model_says_so(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_environment(monkeypatch)
    async with site(tiny_checkpoint, embeddings={"enabled": False}) as client:
        response = await client.post("/v1/embeddings", json={"model": MODEL, "input": "x"})
        assert response.status == 404
        assert "switched off" in (await response.json())["error"]["message"]
        assert MODEL not in [m["id"] for m in (await (await client.get("/v1/models")).json())["data"]]


async def test_keys_see_only_the_models_they_may_ask(
    tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    forget_environment(monkeypatch)
    monkeypatch.setenv("RED_KEY", "red-secret-key-1")
    write_team(tmp_path, "red", key("red"), models={"allow": ["tiny"]})
    async with site(tiny_checkpoint, teams=tmp_path, embeddings=BUNDLED) as client:
        client.session.headers["Authorization"] = "Bearer red-secret-key-1"
        assert [m["id"] for m in (await (await client.get("/v1/models")).json())["data"]] == ["tiny"]
        assert (await client.get("/v1/models/tiny-2")).status == 404
        assert (await client.post("/v1/embeddings", json={"model": MODEL, "input": "x"})).status == 403


async def test_an_alias_of_the_model_is_listed(
    tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    forget_environment(monkeypatch)
    monkeypatch.setenv("RED_KEY", "red-secret-key-1")
    alias = "text-embedding-3-small"
    write_team(tmp_path, "red", key("red"), models={"allow": ["tiny", MODEL], "aliases": {alias: MODEL}})
    async with site(tiny_checkpoint, teams=tmp_path, embeddings=BUNDLED) as client:
        client.session.headers["Authorization"] = "Bearer red-secret-key-1"
        assert [m["id"] for m in (await (await client.get("/v1/models")).json())["data"]] == ["tiny", alias, MODEL]
        found = await (await client.get(f"/v1/models/{alias}")).json()
        assert found == {**await (await client.get(f"/v1/models/{MODEL}")).json(), "id": alias}
        assert (await client.post("/v1/embeddings", json={"model": alias, "input": "x"})).status == 200


async def test_embeddings_of_this_process_and_of_others_have_one_endpoint(
    tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_environment(monkeypatch)
    async with passing_upstream() as fake:
        served = {"base_url": fake.url, "model": "theirs", "serves": ["embeddings"]}
        parts: dict[str, Any] = {"embeddings": BUNDLED, "upstreams": [{"id": "one", **served}]}
        async with site(tiny_checkpoint, **parts) as client:
            for model, size in ((MODEL, 384), ("one", 2)):
                reply = await client.post("/v1/embeddings", json={"model": model, "input": "hello"})
                assert len((await reply.json())["data"][0]["embedding"]) == size
            reply = await client.post("/v1/embeddings", json={"model": "two", "input": "hello"})
            assert (await reply.json())["error"][
                "message"
            ] == f"The model 'two' does not exist. Available: one, {MODEL}."
            reply = await client.post("/v1/embeddings", json={"input": "hello"})
            assert (await reply.json())["error"]["message"] == "Missing required parameter: 'model'."


def test_settings_that_cannot_be_meant_are_refused() -> None:
    with pytest.raises(ValidationError, match="an id of its own"):
        Settings(embeddings={"folder": "/models/mine"})
    with pytest.raises(ValidationError, match="given twice"):
        Settings(embeddings={"id": "demo-student"})
