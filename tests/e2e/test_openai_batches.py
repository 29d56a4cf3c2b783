"""Files and batches by the official client, against a real server; the server killed, and its disk full."""

from __future__ import annotations

import json
import resource
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types import Batch
from server_process import ServerProcess, run_server

CHAT: Any = "/v1/chat/completions"
# The embedding model takes seconds to load, and these tests do not need it.
PLAIN = {"HEADGATE_CACHE__SEMANTIC__ENABLED": "false", "HEADGATE_EMBEDDINGS__ENABLED": "false"}


def lines(count: int, **body: Any) -> bytes:
    asks = [
        {
            "custom_id": f"ask-{n}",
            "method": "POST",
            "url": CHAT,
            "body": {"model": "small", "messages": [{"role": "user", "content": f"What is {n} plus {n}?"}], **body},
        }
        for n in range(count)
    ]
    return b"".join(json.dumps(ask).encode() + b"\n" for ask in asks)


def begin(client: OpenAI, data: bytes) -> Batch:
    file = client.files.create(file=("asks.jsonl", data), purpose="batch")
    return client.batches.create(
        input_file_id=file.id, endpoint=CHAT, completion_window="24h", metadata={"made": "here"}
    )


def counted(client: OpenAI, batch: Batch, at_least: int) -> Batch:
    """The batch once so many lines are done."""
    while batch.request_counts is None or batch.request_counts.completed < at_least:
        assert batch.status in ("validating", "in_progress"), batch
        time.sleep(0.05)
        batch = client.batches.retrieve(batch.id)
    return batch


def ended(client: OpenAI, batch: Batch) -> Batch:
    while batch.status in ("validating", "in_progress", "finalizing", "cancelling"):
        time.sleep(0.05)
        batch = client.batches.retrieve(batch.id)
    return batch


def results(client: OpenAI, file_id: str | None) -> list[dict[str, Any]]:
    return [] if file_id is None else [json.loads(one) for one in client.files.content(file_id).text.splitlines()]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with run_server(tmp_path_factory.mktemp("server"), **PLAIN) as running:
        yield running


def test_a_batch_by_the_official_client(server: ServerProcess) -> None:
    client = server.client()
    bad = json.dumps({"custom_id": "bad", "method": "POST", "url": CHAT, "body": {"model": "gpt-4", "messages": []}})
    batch = begin(client, lines(6, max_tokens=8) + bad.encode())
    assert (batch.object, batch.status, batch.endpoint, batch.metadata) == (
        "batch", "validating", CHAT, {"made": "here"},
    )  # fmt: skip
    batch = ended(client, batch)
    assert batch.status == "completed"
    counts, usage = batch.request_counts, batch.usage
    assert counts is not None
    assert (counts.total, counts.completed, counts.failed) == (7, 6, 1)
    good = {one["custom_id"]: one for one in results(client, batch.output_file_id)}
    assert good.keys() == {f"ask-{n}" for n in range(6)}
    direct = client.chat.completions.create(
        model="small", messages=[{"role": "user", "content": "What is 3 plus 3?"}], max_tokens=8
    )
    body = good["ask-3"]["response"]["body"]
    assert body["choices"][0]["message"]["content"] == direct.choices[0].message.content
    assert usage is not None
    assert usage.total_tokens == sum(one["response"]["body"]["usage"]["total_tokens"] for one in good.values())
    (refused,) = results(client, batch.error_file_id)
    assert (refused["custom_id"], refused["response"]["status_code"]) == ("bad", 400)
    assert batch.id in [one.id for one in client.batches.list(limit=1)]
    kept = {file.id: file for file in client.files.list(limit=2)}
    assert {batch.input_file_id, batch.output_file_id, batch.error_file_id} <= kept.keys()
    assert kept[batch.input_file_id].filename == "asks.jsonl"
    for name in kept:
        assert client.files.delete(name).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(batch.input_file_id)


def test_a_batch_can_be_read_and_cancelled_while_it_runs(server: ServerProcess) -> None:
    client = server.client()
    batch = counted(client, begin(client, lines(500, max_tokens=30, temperature=1)), 2)
    assert len(results(client, batch.output_file_id)) >= 2
    with pytest.raises(openai.ConflictError) as caught:
        client.files.delete(batch.input_file_id)
    assert caught.value.code == "file_in_use"
    assert client.batches.cancel(batch.id).status in ("cancelling", "cancelled")
    batch = ended(client, batch)
    assert batch.status == "cancelled"
    assert batch.request_counts is not None
    assert 2 <= batch.request_counts.completed == len(results(client, batch.output_file_id)) < 500


def test_a_killed_server_goes_on_and_answers_each_line_once(tmp_path: Path) -> None:
    few = {**PLAIN, "HEADGATE_BATCHES__IN_FLIGHT": "3"}
    with run_server(tmp_path, **few) as server:
        client = server.client()
        batch = counted(client, begin(client, lines(40, max_tokens=12, temperature=1)), 5)
        server.process.kill()
        server.process.wait()
    output = tmp_path / "data" / "files" / (batch.output_file_id or "")
    before = output.read_bytes()
    assert 5 <= before.count(b"\n") < 40
    with run_server(tmp_path, **few) as server:
        client = server.client()
        batch = ended(client, batch)
        assert batch.status == "completed"
        found = results(client, batch.output_file_id)
    assert Counter(one["custom_id"] for one in found) == {f"ask-{n}": 1 for n in range(40)}
    assert output.read_bytes().startswith(before), "what was answered before is not answered again"


def test_a_full_disk_fails_the_batch_and_not_the_server(server: ServerProcess) -> None:
    client, pid = server.client(), server.process.pid
    batch = counted(client, begin(client, lines(200, max_tokens=30, logprobs=True, top_logprobs=20)), 1)
    written = server.log.parent / "data" / "files" / (batch.output_file_id or "")
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    # No file may grow any more, the catalog's own included.
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (written.stat().st_size, before[1]))
    try:
        batch = ended(client, batch)
        assert batch.status == "failed"
        assert batch.errors is not None
        assert batch.errors.data is not None
        assert batch.errors.data[0].code == "storage_full"
        assert results(client, batch.output_file_id), "what was answered is there, in whole lines"
        with pytest.raises(openai.InternalServerError) as caught:
            client.files.create(file=("asks.jsonl", b"x" * 1_000_000), purpose="batch")
        assert (caught.value.status_code, caught.value.code) == (507, "storage_failed")
        assert client.models.list().data
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
    assert ended(client, begin(client, lines(2, max_tokens=2))).status == "completed"
