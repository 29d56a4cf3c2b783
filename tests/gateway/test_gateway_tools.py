"""Requests with functions at models that can and that cannot call them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gateway_site import forget_environment, site

from headgate.engine.demo import checkpoint

TOOLS = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object", "properties": {}}}}]
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "Find it."}], "tools": TOOLS, "max_tokens": 2}


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
