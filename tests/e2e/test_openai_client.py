"""The official `openai` client against `headgate serve` with the bundled pair."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import openai
import pytest
from openai import OpenAI
from prometheus_client.parser import text_string_to_metric_families
from server_process import ServerProcess

FRESH = {"cache-control": "no-cache"}
# A hundred tokens that outweigh all others: draws vary however sure the model is of its answer.
UNDECIDED = {str(token): 100 for token in range(300, 400)}
ASK: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
CARRIES_ON: dict[str, Any] = {"extra_body": {"ignore_eos": True}, "extra_headers": FRESH}


def sample(server: ServerProcess, name: str) -> float:
    """A metric, summed over its labels."""
    families = text_string_to_metric_families(server.get("/metrics"))
    return sum(s.value for family in families for s in family.samples if s.name == name)


def until(condition: Callable[[], bool]) -> None:
    """Ask the server again and again; the asking itself takes the time."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in 30 s"


def test_models(client: OpenAI) -> None:
    assert [m.id for m in client.models.list()][:2] == ["demo-student", "demo-teacher"]
    assert client.models.retrieve("demo-teacher").owned_by == "headgate"


@pytest.mark.parametrize("model", ["auto", "small", "large", "demo-student", "demo-teacher"])
def test_every_name_answers_and_says_who_it_was(client: OpenAI, model: str) -> None:
    raw = client.chat.completions.with_raw_response.create(model=model, messages=ASK, max_tokens=8, extra_headers=FRESH)
    reply = raw.parse()
    assert reply.choices[0].message.content
    assert reply.usage is not None
    assert reply.usage.completion_tokens <= 8
    assert raw.headers["x-headgate-model"] == reply.model
    if model.startswith("demo"):
        assert reply.model == model
    if model in ("small", "large"):
        assert raw.headers["x-headgate-route"] == f"tier:{model}"
    assert reply._request_id == raw.headers["x-request-id"]


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 1.0, "seed": 3}])
def test_a_prediction_changes_no_answer(client: OpenAI, sampling: dict[str, Any]) -> None:
    ask: dict[str, Any] = {"model": "large", "messages": ASK, "max_tokens": 40, **sampling, **CARRIES_ON}
    alone = client.chat.completions.create(**ask)
    said = alone.choices[0].message.content
    assert said is not None
    for text in (said, said[:20] + " or so" + said[20:], "Something else."):
        reply = client.chat.completions.create(prediction={"type": "content", "content": text}, **ask)
        assert reply.choices[0].message.content == said
        assert reply.usage is not None
        assert alone.usage is not None
        assert reply.usage.completion_tokens == alone.usage.completion_tokens
        details = reply.usage.completion_tokens_details
        assert details is not None
        # Whether a draft is worth checking is a matter of how long steps take here.
        assert details.accepted_prediction_tokens is not None
        assert 0 <= details.accepted_prediction_tokens <= reply.usage.completion_tokens


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0, "seed": 3}])
def test_the_joined_stream_is_the_whole_text(client: OpenAI, sampling: dict[str, Any]) -> None:
    ask: dict[str, Any] = {"model": "large", "messages": ASK, "max_tokens": 24, "extra_headers": FRESH, **sampling}
    whole = client.chat.completions.create(**ask)
    chunks = list(client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **ask))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    finishes = [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason]
    assert finishes == [whole.choices[0].finish_reason]
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert all(c.usage is None for c in chunks[:-1])


def test_the_streaming_helper_of_the_client(client: OpenAI) -> None:
    ask: dict[str, Any] = {"model": "small", "messages": ASK, "max_tokens": 8}
    with client.chat.completions.stream(**ask) as stream:
        text = "".join(event.delta for event in stream if event.type == "content.delta")
    assert text == client.chat.completions.create(**ask).choices[0].message.content


def test_stop_strings(client: OpenAI) -> None:
    ask: dict[str, Any] = {"model": "large", "messages": ASK, "max_tokens": 24, **CARRIES_ON}
    text = client.chat.completions.create(**ask).choices[0].message.content
    assert text is not None
    stop = text[4:7]
    for stream in (False, True):
        answer = client.chat.completions.create(stop=[stop, "never said"], stream=stream, **ask)
        if stream:
            chunks = list(answer)
            said = "".join(c.choices[0].delta.content or "" for c in chunks)
            finish = chunks[-1].choices[0].finish_reason
        else:
            said, finish = answer.choices[0].message.content, answer.choices[0].finish_reason
        assert (said, finish) == (text[: text.index(stop)], "stop")


def test_several_choices(client: OpenAI) -> None:
    reply = client.chat.completions.create(
        model="large", messages=ASK, n=3, temperature=2, seed=11, max_tokens=12, logit_bias=UNDECIDED, **CARRIES_ON
    )
    assert [c.index for c in reply.choices] == [0, 1, 2]
    assert len({c.message.content for c in reply.choices}) > 1, "each choice draws for itself"


def test_seeds_repeat_and_differ(client: OpenAI) -> None:
    def draw(seed: int) -> str | None:
        reply = client.chat.completions.create(
            model="large", messages=ASK, temperature=2, seed=seed, max_tokens=12, logit_bias=UNDECIDED, **CARRIES_ON
        )
        return reply.choices[0].message.content

    assert draw(1) == draw(1)
    assert len({draw(seed) for seed in range(4)}) > 1


def test_logprobs(client: OpenAI) -> None:
    reply = client.chat.completions.create(
        model="large", messages=ASK, max_tokens=4, logprobs=True, top_logprobs=3, extra_headers=FRESH
    )
    logprobs = reply.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content
    for entry in logprobs.content:
        assert len(entry.top_logprobs) == 3
        assert entry.logprob == max(t.logprob for t in entry.top_logprobs), "greedy takes the likeliest"
        assert entry.bytes is not None


