"""OpenAI's responses on the wire: what a request means, and that its events make up the whole response."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import MultiDict
from wire_pieces import PIECES, chunks_of, joined

from headgate.engine.text.stream import TextLogprob
from headgate.gateway.road.request import (
    CacheControl,
    Chunk,
    Message,
    ResponseFormat,
    ToolCall,
    ToolCallDelta,
    ToolUse,
    Usage,
)
from headgate.gateway.wire.errors import ApiError, server_error
from headgate.gateway.wire.identity import Identity
from headgate.gateway.wire.responses.items import ResponseItem
from headgate.gateway.wire.responses.reply import ResponsesReply
from headgate.gateway.wire.responses.request import ToRespond, read_responses, to_respond
from headgate.gateway.wire.responses.stored import ReadResponse, list_items, read_response

WHO = Identity("resp_1", 7, "demo", "hg-1")
TOOL = {"type": "function", "name": "find", "description": "Finds.", "parameters": {"type": "object"}, "strict": True}
BEFORE = (
    ResponseItem(role="user", content="one", id="msg_a"),
    ResponseItem(role="assistant", content="two", id="msg_b"),
)


def parsed(before: Sequence[ResponseItem] = (), **change: Any) -> ToRespond:
    body = {"model": "auto", "input": "hi", **change}
    return to_respond(read_responses(json.dumps(body).encode()), CacheControl(), None, before)


def test_items_become_turns_of_chat_templates() -> None:
    asked = parsed(
        BEFORE,
        instructions="Be brief.",
        input=[
            {"role": "developer", "content": "No jokes."},
            {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "Let me see.", "annotations": [], "logprobs": []}],
            },
            {"type": "function_call", "call_id": "c1", "name": "find", "arguments": "{}", "status": "completed"},
            {"type": "function_call", "call_id": "c2", "name": "find", "arguments": '{"a":1}'},
            {"type": "function_call_output", "call_id": "c1", "output": "x"},
            {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "y"}]},
        ],
    )
    calls = (ToolCall("c1", "find", "{}"), ToolCall("c2", "find", '{"a":1}'))
    assert asked.request.messages == (
        Message("system", "Be brief."),
        Message("user", "one"),
        Message("assistant", "two"),
        Message("system", "No jokes."),
        Message("user", "a\nb"),
        Message("assistant", "Let me see.", tool_calls=calls, reasoning="hm"),
        Message("tool", "x", tool_call_id="c1"),
        Message("tool", "y", tool_call_id="c2"),
    )
    assert [item.id for item in asked.items[:2]] == ["msg_a", "msg_b"]
    assert [item.id for item in asked.items[4:6]] == ["rs_1", "msg_1"], "those that have an id keep it"
    assert len({item.id for item in asked.items}) == len(asked.items) == 10
    sent_back = parsed(input=json.loads(msgspec.json.encode(asked.items)), instructions="Be brief.")
    assert sent_back.request == asked.request


def test_what_the_official_client_parsed_of_a_response_comes_back_unread() -> None:
    part = {"type": "output_text", "text": "{}"}
    message, call = {"role": "assistant", "content": [part]}, {"type": "function_call", "call_id": "c", "name": "f"}
    plain = [message, {**call, "arguments": '{"a":1}'}]
    helped = [{"role": "assistant", "content": [{**part, "parsed": {}}]}, {**plain[1], "parsed_arguments": {"a": 1}}]
    assert parsed(input=helped).request == parsed(input=plain).request


def test_items_are_listed_page_by_page() -> None:
    calls = [
        {"type": "function_call", "call_id": "c", "name": "find", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "y"}]},
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "o"}, {"type": "refusal", "refusal": "no"}]},
    ]
    items = parsed(BEFORE, input=calls).items

    def page(**query: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(msgspec.json.encode(list_items(items, MultiDict(query))))
        assert (found["first_id"], found["last_id"]) == (found["data"][0]["id"], found["data"][-1]["id"])
        return found

    everything = page(order="asc")
    assert [item["type"] for item in everything["data"]] == [
        "message", "message", "function_call", "function_call_output", "reasoning", "message"]  # fmt: skip
    assert [part["type"] for at in (0, 1, 5) for part in everything["data"][at]["content"]] == [
        "input_text", "output_text", "output_text", "refusal"]  # fmt: skip
    assert not everything["has_more"]
    assert page()["data"] == everything["data"][::-1]
    for order in ("asc", "desc"):
        seen: list[Any] = []
        more: dict[str, Any] = {"has_more": True}
        while more["has_more"]:
            more = page(order=order, limit="4", **({"after": more["last_id"]} if seen else {}))
            seen += more["data"]
        assert seen == page(order=order)["data"]
    for query, param in (
        ({"after": "msg_z"}, "after"), ({"limit": "0"}, "limit"), ({"limit": "101"}, "limit"),
        ({"order": "up"}, "order"), ({"before": "msg_a"}, "before"), ({"include": "more"}, "include"),
        ({"include[]": "message.output_text.logprobs"}, "include"),
    ):  # fmt: skip
        with pytest.raises(ApiError) as caught:
            list_items(items, MultiDict(query))
        assert (caught.value.status, caught.value.param) == (400, param)


def test_items_that_share_an_id_are_listed_once_each() -> None:
    said = [{"id": "msg_a", "role": "user", "content": text} for text in ("three", "four")]
    items = parsed(BEFORE, input=said).items
    assert [item.id for item in items[:2]] == ["msg_a", "msg_b"], "the first keeps it"
    seen: list[Any] = []
    after: dict[str, str] = {}
    for _ in items:
        (found,) = list_items(items, MultiDict(order="asc", limit="1", **after)).data
        seen.append(msgspec.to_builtins(found)["content"][0]["text"])
        after = {"after": found.id}
    assert seen == ["one", "two", "three", "four"]
    assert list_items(items, MultiDict(after)).data[0].id == items[2].id


def test_how_a_stored_response_is_read() -> None:
    assert read_response(MultiDict({"include": "reasoning.encrypted_content"})) == ReadResponse(False, -1)
    assert read_response(MultiDict(stream="true", starting_after="3", include_obfuscation="false")).starting_after == 3
    for query, param in (
        ({"stream": "yes"}, "stream"), ({"starting_after": "3"}, "starting_after"),
        ({"stream": "true", "starting_after": "-1"}, "starting_after"), ({"a": "b"}, "a"),
    ):  # fmt: skip
        with pytest.raises(ApiError) as caught:
            read_response(MultiDict(query))
        assert (caught.value.status, caught.value.param) == (400, param)


def test_parameters_reach_the_road() -> None:
    request = parsed(
        max_output_tokens=9, temperature=0.5, top_p=0.9, stream=True, tools=[TOOL], parallel_tool_calls=False,
        tool_choice="required", safety_identifier="u1", prompt_cache_key="s1", top_logprobs=2,
        include=["message.output_text.logprobs"], reasoning={"effort": None}, text={"format": {"type": "text"}},
    ).request  # fmt: skip
    assert (request.max_tokens, request.stream, request.user, request.session) == (9, True, "u1", "s1")
    assert (request.sampling.temperature, request.sampling.top_p, request.logprobs) == (0.5, 0.9, 2)
    assert request.tools[0].strict
    assert request.tool_use == ToolUse("required", None, parallel=False)
    named = parsed(tools=[TOOL], tool_choice={"type": "function", "name": "find"}).request
    assert named.tool_use == ToolUse("required", "find", parallel=False)


def test_what_a_client_says_of_itself_changes_nothing() -> None:
    assert parsed(client_metadata={"session_id": "s"}).request == parsed().request


def test_a_tier_behind_others_reaches_the_road() -> None:
    assert parsed(service_tier="flex").request == replace(parsed().request, service_tier="flex")
    assert parsed(service_tier="auto").request == parsed().request


def test_how_much_to_think_reaches_the_road() -> None:
    assert parsed(reasoning={"effort": "high", "summary": "auto"}).request.reasoning_effort == "high"


def test_the_form_of_an_answer_reaches_the_road() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    text = {"format": {"type": "json_schema", "name": "a", "schema": schema, "strict": True}}
    assert parsed(text=text).request.response_format == ResponseFormat("json_schema", schema, "a", strict=True)
    assert parsed(text={"format": {"type": "json_object"}}).request.response_format.type == "json_object"


@pytest.mark.parametrize(
    ("change", "code", "param"),
    [
        ({"input": []}, "empty_array", "input"),
        ({"input": [{"role": "robot", "content": "x"}]}, "invalid_value", "input[0].role"),
        ({"input": [{"content": "x"}]}, "missing_required_parameter", "input[0].role"),
        (
            {"input": [{"role": "user", "content": [{"type": "computer_screenshot", "image_url": "x"}]}]},
            "unsupported_parameter",
            "input[0].content[0].type",
        ),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "unsupported_parameter", "input[0].type"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "missing_required_parameter",
         "input[0].call_id"),
        ({"max_output_tokens": 0}, "integer_below_min_value", "max_output_tokens"),
        ({"temperature": 3}, "decimal_above_max_value", "temperature"),
        ({"tools": [{"type": "web_search"}]}, "unsupported_parameter", "tools[0].type"),
        ({"tools": [TOOL, TOOL]}, "invalid_value", "tools[1].name"),
        ({"tool_choice": "required"}, "invalid_value", "tool_choice"),
        ({"reasoning": {"effort": "some"}}, "invalid_value", "reasoning.effort"),
        ({"reasoning": {"summary": "detailed"}}, "invalid_value", "reasoning.summary"),
        ({"text": {"format": {"type": "grammar"}}}, "unsupported_parameter", "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "missing_required_parameter",
         "text.format.schema"),
        ({"text": {"verbosity": "low"}}, "invalid_value", "text.verbosity"),
        ({"truncation": "auto"}, "unsupported_parameter", "truncation"),
        ({"background": True, "store": False}, "invalid_value", "background"),
        ({"max_tool_calls": 0}, "integer_below_min_value", "max_tool_calls"),
        ({"conversation": "conv_1"}, "unsupported_parameter", "conversation"),
        ({"include": ["file_search_call.results"]}, "unsupported_parameter", "include[0]"),
        ({"top_logprobs": 2}, "invalid_value", "top_logprobs"),
        ({"stream_options": {}}, "invalid_value", "stream_options"),
        ({"max_tokens": 5}, "unknown_parameter", "max_tokens"),
    ],
)  # fmt: skip
def test_what_is_not_done_is_refused_by_name(change: dict[str, Any], code: str | None, param: str) -> None:
    with pytest.raises(ApiError) as caught:
        parsed(**change)
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, code, param)


def events_of(frames: bytes) -> list[dict[str, Any]]:
    """Decoded, each under its own name and numbered through."""
    events = []
    for frame in frames.decode().split("\n\n")[:-1]:
        name, data = frame.split("\n", 1)
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    return events


def test_a_stream_goes_through_the_events_in_order() -> None:
    reply = ResponsesReply(WHO, parsed(), stored=False, keep=lambda *_: None)
    chunks = chunks_of([Chunk(0, "hi"), (0, "{}", ()), (0, "", ())], "tool_calls")
    parts = [*reply.opening(range(1)), *(e for c in chunks for e in reply.chunk(c)), reply.usage(Usage(9, 4, 3))]
    assert [e["type"].removeprefix("response.") for e in events_of(reply.frames(parts))] == [
        "created", "in_progress",
        "output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done",
        "output_item.done",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done",
        "completed",
    ]  # fmt: skip


@given(PIECES, st.sampled_from(["stop", "length", "tool_calls"]))
def test_events_make_up_the_whole_response(pieces: list[Any], finish: Any) -> None:
    chunks, usage = chunks_of(pieces, finish), Usage(9, 4, 3, reasoning_tokens=1)
    kept: list[bytes] = []
    reply = ResponsesReply(WHO, parsed(), stored=True, keep=kept.append)
    parts = [*reply.opening(range(1)), *(e for c in chunks for e in reply.chunk(c)), reply.usage(usage)]
    events = events_of(reply.frames(parts))
    final = events[-1]["response"]
    items: list[dict[str, Any]] = []
    for event in events[2:-1]:
        kind = event["type"].removeprefix("response.")
        if kind == "output_item.added":
            assert event["output_index"] == len(items)
            items.append({"type": event["item"]["type"], "id": event["item"]["id"], "said": ""})
        elif kind.endswith(".delta"):
            assert event["item_id"] == items[-1]["id"], "one item ends before the next begins"
            items[-1]["said"] += event["delta"]
        elif kind == "output_item.done":
            assert event["item"] == final["output"][event["output_index"]]
    assert len(items) == len(final["output"])
    for item, written in zip(items, final["output"], strict=True):
        said = written["arguments"] if item["type"] == "function_call" else written["content"][0]["text"]
        assert (written["type"], written["id"], said) == (item["type"], item["id"], item["said"])
    ended = {"length": "incomplete"}.get(finish, "completed")
    assert events[-1]["type"] == f"response.{ended}"
    assert final["status"] == ended
    assert final["usage"]["input_tokens_details"]["cached_tokens"] == 3
    assert [json.loads(body) for body in kept] == [final], "kept before it is sent"

    choices = joined(chunks).choices()
    whole = json.loads(ResponsesReply(WHO, parsed(), stored=True, keep=lambda *_: None).whole(choices, usage))
    told: Any = lambda body, kind: [i for i in body["output"] if i["type"] == kind]  # noqa: E731
    text = "".join(i["content"][0]["text"] for i in told(final, "message"))
    assert text == "".join(i["content"][0]["text"] for i in told(whole, "message"))
    calls = [(i["call_id"], i["name"]) for i in told(final, "function_call")]
    assert calls == [(i["call_id"], i["name"]) for i in told(whole, "function_call")]
    assert {k: v for k, v in whole.items() if k != "output"} == {k: v for k, v in final.items() if k != "output"}


@given(PIECES)
def test_logprobs_change_nothing_of_the_items(pieces: list[Any]) -> None:
    def items(chunks: list[Chunk]) -> list[tuple[str, str, list[Any]]]:
        reply = ResponsesReply(
            WHO, parsed(include=["message.output_text.logprobs"]), stored=False, keep=lambda *_: None
        )
        parts = [*(e for c in chunks for e in reply.chunk(c)), reply.usage(Usage(9, 4, 3))]
        made = []
        for item in events_of(reply.frames(parts))[-1]["response"]["output"]:
            part = item["content"][0] if "content" in item else {"text": item["arguments"]}
            made.append((item["type"], part["text"], part.get("logprobs", [])))
        return made

    chunks = chunks_of(pieces, "stop")
    told = items(chunks)
    bare = items([replace(chunk, logprobs=()) for chunk in chunks])
    assert [item[:2] for item in told] == [item[:2] for item in bare]
    assert all(not logprobs for kind, _, logprobs in told if kind != "message")
    spoken = [entry.token for chunk in chunks if chunk.text for entry in chunk.logprobs]
    heard = [entry["token"] for _, _, logprobs in told for entry in logprobs]
    assert not Counter(spoken) - Counter(heard), "those of a text are with it"


def test_logprobs_of_what_was_held_back_come_with_the_text_and_those_of_marks_do_not() -> None:
    reply = ResponsesReply(WHO, parsed(include=["message.output_text.logprobs"]), stored=False, keep=lambda *_: None)
    mark, first = TextLogprob("<think>", (60, 116), -0.1), TextLogprob("<", (60,), -0.1)
    reply.chunk(Chunk(0, "", (mark,)))
    reply.chunk(Chunk(0, "", (), reasoning="hm"))
    reply.chunk(Chunk(0, "", (mark,)))
    reply.chunk(Chunk(0, "", (first,)))
    *_, event = reply.chunk(Chunk(0, "<b>", (TextLogprob("b>", (98, 62), -0.2),)))
    delta = json.loads(event.split(b"data: ", 1)[1])
    assert (delta["delta"], [entry["token"] for entry in delta["logprobs"]]) == ("<b>", ["<", "b>"])


def test_logprobs_of_a_whole_reply_are_those_of_its_text() -> None:
    tokens = ("<think>", "Hi", "</think>", "\n\n", "Hi ", "you", "<tool_call>", "{}")
    entries = [TextLogprob(token, tuple(token.encode()), -0.5) for token in tokens]
    call = ToolCallDelta(0, "{}", "call_1", "find")
    whole = Chunk(0, "Hi you", tuple(entries), "tool_calls", tool_calls=(call,), reasoning="Hi")
    cut = Chunk(0, "Hi ", tuple(entries[:5]), reasoning="Hi"), Chunk(0, "you", tuple(entries[5:]), "tool_calls")
    for chunks in ([whole], cut):
        body = json.loads(
            ResponsesReply(
                WHO, parsed(include=["message.output_text.logprobs"]), stored=False, keep=lambda *_: None
            ).whole(joined(list(chunks)).choices(), Usage(1, 8, 0))
        )
        (message,) = [item for item in body["output"] if item["type"] == "message"]
        assert [entry["token"] for entry in message["content"][0]["logprobs"]] == ["Hi ", "you"]


def test_logprobs_of_half_a_character_come_with_the_whole() -> None:
    reply = ResponsesReply(WHO, parsed(include=["message.output_text.logprobs"]), stored=False, keep=lambda *_: None)
    half, rest = (TextLogprob("\ufffd", byte, -0.5) for byte in ((0xC3,), (0xA9,)))
    assert reply.chunk(Chunk(0, "", (half,))) == []
    added, _, delta = events_of(reply.frames(reply.chunk(Chunk(0, "é", (rest,)))))
    assert added["item"]["type"] == "message"
    assert (delta["delta"], [entry["bytes"] for entry in delta["logprobs"]]) == ("é", [[0xC3], [0xA9]])


def test_a_stream_that_breaks_says_so_and_is_kept_so() -> None:
    for stored in (True, False):
        kept: list[bytes] = []
        reply = ResponsesReply(WHO, parsed(), stored=stored, keep=kept.append)
        event = events_of(b"".join([*reply.opening(range(1)), reply.error(server_error())]))[-1]
        assert (event["type"], event["response"]["status"]) == ("response.failed", "failed")
        assert event["response"]["error"]["code"] == "server_error"
        assert event["response"]["store"] == stored
        assert [json.loads(body) for body in kept] == ([event["response"]] if stored else [])
