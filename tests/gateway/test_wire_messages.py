"""Anthropic's messages on the wire: what a request means, and that its events make up the whole reply."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_pieces import PIECES, chunks_of, joined

from headgate.gateway.road.request import CacheControl, Chunk, Message, ResponseFormat, ToolCall, ToolUse, Usage
from headgate.gateway.wire.anthropic.errors import anthropic_error
from headgate.gateway.wire.anthropic.reply import MessagesReply
from headgate.gateway.wire.anthropic.request import parse_count, parse_messages
from headgate.gateway.wire.errors import ApiError, invalid, overloaded, server_error
from headgate.gateway.wire.identity import Identity

WHO = Identity("msg_1", 7, "demo", "hg-1")
USER = {"role": "user", "content": "hi"}
BASE: dict[str, Any] = {"model": "auto", "max_tokens": 5, "messages": [USER]}
TOOL = {"name": "find", "description": "Finds.", "input_schema": {"type": "object", "properties": {}}}


def parsed(**change: Any) -> Any:
    return parse_messages(json.dumps({**BASE, **change}).encode(), CacheControl())


def test_a_conversation_becomes_turns_of_chat_templates() -> None:
    request = parsed(
        system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        messages=[
            USER,
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "x"},
                    {"type": "text", "text": "Let me see.", "citations": None},
                    {"type": "tool_use", "id": "t1", "name": "find", "input": {"a": [1]}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "none"}]},
                    {"type": "tool_result", "tool_use_id": "t2", "content": "broken", "is_error": True},
                    {"type": "text", "text": "And now?"},
                ],
            },
        ],
    )
    assert request.messages == (
        Message("system", "Be brief."),
        Message("user", "hi"),
        Message("assistant", "Let me see.", tool_calls=(ToolCall("t1", "find", '{"a":[1]}'),), reasoning="hm"),
        Message("tool", "none", tool_call_id="t1"),
        Message("tool", "Error: broken", tool_call_id="t2"),
        Message("user", "And now?"),
    )


def test_parameters_reach_the_road() -> None:
    request = parsed(
        stop_sequences=["END"], temperature=0.5, top_p=0.9, top_k=3, metadata={"user_id": "u1"}, stream=True,
        tools=[TOOL], tool_choice={"type": "any", "disable_parallel_tool_use": True}, service_tier="auto",
        thinking={"type": "disabled"},
    )  # fmt: skip
    assert (request.stop, request.max_tokens, request.user, request.stream) == (("END",), 5, "u1", True)
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.5, 0.9, 3)
    assert request.tools[0].for_template()["function"]["name"] == "find"
    assert request.tool_use == ToolUse("required", None, parallel=False)
    named = parsed(tools=[TOOL], tool_choice={"type": "tool", "name": "find"})
    assert named.tool_use == ToolUse("required", "find", parallel=False)
    assert parsed(tools=[TOOL], tool_choice={"type": "none"}).callable_tools == ()


def test_how_much_to_think_reaches_the_road() -> None:
    assert parsed().reasoning_effort is None
    assert parsed(thinking={"type": "disabled"}).reasoning_effort == "none"
    assert parsed(thinking={"type": "adaptive"}).reasoning_effort == "adaptive"
    assert parsed(thinking={"type": "adaptive"}, output_config={"effort": "max"}).reasoning_effort == "max"
    bounded = parsed(thinking={"type": "enabled", "budget_tokens": 1024})
    assert (bounded.reasoning_effort, bounded.thinking_tokens) == ("adaptive", 1024)


def test_the_form_of_an_answer_reaches_the_road() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    request = parsed(output_config={"format": {"type": "json_schema", "schema": schema}})
    assert request.response_format == ResponseFormat("json_schema", schema, strict=True)


def test_what_an_application_adds_later_stays_where_it_is() -> None:
    added: list[Any] = [{"role": "system", "content": "It is noon."}]
    added += [{"role": "system", "content": [{"type": "text", "text": "Use"}, {"type": "text", "text": "no tools."}]}]
    messages = parsed(system="Be brief.", messages=[USER, *added]).messages
    assert [(m.role, m.content) for m in messages[-3:]] == [
        ("user", USER["content"]),
        ("system", "It is noon."),
        ("system", "Use\nno tools."),
    ]
    assert messages[0] == Message("system", "Be brief.")


def test_a_list_of_edits_that_keeps_all_is_what_happens_anyway() -> None:
    assert parsed(context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}) == parsed()


def test_counting_takes_the_same_conversation() -> None:
    body = {key: value for key, value in BASE.items() if key != "max_tokens"}
    assert parse_count(json.dumps(body).encode()).messages == parsed().messages


@pytest.mark.parametrize(
    ("change", "code", "param"),
    [
        ({"max_tokens": None}, "invalid_type", "max_tokens"),
        ({"max_tokens": 0}, "integer_below_min_value", "max_tokens"),
        ({"temperature": 1.5}, "decimal_above_max_value", "temperature"),
        ({"messages": []}, "empty_array", "messages"),
        ({"messages": [{"role": "user", "content": []}]}, "empty_array", "messages[0].content"),
        ({"messages": [{"role": "developer", "content": "x"}]}, "invalid_value", "messages[0].role"),
        (
            {"messages": [USER, {"role": "system", "content": [{"type": "tool_use"}]}]},
            "unsupported_parameter",
            "messages[1].content[0].type",
        ),
        ({"messages": [USER, {"role": "assistant", "content": "so"}]}, "unsupported_parameter", "messages[1].role"),
        (
            {"messages": [{"role": "user", "content": [{"type": "search_result", "source": "x"}]}]},
            "unsupported_parameter",
            "messages[0].content[0].type",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}]},
            "missing_required_parameter",
            "messages[0].content[0].tool_use_id",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": 5}]}]},
            "invalid_type",
            "messages[0].content[0].content",
        ),
        ({"system": [{"type": "image"}]}, "unsupported_parameter", "system[0].type"),
        ({"thinking": {"type": "enabled", "budget_tokens": 0}}, "integer_below_min_value", "thinking.budget_tokens"),
        ({"thinking": {"type": "adaptive", "budget_tokens": 1024}}, "invalid_value", "thinking.budget_tokens"),
        ({"output_config": {"effort": "some"}}, "invalid_value", "output_config.effort"),
        (
            {"output_config": {"effort": "low"}, "thinking": {"type": "disabled"}},
            "invalid_value",
            "output_config.effort",
        ),
        (
            {"output_config": {"format": {"type": "json_schema"}}},
            "missing_required_parameter",
            "output_config.format.schema",
        ),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "unsupported_parameter", "tools[0].type"),
        ({"tools": [{"name": "f"}]}, "missing_required_parameter", "tools[0].input_schema"),
        ({"tools": [TOOL, TOOL]}, "invalid_value", "tools[1].name"),
        ({"tool_choice": {"type": "any"}}, "invalid_value", "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "g"}}, "invalid_value", "tool_choice.name"),
        ({"max_token": 5}, "unknown_parameter", "max_token"),
        ({"thread": {"type": "create"}}, "unsupported_parameter", "thread"),
        (
            {"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": 1}]}},
            "unsupported_parameter",
            "context_management",
        ),
    ],
)
def test_what_is_not_done_is_refused_by_name(change: dict[str, Any], code: str, param: str) -> None:
    with pytest.raises(ApiError) as caught:
        parsed(**change)
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, code, param)


@given(PIECES, st.sampled_from(["stop", "length", "tool_calls"]))
def test_events_make_up_the_whole_reply(pieces: list[Any], finish: Any) -> None:
    chunks, usage = chunks_of(pieces, finish), Usage(9, 4, 3)
    whole = json.loads(MessagesReply(WHO).whole(joined(chunks).choices(), usage))
    reply = MessagesReply(WHO)
    frames = reply.frames([*reply.opening(range(1)), *(e for c in chunks for e in reply.chunk(c)), reply.usage(usage)])
    events = []
    for frame in frames.decode().split("\n\n")[:-1]:
        name, data = frame.split("\n", 1)
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"

    blocks: list[dict[str, Any]] = []
    open_block = False
    for event in events[2:-2]:
        if event["type"] == "content_block_start":
            assert not open_block, "one block ends before the next begins"
            assert event["index"] == len(blocks)
            blocks.append(event["content_block"])
            open_block = True
        elif event["type"] == "content_block_stop":
            assert open_block
            open_block = False
        else:
            assert open_block
            assert event["index"] == len(blocks) - 1
            kind = {"text_delta": "text", "thinking_delta": "thinking"}.get(event["delta"]["type"])
            if kind:
                blocks[-1][kind] += event["delta"][kind]
    assert not open_block
    assert [e["type"] for e in events[:2]] == ["message_start", "ping"]
    assert [e["type"] for e in events[-2:]] == ["message_delta", "message_stop"]
    for kind in ("text", "thinking"):
        said = "".join(b[kind] for b in blocks if b["type"] == kind)
        assert said == "".join(b[kind] for b in whole["content"] if b["type"] == kind)
    calls = [(b["id"], b["name"]) for b in blocks if b["type"] == "tool_use"]
    assert calls == [(b["id"], b["name"]) for b in whole["content"] if b["type"] == "tool_use"]
    assert events[-2]["delta"] == {key: whole[key] for key in ("stop_reason", "stop_sequence")}
    assert events[-2]["usage"] == whole["usage"]
    assert whole["usage"]["input_tokens"] + whole["usage"]["cache_read_input_tokens"] == 9


@pytest.mark.parametrize(
    ("error", "family"),
    [
        (invalid("x"), "invalid_request_error"),
        (ApiError(401, "x"), "authentication_error"),
        (ApiError(403, "x"), "permission_error"),
        (ApiError(404, "x"), "not_found_error"),
        (ApiError(413, "x"), "request_too_large"),
        (ApiError(429, "x"), "rate_limit_error"),
        (server_error(), "api_error"),
        (overloaded("x"), "overloaded_error"),
    ],
)
def test_errors_have_anthropics_shape(error: ApiError, family: str) -> None:
    body = json.loads(anthropic_error(error, "req_1"))
    assert body == {"type": "error", "error": {"type": family, "message": error.message}, "request_id": "req_1"}


def test_a_conversation_that_is_to_be_held_here_is_refused_as_clients_expect_it() -> None:
    with pytest.raises(ApiError) as caught:
        parsed(thread={"type": "create"})
    error = json.loads(anthropic_error(caught.value))["error"]
    assert error["details"] == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}


def test_text_that_cites_nothing_has_no_citations() -> None:
    chunks = [Chunk(0, "Hello.", finish_reason="stop")]
    whole = json.loads(MessagesReply(WHO).whole(joined(chunks).choices(), Usage(1, 1, 0)))
    assert whole["content"] == [{"type": "text", "text": "Hello."}]
    (started, *_) = [e for c in chunks for e in MessagesReply(WHO).chunk(c)]
    assert json.loads(started.split(b"data: ")[1])["content_block"] == {"type": "text", "text": ""}