def test_plain_completions(client: OpenAI) -> None:
    reply = client.completions.create(model="small", prompt=["The capital", "One plus"], max_tokens=4, logprobs=2)
    assert [c.index for c in reply.choices] == [0, 1]
    streamed = client.completions.create(model="small", prompt="The capital", max_tokens=4, stream=True)
    assert "".join(c.choices[0].text for c in streamed) == reply.choices[0].text


def test_the_second_asker_hits_exactly_and_usage_stays(client: OpenAI) -> None:
    def ask() -> Any:
        return client.chat.completions.with_raw_response.create(
            model="auto", messages=[{"role": "user", "content": "Is 91 a prime number?"}], max_tokens=16
        )

    first, second = ask(), ask()
    assert [r.headers["x-headgate-cache"] for r in (first, second)] == ["miss", "exact"]
    assert first.parse().usage == second.parse().usage
    assert first.parse().choices == second.parse().choices


@pytest.mark.skipif(find_spec("sentence_transformers") is None, reason="the embedding package is not installed")
def test_the_same_question_in_other_words_hits_and_another_question_does_not(
    server: ServerProcess, client: OpenAI
) -> None:
    until(lambda: '"semantic cache":{"state":"ready"' in server.get("/ready"))

    def ask(question: str, **options: Any) -> Any:
        # Stop strings, so that any model ends its answer soon: one that was cut is never served to others.
        return client.chat.completions.with_raw_response.create(
            model="auto", messages=[{"role": "user", "content": question}], stop=[" ", "\n", "e", "."], **options
        )

    first = ask("What is the capital of France?")
    assert first.headers["x-headgate-cache"] == "miss"
    for stream in (False, True):
        again = ask("what is France's capital?", stream=stream)
        assert again.headers["x-headgate-cache"] == "semantic"
        assert 0.9 <= float(again.headers["x-headgate-similarity"]) < 1
        assert again.headers["x-headgate-model"] == first.headers["x-headgate-model"]
    assert ask("What is the capital of Peru?").headers["x-headgate-cache"] in ("near", "miss")
    assert ask("What is not the capital of France?").headers["x-headgate-cache"] in ("near", "miss")


def test_prefix_reuse_is_told(client: OpenAI) -> None:
    story = [{"role": "user", "content": "Once upon a time there was a fox. " * 20}]
    for _ in range(2):
        reply = client.chat.completions.create(model="large", messages=story, max_tokens=2, extra_headers=FRESH)
    assert reply.usage is not None
    assert reply.usage.prompt_tokens_details is not None
    cached = reply.usage.prompt_tokens_details.cached_tokens
    assert cached is not None
    assert 0 < cached < reply.usage.prompt_tokens, "the last token is always computed"


@pytest.mark.parametrize(
    ("change", "kind", "code"),
    [
        ({"model": "gpt-4"}, openai.NotFoundError, "model_not_found"),
        ({"messages": []}, openai.BadRequestError, "empty_array"),
        ({"temperature": 3}, openai.BadRequestError, "decimal_above_max_value"),
        ({"max_tokens": 100_000}, openai.BadRequestError, "context_length_exceeded"),
        (
            {"messages": [{"role": "user", "content": "word " * 5000}]},
            openai.BadRequestError,
            "context_length_exceeded",
        ),
        ({"extra_body": {"temprature": 1}}, openai.BadRequestError, "unknown_parameter"),
        ({"tools": [{"type": "function", "function": {"name": "f g"}}]}, openai.BadRequestError, "invalid_value"),
        ({"response_format": {"type": "grammar"}}, openai.BadRequestError, "unsupported_parameter"),
    ],
)
def test_errors_are_the_clients_own(client: OpenAI, change: dict[str, Any], kind: type, code: str) -> None:
    for stream in (False, True):
        with pytest.raises(kind) as caught:
            client.chat.completions.create(**{"model": "auto", "messages": ASK, "stream": stream, **change})
        error = caught.value
        assert isinstance(error, openai.APIStatusError)
        assert (error.code, error.type) == (code, "invalid_request_error")
        assert error.param is not None


def test_unknown_urls_are_json(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.vector_stores.create()
    assert caught.value.code == "unknown_url"
    with pytest.raises(openai.NotFoundError, match="No model that may be asked here serves /v1/moderations"):
        client.moderations.create(input="x")


@pytest.mark.parametrize("after", [0, 1, 5])
def test_a_client_that_leaves_frees_its_blocks(server: ServerProcess, client: OpenAI, after: int) -> None:
    stream = client.chat.completions.create(
        model="large", messages=ASK, max_tokens=1900, n=2, stream=True, temperature=1.0, **CARRIES_ON
    )
    for _ in range(after):
        next(iter(stream))
    # Both choices, unless this process was held up for so long that one has ended.
    assert sample(server, "headgate_requests_running") > 0
    assert sample(server, "headgate_kv_cache_usage_ratio") > 0
    stream.close()
    for name in ("headgate_requests_running", "headgate_requests_waiting", "headgate_kv_cache_usage_ratio"):
        until(lambda name=name: sample(server, name) == 0)


def test_many_streams_at_once_say_what_one_says(client: OpenAI) -> None:
    def ask(question: str) -> Any:
        return client.chat.completions.create(
            model="small", messages=[{"role": "user", "content": question}], max_tokens=12, stream=True,
            extra_headers=FRESH,
        )  # fmt: skip

    def text(stream: Any) -> str:
        return "".join(c.choices[0].delta.content or "" for c in stream)

    questions = [f"What is {i} plus {i}?" for i in range(8)]
    alone = [text(ask(q)) for q in questions]
    together = [ask(q) for q in questions]
    assert [text(stream) for stream in together] == alone
