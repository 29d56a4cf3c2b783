"""Requests with functions at models that can and that cannot call them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from gateway_site import forget_environment, site

from headgate.engine.demo import checkpoint

TOOLS = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object", "properties": {}}}}]
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "Find it."}], "tools": TOOLS, "max_tokens": 2}

MISTRALS = """{%- for m in messages %}
{%- if m.role == "user" %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS][INST]{{ m.content }}[/INST]
{%- elif m.tool_calls %}[TOOL_CALLS]{% for call in m.tool_calls %}
{%- if call.id | length != 9 %}{{ raise_exception("IDs should have length 9!") }}{% endif %}
{{- call.function | tojson }}, "id": {{ call.id }}{% endfor %}
{%- elif m.role == "tool" %}
{%- if m.tool_call_id | length != 9 %}{{ raise_exception("IDs should have length 9!") }}{% endif %}
{{- m.tool_call_id }}: {{ m.content }}{% endif %}{% endfor %}"""
"""What Mistral Instruct v0.3's chat template does with calls."""


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_environment(monkeypatch)


async def test_a_model_whose_template_has_no_place_for_tools_is_not_sent_any(tiny_checkpoint: Path) -> None:
    models = [
        {"id": "tiny", "path": str(tiny_checkpoint), "tier": "large"},
        {"id": "student", "path": str(checkpoint("student")), "tier": "small"},
    ]
    async with site(tiny_checkpoint, models=models) as client:
        for model, status in (("tiny", 400), ("student", 200), ("auto", 200), ("small", 200)):
            reply = await client.post("/v1/chat/completions", json={**ASK, "model": model})
            body = await reply.json()
            assert reply.status == status, body
            if status == 200:
                assert reply.headers["x-headgate-model"] == "student"
            else:
                assert (body["error"]["param"], body["error"]["code"]) == ("tools", "unsupported_parameter")
        plain = await client.post("/v1/chat/completions", json={**ASK, "model": "tiny", "tool_choice": "none"})
        assert plain.status == 200, "who may not call functions needs none that can"


async def test_what_the_operator_says_a_model_lacks_is_not_sent_there(tiny_checkpoint: Path) -> None:
    student = str(checkpoint("student"))
    models = [
        {"id": "one", "path": student, "tier": "small", "lacks": ["tools"]},
        {"id": "two", "path": student, "tier": "large"},
    ]
    async with site(tiny_checkpoint, models=models) as client:
        reply = await client.post("/v1/chat/completions", json={**ASK, "model": "auto"})
        assert (reply.status, reply.headers["x-headgate-model"]) == (200, "two")
        refused = await client.post("/v1/chat/completions", json={**ASK, "model": "one"})
        assert (await refused.json())["error"]["param"] == "tools"


