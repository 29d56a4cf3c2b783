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
