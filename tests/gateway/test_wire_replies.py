"""Frames, usage and headers of replies."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace
from multidict import CIMultiDict

from headgate.gateway.road.request import (
    CacheControl,
    ChatRequest,
    Choice,
    Chunk,
    Joiner,
    Message,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from headgate.gateway.wire import sse
from headgate.gateway.wire.chat_reply import ChatReply
from headgate.gateway.wire.errors import ApiError, context_exceeded
from headgate.gateway.wire.headers import cache_control, request_id
from headgate.gateway.wire.identity import Identity
from headgate.gateway.wire.openapi.document import document

IDENTITY = Identity("chatcmpl-1", 7, "demo", "hg-abc")


def request(*, include_usage: bool = False) -> ChatRequest:
    return ChatRequest("chat.completions", "auto", (Message("user", "x"),), stream=True, include_usage=include_usage)


def event(reply: ChatReply, chunk: Chunk) -> Any:
    (payload,) = reply.chunk(chunk)
    return json.loads(payload)


def test_frames_are_data_lines_with_a_blank_line_and_end_with_done() -> None:
    assert sse.frame(b"{}") == b"data: {}\n\n"
    assert sse.frames([b"1", b"2"]) == b"data: 1\n\ndata: 2\n\n"
    assert sse.DONE == b"data: [DONE]\n\n"
    assert sse.KEEP_ALIVE.startswith(b":")


def test_a_stream_opens_with_the_role_and_finishes_each_choice_once() -> None:
    reply = ChatReply(IDENTITY, request())
    opening = [json.loads(p) for p in reply.opening(range(2))]
    assert [c["choices"][0]["delta"] for c in opening] == [{"role": "assistant", "content": ""}] * 2
    assert [c["choices"][0]["index"] for c in opening] == [0, 1]
    middle = event(reply, Chunk(0, "hé"))
    assert middle["choices"][0] == {"index": 0, "delta": {"content": "hé"}, "logprobs": None, "finish_reason": None}
    last = event(reply, Chunk(0, "", finish_reason="stop"))
    assert last["choices"][0]["delta"] == {}
    assert last["choices"][0]["finish_reason"] == "stop"
    for chunk in (*opening, middle, last):
        assert (chunk["id"], chunk["created"], chunk["model"]) == ("chatcmpl-1", 7, "demo")
        assert chunk["object"] == "chat.completion.chunk"
        assert "usage" not in chunk


def test_usage_is_null_until_the_chunk_that_carries_it() -> None:
    reply = ChatReply(IDENTITY, request(include_usage=True))
    assert event(reply, Chunk(0, "x"))["usage"] is None
    end = json.loads(reply.usage(Usage(5, 2, 4, image_tokens=3)))
    assert end["choices"] == []
    assert end["usage"]["total_tokens"] == 7
    assert end["usage"]["prompt_tokens_details"] == {
        "cached_tokens": 4,
        "text_tokens": 2,
        "cache_write_tokens": 0,
        "audio_tokens": 0,
        "image_tokens": 3,
    }
    assert end["usage"]["completion_tokens_details"] == {
        "reasoning_tokens": 0,
        "rejected_prediction_tokens": 0,
        "text_tokens": 2,
        "accepted_prediction_tokens": 0,
        "audio_tokens": 0,
    }


def test_joined_chunks_are_the_whole_answer() -> None:
    joiner = Joiner()
    for chunk in (Chunk(1, "b", token_ids=(3,)), Chunk(0, "a", token_ids=(1,)), Chunk(0, "!", (), "stop", (2,))):
        joiner.add(chunk)
    assert joiner.choices() == (Choice(0, "a!", (), "stop", (1, 2)),), "a choice that has not finished is no answer"
    joiner.add(Chunk(1, "", finish_reason="length"))
    body = json.loads(ChatReply(IDENTITY, request()).whole(joiner.choices(), Usage(1, 3, 0)))
    assert [c["message"]["content"] for c in body["choices"]] == ["a!", "b"]
    assert [c["finish_reason"] for c in body["choices"]] == ["stop", "length"]


def test_a_call_is_streamed_by_its_index_and_joined_to_the_same() -> None:
    reply, joiner = ChatReply(IDENTITY, request()), Joiner()
    chunks = [
        Chunk(0, "So:"),
        Chunk(0, "", tool_calls=(ToolCallDelta(0, "", "call_1", "f"),)),
        Chunk(0, ""),
        Chunk(0, "", tool_calls=(ToolCallDelta(0, '{"a":'), ToolCallDelta(0, " 1}"))),
        Chunk(0, "", tool_calls=(ToolCallDelta(1, "", "call_2", "g"),)),
        Chunk(0, "", (), "tool_calls", tool_calls=(ToolCallDelta(1, "{}"),)),
    ]  # fmt: skip
    assert reply.chunk(chunks[2]) == [], "what shows nothing is no event"
    deltas = [event(reply, chunk)["choices"][0]["delta"] for chunk in chunks if reply.chunk(chunk)]
    assert deltas[1] == {
        "tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": ""}}]
    }
    assert deltas[2]["tool_calls"] == [
        {"index": 0, "function": {"arguments": '{"a":'}}, {"index": 0, "function": {"arguments": " 1}"}}
    ]  # fmt: skip
    for chunk in chunks:
        joiner.add(chunk)
    (choice,) = joiner.choices()
    assert choice.tool_calls == (ToolCall("call_1", "f", '{"a": 1}'), ToolCall("call_2", "g", "{}"))
    message = json.loads(reply.whole([choice], Usage(1, 3, 0)))["choices"][0]["message"]
    assert message["content"] == "So:"
    assert message["tool_calls"][0] == {
        "id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}
    }  # fmt: skip
    silent = json.loads(reply.whole([replace(choice, text="")], Usage(1, 3, 0)))["choices"][0]["message"]
    assert silent["content"] is None
    assert (
        "tool_calls"
        not in json.loads(reply.whole([Choice(0, "", (), "stop", ())], Usage(1, 0, 0)))["choices"][0]["message"]
    )


def test_cache_control_is_read() -> None:
    for header, expected in (
        ("no-cache", CacheControl(no_cache=True)),
        ("No-Store, max-age=60", CacheControl(no_store=True, max_age_s=60.0)),
        ("only-if-cached", CacheControl(only_if_cached=True)),
        ("private, foo=bar", CacheControl()),
    ):
        assert cache_control(CIMultiDict({"Cache-Control": header})) == expected
    assert cache_control(CIMultiDict()) == CacheControl()
    lines = CIMultiDict([("cache-control", "no-cache"), ("Cache-Control", "max-age=1")])
    assert cache_control(lines) == CacheControl(no_cache=True, max_age_s=1.0)


@pytest.mark.parametrize(("value", "expected"), [("0", 0.0), ("0.05", 0.05), (" .5 ", 0.5), ("0.0", 0.0)])
def test_the_error_a_client_accepts_is_read(value: str, expected: float) -> None:
    assert cache_control(CIMultiDict({"X-Headgate-Max-Error": value})).max_error == expected


def test_tags_are_read_once_each_from_all_lines() -> None:
    headers = CIMultiDict([("x-headgate-cache-tags", "docs, v3"), ("X-Headgate-Cache-Tags", "a/b:c@1,docs")])
    assert cache_control(headers).tags == ("docs", "v3", "a/b:c@1")


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("cache-control", "max-age", "''"),
        ("cache-control", "max-age=soon", "'soon'"),
        ("cache-control", "max-age=-1", "max-age=60"),
        ("x-headgate-max-error", "1", "'1'"),
        ("x-headgate-max-error", "2%", "less than 1"),
        ("x-headgate-max-error", "nan", "0.02"),
        ("x-headgate-max-error", "-0.1", "'-0.1'"),
        ("x-headgate-max-error", "", "''"),
        ("x-headgate-cache-tags", "", "1 to 64"),
        ("x-headgate-cache-tags", "a,,b", "''"),
        ("x-headgate-cache-tags", "two words", "'two words'"),
        ("x-headgate-cache-tags", "x" * 65, "1 to 64"),
        ("x-headgate-cache-tags", ",".join(str(i) for i in range(17)), "17 tags"),
    ],
)
def test_a_control_that_says_nothing_is_refused_with_what_would(name: str, value: str, told: str) -> None:
    with pytest.raises(ApiError) as caught:
        cache_control(CIMultiDict({name: value}))
    assert (caught.value.status, caught.value.param) == (400, name)
    assert name in caught.value.message
    assert told in caught.value.message


def test_a_request_id_is_echoed_only_where_it_is_safe_to_log() -> None:
    assert request_id("trace-1.2/3") == "trace-1.2/3"
    for unsafe in (None, "", "a b", 'x"y', "x" * 129, "a\n"):
        made = request_id(unsafe)
        assert made != unsafe
        assert made.startswith("req_")


def test_too_many_tokens_are_told_in_numbers() -> None:
    assert "2048 tokens. However, you requested 2058 tokens (8 in the prompt, 2050" in str(
        context_exceeded(2048, 8, 2050)
    )


def test_openapi_describes_every_type_it_refers_to() -> None:
    text = document().decode()
    spec = json.loads(text)
    assert spec["openapi"].startswith("3.1")
    schemas = spec["components"]["schemas"]

    def refs(node: object) -> list[str]:
        if isinstance(node, dict):
            own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
            return own + [r for value in node.values() for r in refs(value)]
        if isinstance(node, list):
            return [r for value in node for r in refs(value)]
        return []

    assert {r.rsplit("/", 1)[1] for r in refs(spec)} <= schemas.keys()
    request_body = schemas["ChatCompletionRequest"]
    assert request_body["additionalProperties"] is False
    assert request_body["properties"]["audio"]["enum"] == [None]
    assert {"message", "type", "param", "code"} == set(schemas["ErrorDetail"]["required"])
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/models", "/health", "/ready", "/metrics"):
        assert path in spec["paths"]
