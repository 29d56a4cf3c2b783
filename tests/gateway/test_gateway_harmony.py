"""A model that answers in harmony, through every protocol and the official client.

What it writes is a script, or what a form leaves to a random model.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from gateway_site import Client, forget_environment, site
from harmony_model import VOCABULARY, write_harmony
from openai import AsyncOpenAI, BadRequestError
from tiny_models import COMMON, MakeCheckpoint
from tokenizers import Tokenizer

from headgate.engine.front.choice import TextDelta
from headgate.engine.front.local import LocalModel
from headgate.engine.sampling.grammar import Grammar
from headgate.gateway.local import destination as local_destination
from headgate.gateway.road.request import ChatRequest

BEGUN = "<|start|>assistant"
THOUGHT = "<|channel|>analysis<|message|>Hm, so.<|end|>"
FINAL = "<|channel|>final<|message|>Yes."
CALL = '<|channel|>commentary to=functions.find <|constrain|>json<|message|>{"q": "a"}'
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
FIND: dict[str, Any] = {"name": "find", "parameters": {**SCHEMA, "properties": {"a": {"enum": ["x", "y"]}}}}
TOOLS: list[Any] = [{"type": "function", "function": FIND}]
USER = {"role": "user", "content": "Hi"}
ASK: dict[str, Any] = {"model": "tiny", "messages": [USER], "max_tokens": 120, "seed": 1, "temperature": 1.0}
FRESH = {"cache-control": "no-cache"}


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_environment(monkeypatch)


@pytest.fixture(scope="module")
def gpt_oss(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model of its architecture."""
    torch.manual_seed(0)
    tiny = {**COMMON, "num_hidden_layers": 2, "vocab_size": VOCABULARY, "num_local_experts": 4, "head_dim": 16}
    folder = tmp_path_factory.mktemp("gpt-oss")
    transformers.AutoModelForCausalLM.from_config(transformers.GptOssConfig(**tiny)).save_pretrained(folder)
    return write_harmony(folder)


@pytest.fixture(scope="module")
def checkpoint(make_checkpoint: MakeCheckpoint) -> Path:
    """One that is there sooner."""
    return write_harmony(make_checkpoint("qwen3", seed=5, vocab_size=VOCABULARY))


def speaking(checkpoint: Path) -> AbstractAsyncContextManager[Client]:
    return site(checkpoint, models=[{"id": "tiny", "path": str(checkpoint)}])


@pytest.fixture
def likely(checkpoint: Path) -> dict[str, int]:
    """A bias by which a random model's thoughts end soon."""
    return {str(Tokenizer.from_file(str(checkpoint / "tokenizer.json")).token_to_id("<|end|>")): 5}


