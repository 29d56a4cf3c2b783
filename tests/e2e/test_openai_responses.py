"""`/v1/responses` through the official `openai` client: a real server, the bundled pair."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

import openai
import pytest
from openai import OpenAI
from pydantic import BaseModel
from server_process import ServerProcess, run_server

FRESH = {"cache-control": "no-cache"}
QUESTION = "What is the capital of France?"
LIGHT: dict[str, Any] = {
    "type": "function",
    "name": "switch_light_state",
    "description": "Switch a light.",
    "strict": False,
    "parameters": {
        "type": "object",
        "properties": {"place": {"type": "string"}, "status": {"type": "string", "enum": ["on", "off"]}},
        "required": ["place", "status"],
    },
}
SWITCH = "Could you turn the garden light on?"
GARDEN = {"place": "garden", "status": "on"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("server")
    config = folder / "headgate.yaml"
    config.write_text(json.dumps({"teams": {"folder": str(folder / "teams")}}))
    (folder / "teams").mkdir()
    for team in ("red", "blue"):
        file = {"team": {"name": team}, "keys": [{"id": team, "secret": f"env:{team.upper()}_KEY"}]}
        (folder / "teams" / f"{team}.yaml").write_text(json.dumps(file))
    with run_server(folder, "--config", str(config), RED_KEY="red-secret-key-1", BLUE_KEY="blue-secret-key-1") as up:
        yield up


@pytest.fixture
def client(server: ServerProcess) -> OpenAI:
    return server.client("red-secret-key-1")


@pytest.mark.parametrize("model", ["small", "auto"])
def test_a_response_says_what_a_chat_says(client: OpenAI, model: str) -> None:
    raw = client.responses.with_raw_response.create(
        model=model, input=QUESTION, instructions="Be brief.", max_output_tokens=12, extra_headers=FRESH,
        metadata={"a": "b"},
    )  # fmt: skip
    response = raw.parse()
    messages: Any = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}]
    chat = client.chat.completions.create(model=model, messages=messages, max_tokens=12)
    assert response.output_text == chat.choices[0].message.content
    assert response.usage is not None
    assert chat.usage is not None
    assert response.usage.input_tokens == chat.usage.prompt_tokens
    assert response.usage.output_tokens == chat.usage.completion_tokens
    assert (response.metadata, response.instructions) == ({"a": "b"}, "Be brief.")
    assert raw.headers["x-headgate-model"] == response.model


def test_the_stream_is_the_whole_response(client: OpenAI) -> None:
    ask: dict[str, Any] = {"model": "large", "input": QUESTION, "extra_headers": FRESH, "store": False}
    whole = client.responses.create(max_output_tokens=16, **ask)
    with client.responses.stream(max_output_tokens=16, **ask) as stream:
        events = list(stream)
        final = stream.get_final_response() if events[-1].type == "response.completed" else None
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == whole.output_text
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert [e.type for e in events[:2]] == ["response.created", "response.in_progress"]
    assert final is None or final.output_text == whole.output_text
    cut = list(client.responses.create(max_output_tokens=2, stream=True, **ask))
    assert cut[-1].type == "response.incomplete"
    assert cut[-1].response.incomplete_details.reason == "max_output_tokens"  # type: ignore[union-attr]


def test_log_probabilities_are_those_of_the_text(client: OpenAI) -> None:
    response = client.responses.create(
        model="large", input=QUESTION, max_output_tokens=4, top_logprobs=2, include=["message.output_text.logprobs"],
        extra_headers=FRESH,
    )  # fmt: skip
    (item,) = response.output
    assert item.type == "message"
    (part,) = item.content
    assert part.type == "output_text"
    assert part.logprobs
    assert "".join(entry.token for entry in part.logprobs) == part.text
    assert all(len(entry.top_logprobs) == 2 for entry in part.logprobs)


def test_a_conversation_goes_on_from_a_stored_response(server: ServerProcess, client: OpenAI) -> None:
    first = client.responses.create(model="small", input=QUESTION, instructions="Be brief.", max_output_tokens=12)
    assert client.responses.retrieve(first.id).output_text == first.output_text
    then = "What is 2 + 2?"
    second = client.responses.create(model="small", input=then, previous_response_id=first.id, max_output_tokens=12)
    turns: Any = [
        {"role": "user", "content": QUESTION}, {"role": "assistant", "content": first.output_text},
        {"role": "user", "content": then},
    ]  # fmt: skip
    same = client.responses.create(model="small", input=turns, max_output_tokens=12)
    assert second.output_text == same.output_text
    assert second.usage is not None
    assert same.usage is not None
    assert second.usage.input_tokens == same.usage.input_tokens, "instructions are not carried over"

    other = server.client("blue-secret-key-1")
    with pytest.raises(openai.NotFoundError):
        other.responses.retrieve(first.id)
    with pytest.raises(openai.BadRequestError) as caught:
        other.responses.create(model="small", input="x", previous_response_id=first.id)
    assert caught.value.param == "previous_response_id"
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    unstored = client.responses.create(model="small", input=QUESTION, max_output_tokens=4, store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(unstored.id)


def test_the_items_of_a_conversation_are_listed(server: ServerProcess, client: OpenAI) -> None:
    ask: dict[str, Any] = {"model": "small", "max_output_tokens": 8}
    first = client.responses.create(input=QUESTION, **ask)
    second = client.responses.create(input="And of Italy?", previous_response_id=first.id, **ask)
    items: list[Any] = list(client.responses.input_items.list(second.id, order="asc"))
    assert [(item.role, item.content[0].text) for item in items] == [
        ("user", QUESTION), ("assistant", first.output_text), ("user", "And of Italy?")]  # fmt: skip
    paged: list[Any] = list(client.responses.input_items.list(second.id, limit=2))
    assert [item.id for item in paged] == [item.id for item in items[::-1]], "the client asks for page after page"
    assert items[1].id == first.output[0].id
    with pytest.raises(openai.NotFoundError):
        server.client("blue-secret-key-1").responses.input_items.list(second.id)


def test_a_response_is_made_while_nobody_waits(client: OpenAI) -> None:
    ask: dict[str, Any] = {"model": "large", "input": QUESTION, "max_output_tokens": 12}
    whole = client.responses.create(extra_headers=FRESH, **ask)
    made = client.responses.create(background=True, extra_headers=FRESH, **ask)
    assert (made.background, made.status in ("queued", "in_progress", "completed", "incomplete")) == (True, True)
    while made.status in ("queued", "in_progress"):
        made = client.responses.retrieve(made.id)
    assert (made.status, made.output_text, made.usage) == (whole.status, whole.output_text, whole.usage)
    then = client.responses.create(model="small", input="And?", previous_response_id=made.id, max_output_tokens=4)
    assert then.previous_response_id == made.id
    assert client.responses.cancel(made.id).status == made.status, "what has ended stays as it is"
    with pytest.raises(openai.BadRequestError):
        client.responses.cancel(whole.id)
    with pytest.raises(openai.NotFoundError) as caught:
        client.responses.create(background=True, input="x", model="gpt-9")
    assert caught.value.code == "model_not_found"


def test_a_background_stream_is_read_again_from_where_it_was_left(client: OpenAI) -> None:
    ask: dict[str, Any] = {"model": "large", "input": QUESTION, "max_output_tokens": 12, "extra_headers": FRESH}
    stream = client.responses.create(background=True, stream=True, **ask)
    first = next(iter(stream))
    assert first.type == "response.created"
    name = first.response.id
    stream.close()
    rest = list(client.responses.retrieve(name, stream=True, starting_after=0))
    assert [event.sequence_number for event in rest] == list(range(1, len(rest) + 1)), "whoever leaves ends nothing"
    assert rest[-1].type in ("response.completed", "response.incomplete")
    final: Any = rest[-1]
    assert client.responses.retrieve(name).output_text == final.response.output_text
    assert "".join(e.delta for e in rest if e.type == "response.output_text.delta") == final.response.output_text


def test_a_background_response_is_cancelled(client: OpenAI) -> None:
    long: dict[str, Any] = {"model": "large", "input": QUESTION, "extra_headers": FRESH, "background": True}
    made = client.responses.create(**long)
    cancelled = client.responses.cancel(made.id)
    assert cancelled.status in ("cancelled", "completed")
    assert client.responses.retrieve(made.id).status == cancelled.status
    made = client.responses.create(**long)
    client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)


@pytest.mark.parametrize("stream", [False, True])
def test_functions_are_called_and_their_results_answered(client: OpenAI, stream: bool) -> None:
    ask: dict[str, Any] = {"model": "small", "tools": [LIGHT], "extra_headers": FRESH}
    if stream:
        with client.responses.stream(input=SWITCH, **ask) as events:
            kinds = [event.type for event in events]
            response: Any = events.get_final_response()
        assert "response.function_call_arguments.delta" in kinds
        assert kinds[-3:] == [
            "response.function_call_arguments.done", "response.output_item.done", "response.completed"]  # fmt: skip
    else:
        response = client.responses.create(input=SWITCH, **ask)
    (call,) = response.output
    assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "switch_light_state", GARDEN)
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "done"}
    by_id = client.responses.create(input=[result], previous_response_id=response.id, max_output_tokens=16, **ask)
    turns: Any = [{"role": "user", "content": SWITCH}, call.model_dump(exclude_none=True), result]
    by_items = client.responses.create(input=turns, max_output_tokens=16, **ask)
    assert by_id.usage is not None
    assert by_items.usage is not None
    assert by_id.usage.input_tokens == by_items.usage.input_tokens
    assert by_id.output_text == by_items.output_text


class Light(BaseModel):
    place: Literal["garden", "kitchen"]
    on: bool


def test_the_client_parses_what_follows_its_schema(client: OpenAI) -> None:
    ask: dict[str, Any] = {"model": "large", "input": SWITCH, "text_format": Light, "extra_headers": FRESH}
    parsed = client.responses.parse(**ask).output_parsed
    assert isinstance(parsed, Light)
    with client.responses.stream(**ask) as stream:
        final = stream.until_done().get_final_response()
    assert final.output_parsed == parsed
    required = client.responses.create(
        model="large", input="Hello there!", tools=[LIGHT], tool_choice="required", extra_headers=FRESH
    )  # type: ignore[call-overload]
    assert [item.type for item in required.output] == ["function_call"]


@pytest.mark.parametrize(
    ("change", "kind", "code", "param"),
    [
        ({"model": "gpt-9"}, openai.NotFoundError, "model_not_found", "model"),
        ({"input": []}, openai.BadRequestError, "empty_array", "input"),
        ({"max_output_tokens": 100_000}, openai.BadRequestError, "context_length_exceeded", "max_output_tokens"),
        ({"reasoning": {"effort": "high"}}, openai.BadRequestError, "unsupported_parameter", "reasoning.effort"),
        ({"truncation": "auto"}, openai.BadRequestError, "unsupported_parameter", "truncation"),
    ],
)
def test_errors_are_the_clients_own(client: OpenAI, change: dict[str, Any], kind: type, code: str, param: str) -> None:
    for stream in (False, True):
        with pytest.raises(kind) as caught:
            client.responses.create(**{"model": "auto", "input": QUESTION, "stream": stream, **change})
        error = caught.value
        assert isinstance(error, openai.APIStatusError)
        assert (error.code, error.param) == (code, param)
