"""Plain completions that begin with their prompt, and the log-probabilities of its tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from gateway_site import forget_environment, site

from headgate.engine.text.tokenizer import Tokenizer

ASK: dict[str, Any] = {"model": "tiny", "prompt": "the quick fox", "max_tokens": 4}


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_environment(monkeypatch)


async def test_the_prompt_stands_before_its_continuation(tiny_checkpoint: Path) -> None:
    async with site(tiny_checkpoint) as client:
        plain = await (await client.post("/v1/completions", json={**ASK, "n": 2})).json()
        told = await (await client.post("/v1/completions", json={**ASK, "n": 2, "echo": True})).json()
        for without, with_prompt in zip(plain["choices"], told["choices"], strict=True):
            assert with_prompt["text"] == ASK["prompt"] + without["text"]
        assert told["usage"]["completion_tokens"] == plain["usage"]["completion_tokens"]
        streamed = await client.post("/v1/completions", json={**ASK, "echo": True, "stream": True})
        events = [json.loads(e[6:]) for e in (await streamed.text()).split("\n\n") if e.startswith("data: {")]
        assert "".join(e["choices"][0]["text"] for e in events) == told["choices"][0]["text"]


async def test_logprobs_of_the_prompt_are_those_of_generating_it(tiny_checkpoint: Path) -> None:
    async with site(tiny_checkpoint) as client:
        ask = {**ASK, "logprobs": 0}
        generated = (await (await client.post("/v1/completions", json=ask)).json())["choices"][0]
        prompt = ASK["prompt"] + generated["text"]
        for stream in (False, True):
            body = {**ask, "prompt": prompt, "echo": True, "max_tokens": 0, "stream": stream}
            reply = await client.post("/v1/completions", json=body)
            text = await reply.text()
            told = json.loads(text.split("\n\n")[0][6:] if stream else text)["choices"][0]
            logprobs = told["logprobs"]
            assert (told["text"], told["finish_reason"]) == (prompt, "length")
            assert logprobs["token_logprobs"][0] is None
            assert "".join(logprobs["tokens"]) == prompt
            assert [prompt[a:].startswith(t) for a, t in zip(logprobs["text_offset"], logprobs["tokens"], strict=True)]
            # The text may be cut into other tokens than the model wrote; where it is not, they are as likely.
            if logprobs["tokens"][-4:] == generated["logprobs"]["tokens"]:
                assert logprobs["token_logprobs"][-4:] == pytest.approx(
                    generated["logprobs"]["token_logprobs"], abs=1e-3
                )


async def test_reading_the_prompt_is_part_of_the_account(tiny_checkpoint: Path) -> None:
    async with site(tiny_checkpoint) as client:

        async def cached(**more: Any) -> int:
            ask = {**ASK, "prompt": "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", **more}
            body = await (await client.post("/v1/completions", json=ask)).json()
            return int(body["usage"]["prompt_tokens_details"]["cached_tokens"])

        assert await cached(echo=True, logprobs=1) == 0, "what it has just read for this request was not there before"
        assert await cached(max_tokens=3) > 0


async def test_the_likeliest_tokens_of_the_prompt_are_the_models_own(tiny_checkpoint: Path) -> None:
    oracle = transformers.AutoModelForCausalLM.from_pretrained(tiny_checkpoint, dtype=torch.float32)
    tokenizer = Tokenizer.load(tiny_checkpoint)
    async with site(tiny_checkpoint) as client:
        body = {**ASK, "echo": True, "logprobs": 4, "max_tokens": 2}
        told = (await (await client.post("/v1/completions", json=body)).json())["choices"][0]
    logprobs, prompt = told["logprobs"], tokenizer.encode(ASK["prompt"], add_special_tokens=False)
    with torch.inference_mode():
        expected = oracle(torch.tensor([prompt])).logits[0, :-1].log_softmax(-1)
    assert "".join(logprobs["tokens"]) == told["text"]
    assert [len(values) for values in logprobs.values()] == [len(prompt) + 2] * 4
    assert (logprobs["token_logprobs"][0], logprobs["top_logprobs"][0]) == (None, None)
    for at, row in enumerate(expected, 1):
        chosen, given = prompt[at], logprobs["top_logprobs"][at]
        likeliest = row.topk(4)
        wanted = {tokenizer.token_text(chosen): row[chosen].item()}
        for token, logprob in reversed(list(zip(likeliest.indices.tolist(), likeliest.values.tolist(), strict=True))):
            wanted[tokenizer.token_text(token)] = logprob
        assert given == pytest.approx(wanted, abs=1e-3)
        assert logprobs["token_logprobs"][at] == pytest.approx(row[chosen].item(), abs=1e-3)
    assert all(token in top for token, top in zip(logprobs["tokens"][1:], logprobs["top_logprobs"][1:], strict=True))


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"echo": True, "logprobs": 6}, "logprobs"),
        ({"suffix": "end"}, "suffix"),
        ({"echo": 1}, "echo"),
    ],
)
async def test_what_is_not_served_is_refused(tiny_checkpoint: Path, change: dict[str, Any], param: str) -> None:
    async with site(tiny_checkpoint) as client:
        reply = await client.post("/v1/completions", json={**ASK, **change})
        assert reply.status == 400
        assert (await reply.json())["error"]["param"] == param


async def test_the_flexible_tier_is_told_back(tiny_checkpoint: Path) -> None:
    async with site(tiny_checkpoint) as client:
        ask = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
        for tier, told in (("flex", "flex"), ("auto", "default")):
            reply = await client.post("/v1/chat/completions", json={**ask, "service_tier": tier})
            assert (await reply.json())["service_tier"] == told