def scripted(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Have the model write just this: its form allows nothing else."""
    parts = [part for part in re.split(r"(<\|\w+\|>)", script) if part]
    rule = " ".join(part if part.startswith("<|") else json.dumps(part) for part in parts)

    async def only(_request: ChatRequest, model: LocalModel, _prompt: Sequence[int]) -> Grammar:
        return await model.grammar(f"start: {rule}")

    monkeypatch.setattr(local_destination, "grammar_of", only)


def openai(client: Client) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=str(client.make_url("/v1")), api_key="any", max_retries=0)


async def post(client: Client, path: str, **body: Any) -> Any:
    reply = await client.post(path, json={"model": "tiny", **body}, headers=FRESH)
    assert reply.status == 200, await reply.text()
    return await reply.json()


async def test_thoughts_stand_beside_the_answer_whole_and_streamed(
    gpt_oss: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, f"{THOUGHT}{BEGUN}{FINAL}")
    async with speaking(gpt_oss) as client:
        asked = openai(client).chat.completions
        whole = await asked.create(**ASK, extra_headers=FRESH, logprobs=True)
        (choice,), usage = whole.choices, whole.usage
        assert choice.message.content == "Yes."
        assert choice.message.reasoning_content == "Hm, so."
        assert choice.finish_reason == "stop"
        assert usage is not None
        assert usage.completion_tokens_details is not None
        told = Tokenizer.from_file(str(gpt_oss / "tokenizer.json")).encode(THOUGHT, add_special_tokens=False).ids
        assert usage.completion_tokens_details.reasoning_tokens == len(told) < usage.completion_tokens
        assert choice.logprobs is not None
        shown = "".join(entry.token for entry in choice.logprobs.content or ())
        assert shown == f"{THOUGHT}{BEGUN}{FINAL}", "every token that is read, as for other models that think"

        chunks = [chunk async for chunk in await asked.create(**ASK, stream=True, extra_headers=FRESH)]
        deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
        assert "".join(delta.content or "" for delta in deltas) == "Yes."
        assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == "Hm, so."
        kept = await asked.create(**ASK)
        assert (kept.choices[0].message, kept.usage) == (choice.message, usage), "as it was stored"
        stopped = await asked.create(**ASK, stop=["final", "es"], extra_headers=FRESH)
        assert (stopped.choices[0].message.content, stopped.choices[0].finish_reason) == ("Y", "stop")
        assert stopped.usage is not None
        assert stopped.usage.completion_tokens < usage.completion_tokens


async def test_calls_are_calls_and_their_results_are_shown_to_the_model(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with speaking(checkpoint) as client:
        asked = openai(client).chat.completions
        scripted(monkeypatch, f"{THOUGHT}{BEGUN}<|channel|>commentary<|message|>I look.<|end|>{BEGUN}{CALL}")
        whole = (await asked.create(**ASK, tools=TOOLS, extra_headers=FRESH)).choices[0]
        assert (whole.finish_reason, whole.message.content) == ("tool_calls", "I look.")
        assert whole.message.reasoning_content == "Hm, so."
        (call,) = whole.message.tool_calls or ()
        assert (call.function.name, call.function.arguments) == ("find", '{"q": "a"}')
        chunks = [c async for c in await asked.create(**ASK, tools=TOOLS, stream=True, extra_headers=FRESH)]
        pieces = [piece for c in chunks if c.choices for piece in c.choices[0].delta.tool_calls or ()]
        assert [piece.function.name for piece in pieces if piece.function.name] == ["find"]
        assert "".join(piece.function.arguments or "" for piece in pieces) == '{"q": "a"}'

        # A function that was not given is not called.
        other = [{"type": "function", "function": {**FIND, "name": "other"}}]
        plain = (await asked.create(**ASK, tools=other, extra_headers=FRESH)).choices[0]
        assert (plain.finish_reason, plain.message.tool_calls) == ("stop", None)
        assert plain.message.content == 'I look.\n\nto=functions.find {"q": "a"}'

        scripted(monkeypatch, FINAL)
        sent = [USER, whole.message.model_dump(exclude_none=True)]
        sent.append({"role": "tool", "tool_call_id": call.id, "content": "3"})
        assert (await asked.create(**{**ASK, "messages": sent}, tools=TOOLS)).choices[0].message.content == "Yes."
        tokens = await post(client, "/tokenize", messages=sent)
        prompt = (await post(client, "/detokenize", tokens=tokens["tokens"]))["prompt"]
        assert prompt.partition("Hi<|end|>")[2] == (
            f"{BEGUN}<|channel|>analysis<|message|>Hm, so.\n\nI look.<|end|>"
            f'{BEGUN} to=functions.find<|channel|>commentary json<|message|>{{"q": "a"}}<|call|>'
            f'<|start|>functions.find to=assistant<|channel|>commentary<|message|>"3"<|end|>{BEGUN}'
        )


async def test_other_protocols_tell_thoughts_and_calls_in_their_own_way(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with speaking(checkpoint) as client:
        scripted(monkeypatch, f"{THOUGHT}{BEGUN}{CALL}")
        tool = {"name": "find", "input_schema": FIND["parameters"]}
        message = await post(client, "/v1/messages", messages=[USER], max_tokens=99, tools=[tool])
        assert [block["type"] for block in message["content"]] == ["thinking", "tool_use"]
        assert (message["content"][0]["thinking"], message["content"][1]["input"]) == ("Hm, so.", {"q": "a"})
        function = {"type": "function", "strict": False, **FIND}
        made = await post(client, "/v1/responses", input="Hi", tools=[function])
        assert [item["type"] for item in made["output"]] == ["reasoning", "function_call"]
        assert made["output"][0]["content"][0]["text"] == "Hm, so."
        assert made["usage"]["output_tokens_details"]["reasoning_tokens"] > 0
        history = [{"role": "user", "content": "Hi"}, *made["output"]]
        history.append({"type": "function_call_output", "call_id": made["output"][1]["call_id"], "output": "3"})
        scripted(monkeypatch, f"{THOUGHT}{BEGUN}{FINAL}")
        response = await openai(client).responses.create(model="tiny", input=history, tools=[function])
        assert response.output_text == "Yes."
        assert response.output[0].type == "reasoning"


@pytest.mark.parametrize("merged", [False, True])
async def test_what_is_thought_between_is_told_between_however_the_stream_is_cut(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, merged: bool
) -> None:
    generate = LocalModel.generate

    async def at_once(self: LocalModel, *arguments: Any, **options: Any) -> AsyncIterator[TextDelta]:
        deltas = [delta async for delta in generate(self, *arguments, **options)]
        tokens = tuple(token for delta in deltas for token in delta.token_ids)
        yield replace(deltas[-1], text="".join(delta.text for delta in deltas), token_ids=tokens)

    if merged:
        monkeypatch.setattr(LocalModel, "generate", at_once)
    remark = "<|channel|>commentary<|message|>I look.<|end|>"
    scripted(monkeypatch, BEGUN.join([THOUGHT, remark, THOUGHT, CALL]))
    async with speaking(checkpoint) as client:
        function = {"type": "function", "strict": False, **FIND}
        stream = await openai(client).responses.create(model="tiny", input="Hi", tools=[function], stream=True)
        events = [event async for event in stream]
        made = [event.item for event in events if event.type == "response.output_item.done"]
        assert [item.type for item in made] == ["reasoning", "message", "reasoning", "function_call"]
        assert made[3].arguments == '{"q": "a"}'
        assert events[-1].type == "response.completed"
        assert events[-1].response.usage.output_tokens_details.reasoning_tokens > 0


async def test_logprobs_of_a_response_are_those_of_its_text(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The answer's letters are the header's, too.
    scripted(monkeypatch, f"{THOUGHT}{BEGUN}<|channel|>final<|message|>as")
    wanted: dict[str, Any] = {"model": "tiny", "input": "Hi", "include": ["message.output_text.logprobs"]}
    async with speaking(checkpoint) as client:
        made = await post(client, "/v1/responses", **wanted)
        (part,) = made["output"][1]["content"]
        assert part["text"] == "".join(entry["token"] for entry in part["logprobs"]) == "as"
        stream = await openai(client).responses.create(**wanted, stream=True, extra_headers=FRESH)
        told = [event.logprobs async for event in stream if event.type == "response.output_text.delta"]
        assert "".join(entry.token for entries in told for entry in entries) == "as"


async def test_a_stop_string_is_told_and_ends_the_answer(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, f"{THOUGHT}{BEGUN}{FINAL}")
    async with speaking(checkpoint) as client:
        for stops, told, text in ((["final", "es"], "es", "Y"), (["message", "<|end|>"], None, "Yes.")):
            message = await post(client, "/v1/messages", messages=[USER], max_tokens=99, stop_sequences=stops)
            assert message["stop_sequence"] == told
            assert message["stop_reason"] == ("end_turn" if told is None else "stop_sequence")
            assert message["content"][-1] == {"type": "text", "text": text}


async def test_forms_are_followed_after_the_thinking(checkpoint: Path, likely: dict[str, int]) -> None:
    ask = {**ASK, "logit_bias": likely}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
    async with speaking(checkpoint) as client:
        for extra in ({}, {"tools": TOOLS}):
            whole = await post(client, "/v1/chat/completions", **ask, response_format=form, **extra)
            (choice,) = whole["choices"]
            assert choice["finish_reason"] in ("stop", "tool_calls")
            if choice["finish_reason"] == "stop":
                assert json.loads(choice["message"]["content"])["a"] in (1, 2)
        named = {"type": "function", "function": {"name": "find"}}
        for choosing in ("required", named):
            whole = await post(client, "/v1/chat/completions", **ask, tools=TOOLS, tool_choice=choosing)
            (choice,) = whole["choices"]
            assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", None)
            (call,) = choice["message"]["tool_calls"]
            assert json.loads(call["function"]["arguments"])["a"] in ("x", "y")
            # The same answer in a stream.
            streamed = await client.post(
                "/v1/chat/completions",
                json={**ask, "tools": TOOLS, "tool_choice": choosing, "stream": True},
                headers=FRESH,
            )
            lines = [json.loads(line[6:]) for line in (await streamed.text()).split("\n\n") if line[6:7] == "{"]
            deltas = [line["choices"][0]["delta"] for line in lines]
            pieces = [piece for delta in deltas for piece in delta.get("tool_calls") or ()]
            assert "".join(p["function"].get("arguments", "") for p in pieces) == call["function"]["arguments"]
            thoughts = "".join(delta.get("reasoning_content") or "" for delta in deltas)
            assert thoughts == choice["message"].get("reasoning_content", "")


async def test_thinking_has_a_bound_where_the_request_gives_one(checkpoint: Path) -> None:
    ask = {"messages": [USER], "max_tokens": 60, "temperature": 0.0}
    async with speaking(checkpoint) as client:
        bounded = {"type": "enabled", "budget_tokens": 12}
        message = await post(client, "/v1/messages", **ask, thinking=bounded)
        thoughts = "".join(block.get("thinking", "") for block in message["content"])
        counted = await post(client, "/tokenize", prompt=thoughts, add_special_tokens=False)
        assert counted["count"] <= 8
        assert message["content"][-1]["type"] == "text"


async def test_effort_reaches_the_template_in_its_own_words(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = []
    render = LocalModel.render_chat

    async def seen(self: LocalModel, *arguments: Any, **options: Any) -> tuple[int, ...]:
        tokens = await render(self, *arguments, **options)
        prompts.append(self.decode(tokens).partition(";")[0].removeprefix("systemReasoning: "))
        return tokens

    monkeypatch.setattr(LocalModel, "render_chat", seen)
    scripted(monkeypatch, FINAL)
    async with speaking(checkpoint) as client:
        asked = openai(client).chat.completions
        for effort, told in (("minimal", "low"), ("low", "low"), ("high", "high"), ("xhigh", "high"), (None, "medium")):
            await asked.create(**ASK, **({} if effort is None else {"reasoning_effort": effort}))
            assert prompts[-1] == told
        with pytest.raises(BadRequestError, match="always thinks") as refused:
            await asked.create(**ASK, reasoning_effort="none")
        assert refused.value.param == "reasoning_effort"
        reply = await client.post(
            "/v1/messages",
            json={"model": "tiny", "max_tokens": 9, "messages": [USER], "thinking": {"type": "disabled"}},
        )
        assert reply.status == 400
        assert "'thinking'" in (await reply.json())["error"]["message"]
        await post(client, "/v1/messages", messages=[USER], max_tokens=9, thinking={"type": "adaptive"})
        assert prompts[-1] == "medium"
