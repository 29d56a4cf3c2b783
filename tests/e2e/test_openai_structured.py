"""Answers of a given form through the official `openai` client: a real server, the bundled pair."""

from __future__ import annotations

import json
from typing import Any, Literal

import openai
import pytest
from openai import OpenAI
from pydantic import BaseModel

ASK: list[Any] = [{"role": "user", "content": "Could you turn the garden light on?"}]
SWITCH: dict[str, Any] = {
    "type": "object",
    "properties": {"place": {"enum": ["garden", "kitchen"]}, "status": {"enum": ["on", "off"]}},
    "required": ["place", "status"],
    "additionalProperties": False,
}


def tool(name: str, *, strict: bool = False, **parameters: Any) -> Any:
    return {"type": "function", "function": {"name": name, "parameters": parameters or SWITCH, "strict": strict}}


class Light(BaseModel):
    """What the client parses an answer into."""

    place: Literal["garden", "kitchen"]
    brightness: Literal[1, 2, 3]


@pytest.mark.parametrize("model", ["small", "large"])
def test_the_client_parses_what_comes(client: OpenAI, model: str) -> None:
    for sampling in ({}, {"temperature": 2.0, "seed": 5}):
        reply = client.chat.completions.parse(model=model, messages=ASK, response_format=Light, **sampling)  # type: ignore[arg-type]
        assert isinstance(reply.choices[0].message.parsed, Light)
        assert reply.choices[0].finish_reason == "stop"


def test_a_stream_is_parsed_too(client: OpenAI) -> None:
    with client.chat.completions.stream(model="small", messages=ASK, response_format=Light) as stream:
        parsed = stream.get_final_completion().choices[0].message.parsed
    assert isinstance(parsed, Light)


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_what_was_parsed_goes_back_into_the_conversation(client: OpenAI) -> None:
    ask: dict[str, Any] = {"model": "small", "max_tokens": 40}
    parsed = client.chat.completions.parse(messages=ASK, response_format=Light, **ask).choices[0].message
    dims = openai.pydantic_function_tool(Light, name="dim")
    with client.chat.completions.stream(messages=ASK, tools=[dims], tool_choice="required", **ask) as stream:
        called = stream.get_final_completion().choices[0].message
    assert called.tool_calls, "it had to"
    results = [{"role": "tool", "tool_call_id": call.id, "content": "done"} for call in called.tool_calls]
    reply = client.chat.completions.create(messages=[*ASK, parsed, *ASK, called, *results], **ask)
    assert reply.choices[0].message.content is not None


def test_any_json_object(client: OpenAI) -> None:
    reply = client.chat.completions.create(
        model="large", messages=ASK, response_format={"type": "json_object"}, max_tokens=200
    )
    choice = reply.choices[0]
    assert (choice.message.content or "").startswith("{")
    if choice.finish_reason == "stop":
        assert isinstance(json.loads(choice.message.content or ""), dict)


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_that_must_be(client: OpenAI, stream: bool) -> None:
    """Of a question that asks for none."""
    ask: dict[str, Any] = {
        "model": "small",
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "tools": [tool("switch"), tool("dim")],
    }
    for choice, names in (
        ("required", {"switch", "dim"}),
        ({"type": "function", "function": {"name": "dim"}}, {"dim"}),
    ):
        answer = client.chat.completions.create(tool_choice=choice, stream=stream, **ask)
        if stream:
            chunks = [c.choices[0] for c in answer]
            pieces = [p.function for c in chunks for p in c.delta.tool_calls or []]
            name, arguments = pieces[0].name, "".join(p.arguments or "" for p in pieces)
            finish = chunks[-1].finish_reason
        else:
            call = answer.choices[0].message.tool_calls[0].function
            name, arguments, finish = call.name, call.arguments, answer.choices[0].finish_reason
        assert name in names
        assert set(json.loads(arguments)) == {"place", "status"}
        assert finish == "tool_calls"


def test_arguments_of_a_strict_function_follow_its_schema(client: OpenAI) -> None:
    odd = {"type": "object", "properties": {"where": {"enum": ["attic"]}}, "required": ["where"],
           "additionalProperties": False}  # fmt: skip
    reply = client.chat.completions.create(
        model="large", messages=ASK, tools=[tool("switch_light", strict=True, **odd)]
    )
    calls = reply.choices[0].message.tool_calls
    assert calls, "the model calls it, as it does without being held to the form"
    assert json.loads(calls[0].function.arguments) == {"where": "attic"}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("change", "param", "said"),
    [
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "colour"}}}},
            "response_format.json_schema.schema",
            "colour",
        ),
        (
            {"tools": [tool("a"), tool("f", strict=True, type="object", properties={"x": {"not": {}}})]},
            "tools[1].function.parameters",
            "not",
        ),
        (
            {"response_format": {"type": "json_object"}, "extra_body": {"ignore_eos": True}},
            "ignore_eos",
            "given form",
        ),
    ],
)
def test_what_cannot_be_followed_is_refused_with_the_reason(
    client: OpenAI, change: dict[str, Any], param: str, said: str
) -> None:
    for model in ("large", "auto"):
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(model=model, messages=ASK, **change)
        assert caught.value.param == param
        assert said in caught.value.message
