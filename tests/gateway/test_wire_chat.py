"""Bodies of chat completions: what is accepted, and how everything else is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.gateway.road.request import (
    CacheControl,
    ChatRequest,
    Draft,
    Message,
    ResponseFormat,
    Tool,
    ToolCall,
    ToolUse,
)
from headgate.gateway.wire.anthropic.request import parse_messages
from headgate.gateway.wire.chat import parse_chat
from headgate.gateway.wire.completions import parse_completion
from headgate.gateway.wire.embeddings import parse_embedding
from headgate.gateway.wire.errors import ApiError
from headgate.gateway.wire.responses.request import read_responses

F = {"type": "function", "function": {"name": "f"}}
DEEP: dict[str, Any] = {"type": "object"}
for _ in range(40):
    DEEP = {"not": DEEP}
HELLO = {"model": "auto", "messages": [{"role": "user", "content": "hello"}]}


def parse(**fields: Any) -> ChatRequest:
    return parse_chat(json.dumps({**HELLO, **fields}).encode(), CacheControl())


def refused(body: bytes) -> ApiError:
    with pytest.raises(ApiError) as caught:
        parse_chat(body, CacheControl())
    assert caught.value.status == 400
    assert json.loads(caught.value.encode())["error"].keys() == {"message", "type", "param", "code"}
    return caught.value


def test_a_minimal_request_keeps_every_default_open() -> None:
    request = parse()
    assert request.messages == (Message("user", "hello"),)
    assert request.sampling.temperature is None
    assert (request.n, request.stop, request.max_tokens, request.logprobs, request.stream) == (1, (), None, None, False)


def test_every_sampling_field_arrives() -> None:
    request = parse(
        temperature=0.5, top_p=0.9, top_k=7, min_p=0.1, presence_penalty=1, frequency_penalty=-1, seed=-3, n=3,
        repetition_penalty=1.1, logit_bias={"5": 2, "11": -100}, stop=["a", "b"], stop_token_ids=[4], ignore_eos=True,
        max_completion_tokens=9, logprobs=True, top_logprobs=2, stream=True, stream_options={"include_usage": True},
    )  # fmt: skip
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (0.5, 0.9, 7, 0.1)
    assert (sampling.presence_penalty, sampling.frequency_penalty, sampling.repetition_penalty) == (1, -1, 1.1)
    assert dict(sampling.logit_bias) == {5: 2, 11: -100}
    assert (sampling.seed, sampling.stop_token_ids, sampling.ignore_eos) == (-3, (4,), True)
    assert (request.n, request.stop, request.max_tokens, request.logprobs) == (3, ("a", "b"), 9, 2)
    assert request.stream
    assert request.include_usage


def test_zero_is_not_taken_for_absent() -> None:
    assert parse(temperature=0).sampling.temperature == 0
    assert parse(logprobs=True).logprobs == 0
    assert parse(top_k=-1).sampling.top_k == 0


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"temperature": 2.5}, "temperature", "decimal_above_max_value"),
        ({"temperature": -0.1}, "temperature", "decimal_below_min_value"),
        ({"temperature": "hot"}, "temperature", "invalid_type"),
        ({"top_p": 0}, "top_p", "decimal_below_min_value"),
        ({"presence_penalty": 3}, "presence_penalty", "decimal_above_max_value"),
        ({"n": 0}, "n", "integer_below_min_value"),
        ({"n": 17}, "n", "integer_above_max_value"),
        ({"n": 1.5}, "n", "invalid_type"),
        ({"max_tokens": 0}, "max_tokens", "integer_below_min_value"),
        ({"max_tokens": 3, "max_completion_tokens": 4}, "max_tokens", "invalid_value"),
        ({"stop": ["a"] * 5}, "stop", "array_above_max_length"),
        ({"stop": [""]}, "stop[0]", "empty_string"),
        ({"logit_bias": {"x": 1}}, "logit_bias", "invalid_value"),
        ({"logit_bias": {"1": 101}}, "logit_bias", "decimal_above_max_value"),
        ({"top_logprobs": 3}, "top_logprobs", "invalid_value"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "integer_above_max_value"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "invalid_value"),
        ({"stream": True, "stream_options": {"usage": True}}, "stream_options.usage", "unknown_parameter"),
        ({"messages": []}, "messages", "empty_array"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role", "invalid_value"),
        ({"messages": [{"content": "x"}]}, "messages[0].role", "missing_required_parameter"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content", "invalid_type"),
        ({"messages": [{"role": "user", "content": []}]}, "messages[0].content", "empty_array"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id", "missing_required_parameter"),
        ({"messages": [{"role": "user", "content": "x", "mood": 1}]}, "messages[0].mood", "unknown_parameter"),
        ({"messages": "hello"}, "messages", "invalid_type"),
        ({"model": ""}, "model", "empty_string"),
        ({"model": None}, "model", "invalid_type"),
        ({"temprature": 1}, "temprature", "unknown_parameter"),
        ({"tools": [{"type": "function"}]}, "tools[0].function", "missing_required_parameter"),
        ({"tools": [{"type": "custom", "function": {"name": "f"}}]}, "tools[0].type", "unsupported_parameter"),
        ({"tools": [F, {**F, "strict": 1}]}, "tools[1].strict", "unknown_parameter"),
        ({"tools": [F, F]}, "tools[1].function.name", "invalid_value"),
        ({"tools": [F] * 129}, "tools", "array_above_max_length"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name", "invalid_value"),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": DEEP}}]},
            "tools[0].function.parameters",
            "invalid_value",
        ),
        ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
        ({"tools": [F], "tool_choice": "must"}, "tool_choice", "invalid_value"),
        (
            {"tools": [F], "tool_choice": {"type": "function", "function": {"name": "g"}}},
            "tool_choice.function.name",
            "invalid_value",
        ),
        ({"response_format": {"type": "xml"}}, "response_format.type", "unsupported_parameter"),
        ({"response_format": "json"}, "response_format", "invalid_type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "missing_required_parameter"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            "response_format.json_schema.schema",
            "missing_required_parameter",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": DEEP}}},
            "response_format.json_schema.schema",
            "invalid_value",
        ),
        ({"store": True}, "store", "unsupported_parameter"),
        ({"reasoning_effort": "much"}, "reasoning_effort", "invalid_value"),
        ({"service_tier": "scale"}, "service_tier", "invalid_value"),
        ({"prediction": {"type": "guess", "content": "x"}}, "prediction.type", "invalid_value"),
        (
            {"prediction": {"content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}},
            "prediction.content[1].type",
            "unsupported_parameter",
        ),
        ({"verbosity": "low"}, "verbosity", "unsupported_parameter"),
        ({"functions": [{"name": "f"}]}, "functions", "unsupported_parameter"),
        ({"modalities": ["text", "audio"]}, "modalities", "unsupported_parameter"),
        ({"metadata": {str(i): "x" for i in range(17)}}, "metadata", "object_above_max_length"),
    ],
)
def test_refusals_name_the_field(fields: dict[str, Any], param: str, code: str) -> None:
    error = refused(json.dumps({**HELLO, **fields}).encode())
    assert (error.param, error.code) == (param, code)
    assert param.split("[")[0] in error.message


def test_a_range_error_tells_the_value_and_the_bound() -> None:
    assert "<= 2, but got 2.5" in refused(json.dumps({**HELLO, "temperature": 2.5}).encode()).message


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"temprature": 1}, " Did you mean 'temperature'?"),
        ({"stream": True, "stream_options": {"include_usge": True}}, " Did you mean 'include_usage'?"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "txt": "x"}]}]}, " Did you mean 'text'?"),
        ({"tools": [{"name": "f"}]}, " Supported in 'tools[0]': 'function', 'type'."),
        ({"tool_choice": {"name": "f"}}, " Supported in 'tool_choice': 'function', 'type'."),
        ({"input": "Hi"}, " It is a parameter of /v1/responses or /v1/embeddings."),
        ({"zzz": 1}, "'zzz'."),
    ],
)
def test_an_unknown_parameter_comes_with_what_is_known(fields: dict[str, Any], said: str) -> None:
    assert refused(json.dumps({**HELLO, **fields}).encode()).message.endswith(said)


def test_an_empty_body_is_called_that() -> None:
    assert refused(b" ").message == "The request body is empty. Send a JSON object."


@pytest.mark.parametrize(
    "neutral",
    [
        {"tools": []}, {"tools": None}, {"tool_choice": "auto"}, {"response_format": {"type": "text"}},
        {"modalities": ["text"]}, {"service_tier": "auto"}, {"store": False}, {"parallel_tool_calls": True},
        {"metadata": {}}, {"prediction": None},
        {"verbosity": "medium"}, {"logit_bias": {}}, {"n": 1}, {"temperature": None},
    ],
)  # fmt: skip
def test_parameters_that_change_nothing_are_accepted(neutral: dict[str, Any]) -> None:
    assert parse(**neutral) == parse()


def test_a_prediction_is_a_draft_of_the_answer() -> None:
    parts = [{"type": "text", "text": "hello "}, {"type": "text", "text": "there"}]
    for content in ("hello there", parts):
        predicted = parse(prediction={"type": "content", "content": content})
        assert predicted == replace(parse(), draft=Draft("prediction", "hello there"))


def test_the_flexible_tier_is_background_work() -> None:
    assert parse(service_tier="flex") == replace(parse(), service_tier="flex")


def test_a_conversation_has_the_name_that_the_client_gives_it() -> None:
    assert parse(prompt_cache_key="k") == replace(parse(), session="k")
    body = b'{"model": "m", "messages": [{"role": "user", "content": "a"}], "prompt_cache_key": "k"}'
    assert parse_chat(body, CacheControl(), "of the header").session == "of the header"


def test_the_end_user_is_who_openais_newer_field_names() -> None:
    assert parse(user="u") == replace(parse(), user="u")
    assert parse(user="u", safety_identifier="s").user == "s"


def test_store_zero_is_not_false() -> None:
    assert refused(json.dumps({**HELLO, "store": 0}).encode()).param == "store"


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"nonsense", b'{"model": "\xff"}', b'{"model": "\\ud800"}', b"\xff\xfe", b'{"audio":' + b"[" * 100_000],
)
def test_what_is_not_json_is_refused(body: bytes) -> None:
    assert refused(body).code == "invalid_json"


@pytest.mark.parametrize("body", [b"[]", b"3", b"null", b'"x"'])
def test_what_is_not_an_object_is_refused(body: bytes) -> None:
    assert "must be a JSON object" in refused(body).message


def test_text_parts_are_joined_and_developers_are_systems() -> None:
    request = parse(
        messages=[
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "1", "content": "3"},
        ]
    )  # fmt: skip
    assert [m.role for m in request.messages] == ["system", "user", "assistant", "tool"]
    assert request.messages[1].content == "a\nb"
    assert request.messages[2].for_template()["tool_calls"][0]["function"] == {"name": "f", "arguments": {}}
    assert request.messages[3].for_template() == {"role": "tool", "content": "3", "tool_call_id": "1"}


def test_what_the_official_client_parsed_of_an_answer_comes_back_unread() -> None:
    function = {"name": "f", "arguments": '{"a":1}'}
    plain = {
        "role": "assistant",
        "content": "{}",
        "tool_calls": [{"id": "1", "type": "function", "function": function}],
    }
    called = {"id": "1", "type": "function", "index": 0, "function": {**function, "parsed_arguments": {"a": 1}}}
    helped = {**plain, "parsed": {"ok": True}, "tool_calls": [called]}
    assert parse(messages=[helped, *HELLO["messages"]]) == parse(messages=[plain, *HELLO["messages"]])


def test_functions_arrive_in_the_order_of_their_properties() -> None:
    parameters = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "integer"}}}
    function = {"name": "f", "description": "d", "parameters": parameters, "strict": True}
    request = parse(tools=[F, {"type": "function", "function": {**function, "name": "g"}}], parallel_tool_calls=False)
    assert request.tools == (Tool("f"), Tool("g", "d", parameters, True))
    assert list(request.tools[1].parameters["properties"]) == ["b", "a"]
    assert request.tool_use == ToolUse("auto", None, parallel=False)
    assert request.tools[1].for_template()["function"] == {"name": "g", "description": "d", "parameters": parameters}
    assert parse(tools=[F], tool_choice="none").callable_tools == ()


def test_the_form_of_the_answer_arrives() -> None:
    assert parse(response_format={"type": "json_object"}).response_format == ResponseFormat(
        "json_object", {"type": "object"}
    )
    schema = {"type": "object", "properties": {"b": {}, "a": {}}}
    asked = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}
    assert parse(response_format=asked).response_format == ResponseFormat("json_schema", schema, "x", strict=True)


CREATE = {"model": "m", "input": "hello"}
SAY = {"model": "m", "messages": HELLO["messages"], "max_tokens": 4}
LABELLED: list[tuple[Callable[[bytes], object], dict[str, Any], str]] = [
    (lambda body: parse_chat(body, CacheControl()), HELLO, "user"),
    (lambda body: parse_chat(body, CacheControl()), HELLO, "safety_identifier"),
    (lambda body: parse_completion(body, CacheControl()), {"model": "m", "prompt": "hello"}, "user"),
    (read_responses, CREATE, "user"),
    (read_responses, CREATE, "safety_identifier"),
    (parse_embedding, CREATE, "user"),
    (lambda body: parse_messages(body, CacheControl()), SAY, "metadata.user_id"),
]


@pytest.mark.parametrize(("read", "body", "field"), LABELLED)
def test_what_the_ledger_keeps_has_a_longest_length(
    read: Callable[[bytes], object], body: dict[str, Any], field: str
) -> None:
    def sent(length: int) -> bytes:
        name, _, inner = field.partition(".")
        return json.dumps({**body, name: {inner: "x" * length} if inner else "x" * length}).encode()

    read(sent(512))
    with pytest.raises(ApiError, match="at most 512 characters") as caught:
        read(sent(513))
    assert (caught.value.status, caught.value.param, caught.value.code) == (400, field, "string_above_max_length")


def test_labels_are_as_long_as_openai_takes_them() -> None:
    assert parse(metadata={"k" * 64: "v" * 512}).metadata == (("k" * 64, "v" * 512),)
    for metadata, said in (
        ({"k" * 65: "v"}, "Invalid key in 'metadata': expected at most 64 characters."),
        ({"k": "v" * 513}, "Invalid 'metadata': expected at most 512 characters."),
    ):
        error = refused(json.dumps({**HELLO, "metadata": metadata}).encode())
        assert (error.message, error.param, error.code) == (said, "metadata", "string_above_max_length")


def test_arguments_of_earlier_calls_reach_templates_as_objects_where_they_are() -> None:
    for arguments, seen in (('{"a":1}', {"a": 1}), ("[1]", "[1]"), ("{nonsense", "{nonsense"), ("", "")):
        message = Message("assistant", None, tool_calls=(ToolCall("1", "f", arguments),))
        assert message.for_template()["tool_calls"][0]["function"]["arguments"] == seen


def test_parts_of_unknown_types_are_refused_by_their_place() -> None:
    part = {"type": "video_url"}
    error = refused(json.dumps({**HELLO, "messages": [{"role": "user", "content": [part]}]}).encode())
    assert (error.param, error.code) == ("messages[0].content[0].type", "unsupported_parameter")
    assert error.message.endswith("Supported: 'text', 'image_url', 'input_audio', 'file'.")


@given(st.recursive(st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(), st.lists))
def test_any_value_in_any_field_is_accepted_or_refused_by_name(value: Any) -> None:
    for name in ("temperature", "stop", "messages", "logit_bias", "tools", "stream_options", "seed"):
        refusal = None
        try:
            parse(**{name: value})
        except ApiError as error:
            refusal = error
        assert refusal is None or str(refusal.param).startswith(name)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_in_our_shape(body: bytes) -> None:
    refused(body)
