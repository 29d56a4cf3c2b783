"""Calls of functions through the official `openai` client: a real server, the bundled pair."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from openai import OpenAI

FRESH = {"cache-control": "no-cache"}
LIGHT: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "switch_light_state",
        "description": "Switch a light.",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string"}, "status": {"type": "string", "enum": ["on", "off"]}},
            "required": ["place", "status"],
        },
    },
}
REMINDER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "set_reminder",
        "description": "Remind the user.",
        "parameters": {
            "type": "object",
            "properties": {"when": {"type": "string"}, "task": {"type": "string"}},
            "required": ["when", "task"],
        },
    },
}
TOOLS = [LIGHT, REMINDER]
ASK: list[Any] = [{"role": "user", "content": "Could you turn the garden light on?"}]
GARDEN = {"place": "garden", "status": "on"}


@pytest.mark.parametrize("model", ["small", "large", "auto"])
def test_the_model_calls_a_function(client: OpenAI, model: str) -> None:
    reply = client.chat.completions.create(model=model, messages=ASK, tools=TOOLS, extra_headers=FRESH)
    choice = reply.choices[0]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    (call,) = choice.message.tool_calls or []
    assert call.type == "function"
    assert call.id.startswith("call_")
    assert call.function.name == "switch_light_state"
    assert json.loads(call.function.arguments) == GARDEN


def test_a_streamed_call_is_the_whole_one(client: OpenAI) -> None:
    ask: dict[str, Any] = {"model": "small", "messages": ASK, "tools": TOOLS, "extra_headers": FRESH}
    whole = client.chat.completions.create(**ask).choices[0].message.tool_calls
    assert whole is not None
    chunks = [c.choices[0] for c in client.chat.completions.create(stream=True, **ask)]
    pieces = [piece for c in chunks for piece in c.delta.tool_calls or []]
    assert [p.index for p in pieces] == [0] * len(pieces)
    assert [p.id is not None for p in pieces] == [True] + [False] * (len(pieces) - 1)
    assert pieces[0].type == "function"
    assert pieces[0].function is not None
    assert pieces[0].function.name == "switch_light_state"
    arguments = "".join(p.function.arguments or "" for p in pieces if p.function is not None)
    assert arguments == whole[0].function.arguments  # type: ignore[union-attr]
    assert "".join(c.delta.content or "" for c in chunks) == ""
    assert [c.finish_reason for c in chunks if c.finish_reason] == ["tool_calls"]


def test_the_streaming_helper_of_the_client_sees_the_call(client: OpenAI) -> None:
    with client.chat.completions.stream(model="small", messages=ASK, tools=TOOLS) as stream:
        final = stream.get_final_completion()
    (call,) = final.choices[0].message.tool_calls or []
    assert json.loads(call.function.arguments) == GARDEN


@pytest.mark.parametrize("stream", [False, True])
def test_a_stored_call_comes_back_as_it_was(client: OpenAI, stream: bool) -> None:
    ask: dict[str, Any] = {"model": "large", "tools": [REMINDER], "stream": stream}
    messages = [{"role": "user", "content": f"Reminder at {19 + stream}:00: call Jane"}]

    def answer() -> tuple[str, list[tuple[str, str, str]], str]:
        raw = client.chat.completions.with_raw_response.create(messages=messages, **ask)
        verdict = raw.headers["x-headgate-cache"]
        if not stream:
            choice = raw.parse().choices[0]
            calls = [(c.id, c.function.name, c.function.arguments) for c in choice.message.tool_calls]
            return verdict, calls, choice.finish_reason
        chunks = [c.choices[0] for c in raw.parse()]
        pieces = [p for c in chunks for p in c.delta.tool_calls or []]
        arguments = "".join(p.function.arguments or "" for p in pieces)
        return verdict, [(pieces[0].id, pieces[0].function.name, arguments)], chunks[-1].finish_reason

    first, second = answer(), answer()
    assert (first[0], second[0]) == ("miss", "exact")
    assert first[1:] == second[1:]
    assert first[2] == "tool_calls"


def test_results_of_calls_are_answered(client: OpenAI) -> None:
    called = client.chat.completions.create(model="large", messages=ASK, tools=TOOLS).choices[0].message
    (call,) = called.tool_calls or []
    result = {"role": "tool", "tool_call_id": call.id, "content": "done"}
    messages: list[Any] = [*ASK, called.model_dump(exclude_none=True), result]
    reply = client.chat.completions.create(model="large", messages=messages, tools=TOOLS, max_tokens=16)
    assert reply.choices[0].finish_reason in ("stop", "length", "tool_calls")


def test_no_call_where_none_may_be(client: OpenAI) -> None:
    reply = client.chat.completions.create(model="large", messages=ASK, tools=TOOLS, tool_choice="none", max_tokens=24)
    assert reply.choices[0].message.tool_calls is None
    assert reply.choices[0].message.content


@pytest.mark.parametrize("stream", [False, True])
def test_nothing_is_computed_after_the_only_call(client: OpenAI, stream: bool) -> None:
    ask: dict[str, Any] = {"model": "small", "messages": ASK, "tools": TOOLS, "parallel_tool_calls": False, "n": 2}
    more: dict[str, Any] = {"max_tokens": 300, "extra_headers": FRESH, "extra_body": {"ignore_eos": True}}
    if stream:
        chunks = list(
            client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **ask, **more)
        )
        reasons = [choice.finish_reason for c in chunks for choice in c.choices if choice.finish_reason]
        usage = chunks[-1].usage
    else:
        reply = client.chat.completions.create(**ask, **more)
        reasons, usage = [choice.finish_reason for choice in reply.choices], reply.usage
        assert all(json.loads(c.message.tool_calls[0].function.arguments) == GARDEN for c in reply.choices)
    assert reasons == ["tool_calls", "tool_calls"]
    # However late its end is noticed: what was computed meanwhile is not of the answer.
    assert usage.completion_tokens < 2 * 60, "the model would go on for ever"


def test_a_cut_call_is_told_as_cut(client: OpenAI) -> None:
    reply = client.chat.completions.create(model="large", messages=ASK, tools=TOOLS, max_tokens=20)
    assert reply.choices[0].finish_reason == "length"
    (call,) = reply.choices[0].message.tool_calls or []
    with pytest.raises(json.JSONDecodeError):
        json.loads(call.function.arguments)


def test_other_kinds_of_tools_are_refused(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(
            model="auto", messages=ASK, tools=[{"type": "custom", "function": {"name": "f"}}]  # type: ignore[list-item]
        )  # fmt: skip
    assert (caught.value.param, caught.value.code) == ("tools[0].type", "unsupported_parameter")
