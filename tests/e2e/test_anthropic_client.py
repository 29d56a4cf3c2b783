"""The official `anthropic` client against `headgate serve` with the bundled pair."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic
from prometheus_client.parser import text_string_to_metric_families
from server_process import ServerProcess, run_server

ASK: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
FRESH = {"cache-control": "no-cache"}
LIGHT: dict[str, Any] = {
    "name": "switch_light_state",
    "description": "Switch a light.",
    "input_schema": {
        "type": "object",
        "properties": {"place": {"type": "string"}, "status": {"type": "string", "enum": ["on", "off"]}},
        "required": ["place", "status"],
    },
}
SWITCH: list[Any] = [{"role": "user", "content": "Could you turn the garden light on?"}]
GARDEN = {"place": "garden", "status": "on"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """With a key, so that the client's way to send it counts."""
    folder = tmp_path_factory.mktemp("server")
    config = folder / "headgate.yaml"
    config.write_text(json.dumps({"teams": {"folder": str(folder / "teams")}}))
    (folder / "teams").mkdir()
    team = {"team": {"name": "red"}, "keys": [{"id": "app", "secret": "env:APP_KEY"}]}
    (folder / "teams" / "red.yaml").write_text(json.dumps(team))
    with run_server(folder, "--config", str(config), APP_KEY="app-secret-key-1") as running:
        yield running


@pytest.fixture
def client(server: ServerProcess) -> Anthropic:
    return Anthropic(base_url=server.url, api_key="app-secret-key-1", max_retries=0, timeout=60)


def text_of(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


@pytest.mark.parametrize("model", ["small", "auto"])
def test_a_message_is_answered_as_a_chat_is(server: ServerProcess, client: Anthropic, model: str) -> None:
    raw = client.messages.with_raw_response.create(
        model=model, max_tokens=12, messages=ASK, system="Be brief.", extra_headers=FRESH
    )
    message = raw.parse()
    assert (message.type, message.role) == ("message", "assistant")
    assert message.stop_reason in ("end_turn", "max_tokens")
    assert raw.headers["x-headgate-model"] == message.model
    assert message._request_id == raw.headers["x-request-id"]
    chat = server.client("app-secret-key-1").chat.completions.create(
        model=model, max_tokens=12, messages=[{"role": "system", "content": "Be brief."}, *ASK]
    )
    assert text_of(message) == chat.choices[0].message.content
    assert chat.usage is not None
    read = message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0)
    assert (read, message.usage.output_tokens) == (chat.usage.prompt_tokens, chat.usage.completion_tokens)


def test_the_stream_is_the_whole_message(client: Anthropic) -> None:
    ask: dict[str, Any] = {"model": "large", "max_tokens": 16, "messages": ASK, "extra_headers": FRESH}
    whole = client.messages.create(**ask)
    with client.messages.stream(**ask) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == text_of(whole) == text_of(final)
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens
    kinds = [event.type for event in client.messages.create(stream=True, **ask)]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]


@pytest.mark.parametrize("headers", [FRESH, {}])
def test_the_stop_sequence_that_ended_it_is_named_from_the_cache_too(client: Anthropic, headers: Any) -> None:
    ask: dict[str, Any] = {"model": "large", "max_tokens": 24, "messages": ASK}
    text = text_of(client.messages.create(**ask))
    stop = text[4:7]
    for stream in (False, True):
        if stream:
            with client.messages.stream(stop_sequences=["never", stop], extra_headers=headers, **ask) as events:
                message: Any = events.get_final_message()
        else:
            message = client.messages.create(stop_sequences=["never", stop], extra_headers=headers, **ask)
        assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", stop)
        assert text_of(message) == text[: text.index(stop)]


@pytest.mark.parametrize("stream", [False, True])
def test_tools_are_called_and_their_results_answered(client: Anthropic, stream: bool) -> None:
    ask: dict[str, Any] = {"model": "small", "max_tokens": 64, "tools": [LIGHT], "extra_headers": FRESH}
    if stream:
        with client.messages.stream(messages=SWITCH, **ask) as events:
            message: Any = events.get_final_message()
    else:
        message = client.messages.create(messages=SWITCH, **ask)
    assert message.stop_reason == "tool_use"
    (call,) = message.content
    assert (call.type, call.name, call.input) == ("tool_use", "switch_light_state", GARDEN)
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "done"}
    turns: list[Any] = [*SWITCH, message.to_param(), {"role": "user", "content": [result]}]
    assert client.messages.create(messages=turns, **ask).stop_reason in ("end_turn", "max_tokens", "tool_use")


def test_the_clients_own_loop_over_tools_goes_on_without_a_thread(client: Anthropic) -> None:
    asked: list[tuple[str, str]] = []

    @anthropic.beta_tool
    def switch_light_state(place: str, status: str) -> str:
        """Switch a light.

        Args:
            place: where it is.
            status: on or off.
        """
        asked.append((place, status))
        return "done"

    runner = client.beta.messages.tool_runner(
        model="small", max_tokens=64, tools=[switch_light_state], messages=SWITCH, max_iterations=2
    )
    reasons = [message.stop_reason for message in runner]
    assert reasons[0] == "tool_use"
    assert asked[0] == ("garden", "on")