async def test_a_conversation_with_calls_goes_on_at_a_model_that_wants_short_ids(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(tiny_checkpoint, tmp_path / "mistral")
    told = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**told, "chat_template": MISTRALS}))
    asked = {**ASK, "model": "m", "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 80}
    async with site(tiny_checkpoint, models=[{"id": "m", "path": str(folder)}]) as client:
        first = await (await client.post("/v1/chat/completions", json=asked)).json()
        said = first["choices"][0]["message"]
        (call,) = said["tool_calls"]
        assert call["id"].isalnum()
        turns = [*ASK["messages"], said, {"role": "tool", "tool_call_id": call["id"], "content": "It is there."}]
        second = await client.post("/v1/chat/completions", json={**asked, "messages": turns})
        assert second.status == 200, await second.text()


WEATHER: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WHERE = "What is the weather in Paris?"


def only_call(way: str) -> tuple[str, dict[str, Any]]:
    """Where a protocol is asked, and a request that may make one call only."""
    if way == "messages":
        tool = {"name": "weather", "input_schema": WEATHER}
        choice = {"type": "tool", "name": "weather"}
        asked = {"messages": [{"role": "user", "content": WHERE}], "tools": [tool], "tool_choice": choice}
        return "/v1/messages", asked
    named = {"name": "weather", "parameters": WEATHER}
    if way == "responses":
        asked = {"input": WHERE, "tools": [{"type": "function", **named}], "tool_choice": "required"}
        return "/v1/responses", {**asked, "parallel_tool_calls": False, "store": False}
    asked = {"messages": [{"role": "user", "content": WHERE}], "tools": [{"type": "function", "function": named}]}
    return "/v1/chat/completions", {**asked, "tool_choice": {"type": "function", "function": {"name": "weather"}}}


def told(way: str, body: dict[str, Any]) -> tuple[str, str]:
    """How an answer ended, and its calls' arguments: the text of one, or what was read of it."""
    if way == "messages":
        return body["stop_reason"], str([block["input"] for block in body["content"]])
    if way == "responses":
        return body["status"], "".join(item["arguments"] for item in body["output"])
    (choice,) = body["choices"]
    return choice["finish_reason"], "".join(call["function"]["arguments"] for call in choice["message"]["tool_calls"])


async def ending(response: Any) -> str:
    """How a stream says that it ended."""
    lines = (await response.read()).decode().splitlines()
    found = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    if "choices" in found[0]:
        (reason,) = (c["finish_reason"] for event in found for c in event["choices"] if c["finish_reason"])
        return str(reason)
    if found[-1]["type"] == "message_stop":
        return str(found[-2]["delta"]["stop_reason"])
    return str(found[-1]["response"]["status"])


@pytest.mark.parametrize(
    ("way", "cut", "whole"),
    [
        ("chat", "length", "tool_calls"),
        ("messages", "max_tokens", "tool_use"),
        ("responses", "incomplete", "completed"),
    ],
)
async def test_the_only_call_that_may_be_made_is_cut_as_others_are(
    tiny_checkpoint: Path, way: str, cut: str, whole: str
) -> None:
    most = "max_output_tokens" if way == "responses" else "max_tokens"
    path, asked = only_call(way)
    asked = {**asked, "model": "student", "temperature": 0}
    models = [{"id": "student", "path": str(checkpoint("student"))}]
    async with site(tiny_checkpoint, models=models) as client:
        for tokens, end in ((13, cut), (16, cut), (17, whole), (60, whole)):
            reply = await client.post(path, json={**asked, most: tokens})
            body = await reply.json()
            assert reply.status == 200, body
            said, arguments = told(way, body)
            assert said == end
            # What Anthropic's blocks hold is read JSON, of which a beginning is none.
            assert "city" in arguments or (way, end) == ("messages", cut)
            assert ("Paris" in arguments and arguments.endswith(("}", "}]"))) == (end == whole)
            assert await ending(await client.post(path, json={**asked, most: tokens, "stream": True})) == end


async def test_many_tools_are_held_to_a_form_as_far_as_they_can_be(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """All arguments together may be more than is compiled: those of functions that are not strict are any object."""
    folder = shutil.copytree(tiny_checkpoint, tmp_path / "mistral")
    written = json.loads((folder / "tokenizer_config.json").read_text())
    # It shows no tools: thousands of fields have no place in the context.
    template = MISTRALS.replace("tools | tojson", "tools | length")
    (folder / "tokenizer_config.json").write_text(json.dumps({**written, "chat_template": template}))
    wide = {"type": "object", "properties": {f"k{at}": {"enum": [at]} for at in range(1000)}}
    tools = [{"type": "function", "function": {"name": f"f{at}", "parameters": wide}} for at in range(3)]
    async with site(tiny_checkpoint, models=[{"id": "m", "path": str(folder)}]) as client:
        asked = {**ASK, "model": "m", "tools": tools, "tool_choice": "required", "max_tokens": 4}
        reply = await client.post("/v1/chat/completions", json=asked)
        assert reply.status == 200, await reply.text()
        strict = {
            "strict": True,
            "parameters": {**wide, "required": [*wide["properties"]], "additionalProperties": False},
        }
        refused = [{"type": "function", "function": {"name": f"f{at}", **strict}} for at in range(3)]
        error = (await (await client.post("/v1/chat/completions", json={**asked, "tools": refused})).json())["error"]
        assert error["param"] == "tools"
