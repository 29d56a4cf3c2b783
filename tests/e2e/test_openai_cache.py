"""The answer cache as the official `openai` client sees it, against `headgate serve` with the bundled pair."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import openai
import pytest
from openai import OpenAI
from server_process import ServerProcess, run_server

COUNT: dict[str, Any] = {"model": "small", "max_tokens": 8}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with run_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def client(server: ServerProcess) -> OpenAI:
    # With retries, as users have them.
    return server.client(max_retries=2)


def says(text: str) -> dict[str, Any]:
    return {**COUNT, "messages": [{"role": "user", "content": text}]}


def generated(server: ServerProcess) -> list[str]:
    """How many tokens each model has generated."""
    name = "headgate_generation_tokens_total"
    return [line for line in server.get("/metrics").splitlines() if line.startswith(name)]


def test_one_stored_answer_serves_plain_and_streamed_replies_with_its_usage(client: OpenAI) -> None:
    ask = says("What is the capital of Spain?")
    first = client.chat.completions.with_raw_response.create(**ask)
    again = client.chat.completions.with_raw_response.create(**ask)
    assert [r.headers["x-headgate-cache"] for r in (first, again)] == ["miss", "exact"]
    assert again.headers["x-headgate-cache-key"] == first.headers["x-headgate-cache-key"]
    assert (again.headers["x-headgate-cost-usd"], again.headers["x-headgate-similarity"]) == ("0", "1.0000")
    assert 0 <= int(again.headers["age"]) < 60
    assert "age" not in first.headers
    whole = first.parse()
    assert again.parse().choices == whole.choices
    assert again.parse().usage == whole.usage
    with client.chat.completions.with_streaming_response.create(
        **ask, stream=True, stream_options={"include_usage": True}
    ) as raw:
        assert raw.headers["x-headgate-cache"] == "exact"
        chunks = list(raw.parse())
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_a_streamed_answer_is_stored_whole(client: OpenAI) -> None:
    ask = says("What is the capital of Norway?")
    streamed = "".join(c.choices[0].delta.content or "" for c in client.chat.completions.create(**ask, stream=True))
    again = client.chat.completions.with_raw_response.create(**ask)
    assert again.headers["x-headgate-cache"] == "exact"
    assert again.parse().choices[0].message.content == streamed


def test_only_if_cached_raises_once_and_costs_nothing(client: OpenAI, server: ServerProcess) -> None:
    ask, only = says("What is the capital of Peru?"), {"cache-control": "only-if-cached"}
    before = generated(server)
    with pytest.raises(openai.InternalServerError) as caught:
        client.chat.completions.create(**ask, extra_headers=only)
    assert (caught.value.status_code, caught.value.code) == (504, "not_cached")
    assert caught.value.response.headers["x-headgate-cache"] == "miss"
    assert caught.value.response.request.headers["x-stainless-retry-count"] == "0"
    assert generated(server) == before
    client.chat.completions.create(**ask)
    found = client.chat.completions.with_raw_response.create(**ask, extra_headers=only)
    assert found.headers["x-headgate-cache"] == "exact"


@pytest.mark.parametrize(
    ("name", "value"),
    [("cache-control", "max-age=soon"), ("x-headgate-max-error", "5%"), ("x-headgate-cache-tags", "two words")],
)
def test_a_control_nobody_can_read_is_a_bad_request(client: OpenAI, name: str, value: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**says("hello"), extra_headers={name: value})
    assert caught.value.param == name
    assert name in caught.value.message


def test_tagged_answers_are_forgotten(client: OpenAI, server: ServerProcess) -> None:
    ask, tags = says("What is the capital of Chile?"), {"x-headgate-cache-tags": "atlas,v2"}

    def verdict() -> str:
        return client.chat.completions.with_raw_response.create(**ask, extra_headers=tags).headers["x-headgate-cache"]

    assert [verdict(), verdict()] == ["miss", "exact"]
    request = urllib.request.Request(
        f"{server.url}/admin/cache/invalidate", b'{"tag": "atlas"}', {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as response:
        assert json.load(response) == {"invalidated": 1}
    assert verdict() == "miss"


def test_questions_about_now_and_random_answers_say_why_they_are_not_shared(
    client: OpenAI, server: ServerProcess
) -> None:
    for _ in range(2):
        warm = client.chat.completions.with_raw_response.create(**says("Name a colour."), temperature=1.0)
        assert warm.headers["x-headgate-cache"] == "bypass"
        assert "x-headgate-cache-key" not in warm.headers
    assert 'reason="random",verdict="bypass"' in server.get("/metrics")


@pytest.mark.skipif(find_spec("sentence_transformers") is None, reason="the embedding package is not installed")
def test_who_accepts_no_error_is_served_no_similar_answer(client: OpenAI) -> None:
    client.chat.completions.create(**says("What is the capital of Portugal?"))
    strict = client.chat.completions.with_raw_response.create(
        **says("what is the capital of portugal"), extra_headers={"x-headgate-max-error": "0"}
    )
    assert strict.headers["x-headgate-cache"] == "miss"