def test_an_answer_follows_its_schema(client: Anthropic) -> None:
    properties = {"place": {"enum": ["garden", "kitchen"]}, "on": {"type": "boolean"}}
    schema = {"type": "object", "properties": properties, "required": ["place", "on"], "additionalProperties": False}
    output: Any = {"format": {"type": "json_schema", "schema": schema}}
    message = client.messages.create(
        model="large", max_tokens=64, messages=SWITCH, output_config=output, extra_headers=FRESH
    )
    made = json.loads(text_of(message))
    assert made["place"] in ("garden", "kitchen")
    assert isinstance(made["on"], bool)


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "switch_light_state"}])
def test_a_tool_that_must_be_called_is(client: Anthropic, choice: Any) -> None:
    message = client.messages.create(
        model="large", max_tokens=64, messages=ASK, tools=[LIGHT], tool_choice=choice, extra_headers=FRESH
    )  # type: ignore[call-overload]
    assert [block.type for block in message.content] == ["tool_use"]


def test_counted_tokens_are_those_of_the_answer(client: Anthropic) -> None:
    for tools in ([], [LIGHT]):
        counted = client.messages.count_tokens(model="large", messages=SWITCH, system="Be brief.", tools=tools)
        message = client.messages.create(
            model="large", messages=SWITCH, system="Be brief.", tools=tools, max_tokens=1, extra_headers=FRESH
        )
        assert counted.input_tokens == message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0)


@pytest.mark.parametrize("thinking", [{"type": "adaptive"}, {"type": "enabled", "budget_tokens": 1024}])
def test_a_model_that_never_thinks_answers_without(client: Anthropic, thinking: Any) -> None:
    message = client.messages.create(model="auto", max_tokens=5, messages=ASK, thinking=thinking)
    assert [block.type for block in message.content] == ["text"]


@pytest.mark.parametrize(
    ("change", "kind", "family", "named"),
    [
        ({"model": "claude-9"}, anthropic.NotFoundError, "not_found_error", "claude-9"),
        ({"messages": []}, anthropic.BadRequestError, "invalid_request_error", "messages"),
        ({"max_tokens": 100_000}, anthropic.BadRequestError, "invalid_request_error", "context length"),
        ({"thinking": {"type": "adaptive", "budget_tokens": 2000}}, anthropic.BadRequestError, "invalid_request_error",
         "thinking.budget_tokens"),
        ({"output_config": {"effort": "low"}}, anthropic.BadRequestError, "invalid_request_error",
         "'output_config.effort'"),
    ],
)  # fmt: skip
def test_errors_are_the_clients_own(
    client: Anthropic, change: dict[str, Any], kind: type[anthropic.APIStatusError], family: str, named: str
) -> None:
    for stream in (False, True):
        with pytest.raises(kind) as caught:
            client.messages.create(**{"model": "auto", "max_tokens": 5, "messages": ASK, "stream": stream, **change})
        body: Any = caught.value.body
        assert (body["type"], body["error"]["type"]) == ("error", family)
        assert named in body["error"]["message"]
        assert caught.value.request_id == body["request_id"]


def test_keys_are_taken_in_either_header(server: ServerProcess, client: Anthropic) -> None:
    bearer = Anthropic(base_url=server.url, auth_token="app-secret-key-1", max_retries=0)
    assert bearer.messages.count_tokens(model="small", messages=ASK).input_tokens > 0
    with pytest.raises(anthropic.AuthenticationError) as caught:
        Anthropic(base_url=server.url, api_key="wrong", max_retries=0).messages.create(
            model="auto", max_tokens=5, messages=ASK
        )
    assert caught.value.body["error"]["type"] == "authentication_error"  # type: ignore[index]
    with pytest.raises(urllib.error.HTTPError) as absent:
        urllib.request.urlopen(f"{server.url}/v1/messages/batches", timeout=30)
    assert absent.value.code == 404
    assert b'"type":"not_found_error"' in absent.value.read()
    assert client.api_key == "app-secret-key-1"


def test_a_client_that_leaves_frees_its_blocks(server: ServerProcess, client: Anthropic) -> None:
    def running() -> float:
        families = text_string_to_metric_families(server.get("/metrics"))
        return sum(s.value for f in families for s in f.samples if s.name == "headgate_requests_running")

    long = "Count from one to five hundred: one, two, three, four, five, six, seven, eight, nine, ten, eleven,"
    with client.messages.stream(
        model="large", max_tokens=1500, messages=[{"role": "user", "content": long}], extra_headers=FRESH,
        extra_body={"temperature": 1.0},
    ) as stream:  # fmt: skip
        next(iter(stream))
    deadline = time.monotonic() + 30
    while running():
        assert time.monotonic() < deadline
