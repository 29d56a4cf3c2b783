"""What LibreChat sends to a custom endpoint: bodies as its agent library (npm, @librechat/agents 3.2.21) wrote them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from gateway_site import Client, events, forget_environment, site

from headgate.engine.demo import checkpoint

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHAT = "/v1/chat/completions"
USER = "66f0c0ffee00000000000001"
QUESTION = {"role": "user", "content": "What is the capital of France?"}
ANSWER = {"role": "assistant", "content": "The capital of France is Paris."}
STREAMED: dict[str, Any] = {
    "model": "auto", "user": USER, "stream": True, "stream_options": {"include_usage": True},
}  # fmt: skip
TITLE = """\
Provide a concise, 5-word-or-less title for the conversation, using title case conventions. \
Only return the title itself.

Conversation:
User: What is the capital of France?
AI: The capital of France is Paris."""
SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "description": "A concise title for the conversation in 5 words or less"}
    },
    "required": ["title"],
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather of a city.",
        "parameters": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tiny_checkpoint: Path) -> AsyncIterator[Client]:
    models = [
        {"id": "teacher", "path": str(checkpoint("teacher")), "tier": "small"},
        {"id": "tiny", "path": str(tiny_checkpoint), "tier": "large"},
    ]
    with pytest.MonkeyPatch.context() as patch:
        forget_environment(patch)
        # The model that answers as the small one is the dearer of the two here: that must not move a request.
        async with site(tiny_checkpoint, models=models, routing={"sessions": {"switch_gain": 1.0}}) as found:
            yield found


async def test_it_fetches_models(client: Client) -> None:
    listed = await (await client.get("/v1/models")).json()
    assert {"auto", "small", "large", "teacher"} <= {model["id"] for model in listed["data"]}


async def test_a_chat_and_its_next_turn_are_streamed_with_usage(client: Client) -> None:
    for messages in ([QUESTION], [QUESTION, ANSWER, {"role": "user", "content": "And what is 12 plus 30?"}]):
        reply = await client.post(CHAT, json={**STREAMED, "messages": messages})
        assert reply.status == 200
        *chunks, usage, done = await events(reply)
        assert done == "[DONE]"
        assert (usage["choices"], usage["usage"]["completion_tokens"] > 0) == ([], True)
        assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)


async def test_a_title_goes_to_the_small_model_in_words_and_by_schema(client: Client) -> None:
    body = {"model": "auto", "user": USER, "stream": False, "messages": [{"role": "user", "content": TITLE}]}
    reply = await client.post(CHAT, json=body)
    assert (reply.status, reply.headers["x-headgate-route"]) == (200, "task:background")
    assert (await reply.json())["choices"][0]["message"]["content"]
    format_ = {"type": "json_schema", "json_schema": {"name": "extract", "schema": SCHEMA}}
    reply = await client.post(CHAT, json={**body, "model": "small", "response_format": format_, "max_tokens": 60})
    assert reply.status == 200
    assert '"title"' in (await reply.json())["choices"][0]["message"]["content"]


async def test_a_call_of_its_tools_and_their_result_are_a_conversation(client: Client) -> None:
    ask = {"role": "user", "content": "What's the weather like in Oslo?"}
    body = {**STREAMED, "model": "small", "tools": [WEATHER]}
    *chunks, _usage, _done = await events(await client.post(CHAT, json={**body, "messages": [ask]}))
    calls = [call for chunk in chunks for call in chunk["choices"][0]["delta"].get("tool_calls") or ()]
    assert (calls[0]["index"], calls[0]["function"]["name"]) == (0, "get_weather")
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    arguments = "".join(call["function"]["arguments"] for call in calls)
    called = {"id": calls[0]["id"], "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    # Its library leaves the content of a message that only calls empty.
    told = {"role": "assistant", "content": "", "tool_calls": [called]}
    result = {"role": "tool", "tool_call_id": calls[0]["id"], "content": "It is 21 degrees in Oslo."}
    reply = await client.post(CHAT, json={**body, "messages": [ask, told, result]})
    assert reply.status == 200
    assert (await events(reply))[-1] == "[DONE]"
