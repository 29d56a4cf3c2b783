"""Bodies that would hold everybody up while they are decoded are refused, and told what may be sent."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from gateway_site import Serve

from headgate.gateway.wire.body_weight import OTHERS, check_weight
from headgate.gateway.wire.errors import ApiError

CHAT = "/v1/chat/completions"
PIECE = 64 * 1024


def weight(value: object) -> float:
    """Counted one by one; a comma stands before each value but the first."""
    if isinstance(value, dict):
        return 1 + sum(1 + weight(inner) for inner in value.values()) + max(0, len(value) - 1) / OTHERS
    if isinstance(value, list):
        return 1 + sum(map(weight, value)) + max(0, len(value) - 1) / OTHERS
    return float(isinstance(value, str))


def found(body: bytes, most: int) -> bool:
    try:
        check_weight(body, most)
    except ApiError as error:
        return error.code == "request_too_complex"
    return False


def made(draw: random.Random, depth: int) -> Any:
    kind = draw.randrange(4 if depth else 2)
    if kind == 0:
        return "".join(draw.choices('a"\\[{,é\n', k=draw.randrange(12)))
    if kind == 1:
        return draw.choice([7, None, True, 2.5])
    values = [made(draw, depth - 1) for _ in range(draw.randrange(6))]
    return values if kind == 2 else {f'"{at}\\[': value for at, value in enumerate(values)}


@pytest.mark.parametrize("seed", range(20))
def test_what_stands_in_strings_is_not_counted(seed: int) -> None:
    draw = random.Random(seed)
    value = ["x" * draw.randrange(PIECE - 40, PIECE), *(made(draw, 4) for _ in range(60))]
    body = json.dumps(value, ensure_ascii=seed % 2 == 0).encode()
    exactly = int(weight(value) + 1e-6)
    assert not found(body, exactly)
    assert found(body, exactly - 1)


@pytest.mark.parametrize("shift", range(4))
@pytest.mark.parametrize("escapes", range(1, 5))
def test_an_escape_between_two_pieces_is_one(shift: int, escapes: int) -> None:
    text = "x" * (PIECE - 1 - shift) + "\\" * escapes + '"' + "[" * 50
    body = json.dumps([text, []]).encode()
    assert not found(body, 3)
    assert found(body, 2)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, b'{"messages": [%b]}'),
        (CHAT, b'{"messages": [{"role": "user", "content": "x"}], "audio": [%b]}'),
        ("/v1/responses", b'{"input": [%b]}'),
        ("/v1/embeddings", b'{"input": [%b]}'),
        ("/v1/messages", b'{"messages": [%b]}'),
        ("/tokenize", b'{"messages": [%b]}'),
    ],
)
async def test_a_body_of_too_many_values_is_refused_and_told_how_many_may_be(
    serve: Serve, path: str, body: bytes
) -> None:
    client = await serve(server={"max_body_values": 1000})
    json_ = {"Content-Type": "application/json"}
    response = await client.post(path, data=body % b",".join([b"[]"] * 2000), headers=json_)
    assert response.status == 413
    assert "more than 1000 objects, arrays and strings" in (await response.json())["error"]["message"]


async def test_a_long_text_is_not_too_many_values(serve: Serve) -> None:
    client = await serve(server={"max_body_values": 1000})
    text = '[{"a": 1, "b": []}], ' * 10_000
    response = await client.post("/tokenize", json={"model": "tiny", "prompt": text})
    assert (await response.json())["count"] == len(text)
    chat = {"model": "tiny", "messages": [{"role": "user", "content": text}]}
    assert (await (await client.post(CHAT, json=chat)).json())["error"]["code"] == "context_length_exceeded"


async def test_of_a_name_as_long_as_the_body_an_error_has_the_beginning(serve: Serve) -> None:
    client = await serve()
    chat = {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "x" * 1_000_000: 1}
    error = (await (await client.post(CHAT, json=chat)).json())["error"]
    assert error["code"] == "unknown_parameter"
    assert error["message"].startswith("Unknown parameter: 'xxxx")
    assert len(error["message"]) < 1000


async def test_arguments_of_a_call_that_hold_too_much_are_not_read(serve: Serve) -> None:
    client = await serve()
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": f'{{"x": [{"[]," * 200_000}1]}}'}}
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [call]}]
    response = await client.post(CHAT, json={"model": "tiny", "messages": messages})
    error = (await response.json())["error"]
    assert (response.status, error["param"]) == (400, "messages")
    assert "The arguments of a call of 'f' hold more than 100000 objects, arrays and strings" in error["message"]


async def test_a_schema_of_too_many_parts_is_not_compiled(serve: Serve) -> None:
    client = await serve()
    schema = {"type": "object", "properties": {f"k{at}": {"type": "integer"} for at in range(6000)}}
    form = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}
    chat = {"model": "tiny", "messages": [{"role": "user", "content": "x"}], **form}
    error = (await (await client.post(CHAT, json=chat)).json())["error"]
    assert (error["code"], error["param"]) == ("invalid_json_schema", "response_format.json_schema.schema")
    assert "more than 5000 objects and arrays" in error["message"]
