"""Models that think before they answer: replies, usage, effort, and answers of a given form after the thinking."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gateway_site import forget_environment, site
from tiny_models import MakeCheckpoint, write_tokenizer
from tokenizers import AddedToken, Tokenizer

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n"
    "{% else %}<think>\n{% endif %}{% endif %}"
)
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
FORM = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}

ASK: dict[str, Any] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "Hi"}],
    "max_tokens": 200,
    "temperature": 1.0,
    "seed": 1,
}


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_environment(monkeypatch)


@pytest.fixture(scope="module")
def thinker(make_checkpoint: MakeCheckpoint) -> Path:
    """A random model with single tokens for the marks of thinking."""
    folder = make_checkpoint("qwen3", seed=3, vocab_size=322)
    write_tokenizer(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_tokens([AddedToken("<think>", special=False), AddedToken("</think>", special=False)])
    tokenizer.save(str(folder / "tokenizer.json"))
    # A long answer is cut; the mark that ends the thinking is made likely enough to come soon.
    ASK["logit_bias"] = {str(tokenizer.token_to_id("</think>")): 4}
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": TEMPLATE}))
    return folder


def ask(**fields: Any) -> dict[str, Any]:
    return {**ASK, **fields}


async def test_what_is_thought_stands_beside_the_answer(thinker: Path) -> None:
    async with site(thinker) as client:
        for extra in ({}, {"response_format": FORM}):
            whole = await (await client.post("/v1/chat/completions", json=ask(**extra))).json()
            message, usage = whole["choices"][0]["message"], whole["usage"]
            assert message["reasoning_content"]
            assert "think>" not in message["reasoning_content"]
            thought = usage["completion_tokens_details"]["reasoning_tokens"]
            assert 0 < thought < usage["completion_tokens"]
            if extra:
                assert json.loads(message["content"])["a"] in (1, 2)
            streamed = await client.post(
                "/v1/chat/completions", json=ask(stream=True, stream_options={"include_usage": True}, **extra)
            )
            lines = [
                json.loads(line[6:]) for line in (await streamed.text()).split("\n\n") if line.startswith("data: {")
            ]
            deltas = [line["choices"][0]["delta"] for line in lines if line["choices"]]
            assert "".join(d.get("reasoning_content") or "" for d in deltas) == message["reasoning_content"]
            assert "".join(d.get("content") or "" for d in deltas) == message["content"]
            assert lines[-1]["usage"]["completion_tokens_details"] == usage["completion_tokens_details"]
            again = await (await client.post("/v1/chat/completions", json=ask(**extra))).json()
            assert again["usage"]["completion_tokens_details"] == usage["completion_tokens_details"], "stored"
            assert again["choices"][0]["message"] == message


async def test_effort_switches_the_thinking_off_where_the_template_can(thinker: Path, tiny_checkpoint: Path) -> None:
    async with site(thinker) as client:
        off = await (await client.post("/v1/chat/completions", json=ask(reasoning_effort="none"))).json()
        assert "reasoning_content" not in off["choices"][0]["message"]
        assert off["usage"]["completion_tokens_details"]["reasoning_tokens"] == 0
        on = await (await client.post("/v1/chat/completions", json=ask(reasoning_effort="high"))).json()
        assert on["choices"][0]["message"]["reasoning_content"]
        told = [{"role": "assistant", "content": "Yes", "reasoning_content": "Hm"}, {"role": "user", "content": "So?"}]
        reply = await client.post("/v1/chat/completions", json=ask(messages=told))
        assert reply.status == 200
    async with site(tiny_checkpoint) as client:
        plain = {**ask(), "logit_bias": {}}
        for effort, status in (("none", 200), ("high", 400)):
            reply = await client.post("/v1/chat/completions", json={**plain, "reasoning_effort": effort})
            assert reply.status == status
        assert (await reply.json())["error"]["param"] == "reasoning_effort"


async def test_other_protocols_tell_thoughts_in_their_own_way(thinker: Path) -> None:
    async with site(thinker) as client:
        message = {"model": "tiny", "max_tokens": 24, "messages": ASK["messages"], "temperature": 0.0}
        response = {"model": "tiny", "max_output_tokens": 24, "input": "Hi", "temperature": 0.0}
        for think, block, item in ((True, "thinking", "reasoning"), (False, "text", "message")):
            asked = {**message, "thinking": {"type": "adaptive" if think else "disabled"}}
            content = (await (await client.post("/v1/messages", json=asked)).json())["content"]
            assert content[0]["type"] == block
            asked = {**response, "reasoning": {"effort": "high" if think else "none"}}
            made = await (await client.post("/v1/responses", json=asked)).json()
            assert made["output"][0]["type"] == item
            assert (made["usage"]["output_tokens_details"]["reasoning_tokens"] > 0) == think
            streamed = await (await client.post("/v1/responses", json={**asked, "stream": True})).text()
            assert ("response.reasoning_text.delta" in streamed) == think


async def test_thinking_has_a_bound_where_the_request_gives_one(thinker: Path) -> None:
    message = {"model": "tiny", "max_tokens": 40, "messages": ASK["messages"], "temperature": 0.0}
    async with site(thinker) as client:
        free = await (await client.post("/v1/messages", json={**message, "thinking": {"type": "enabled"}})).json()
        assert [block["type"] for block in free["content"]] == ["thinking"], "this model never stops by itself"
        bounded = {**message, "thinking": {"type": "enabled", "budget_tokens": 12}}
        whole = await (await client.post("/v1/messages", json=bounded)).json()
        assert [block["type"] for block in whole["content"]] == ["thinking", "text"]
        thought = whole["content"][0]["thinking"]
        assert thought
        assert free["content"][0]["thinking"].startswith(thought[:4])
        counted = await client.post("/tokenize", json={"model": "tiny", "prompt": thought, "add_special_tokens": False})
        assert (await counted.json())["count"] <= 11
        streamed = await (await client.post("/v1/messages", json={**bounded, "stream": True})).text()
        assert "thinking_delta" in streamed
        assert "text_delta" in streamed
