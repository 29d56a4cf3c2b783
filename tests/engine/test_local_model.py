"""A local model's stream of text: stop strings, log-probabilities, counts, merged deltas."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from tiny_models import MakeCheckpoint, write_tokenizer

from headgate.engine.engine import Engine
from headgate.engine.errors import PromptTooLong
from headgate.engine.front.choice import TextDelta
from headgate.engine.front.judged import Probe, Score
from headgate.engine.front.local import LocalModel
from headgate.engine.kernels.choice import KernelSet
from headgate.engine.request import Finish
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.settings import EngineSettings, ModelSpec
from headgate.engine.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def model(tiny_checkpoint: Path) -> Iterator[LocalModel]:
    engine = Engine(EngineSettings())
    engine.load(ModelSpec("m", tiny_checkpoint))
    engine.start()
    yield engine.models["m"]
    engine.stop()


PROMPT = tuple(range(40, 70))


def run(model: LocalModel, *, stop: tuple[str, ...] = (), n: int = 1, **sampling: object) -> list[list[TextDelta]]:
    async def collect() -> list[list[TextDelta]]:
        params = SamplingParams(**{"temperature": 0.0, "max_tokens": 40, "ignore_eos": True, **sampling})
        choices: list[list[TextDelta]] = [[] for _ in range(n)]
        async for delta in model.generate("r", PROMPT, params, n=n, stop=stop):
            choices[delta.index].append(delta)
        return choices

    return asyncio.run(collect())


def text_of(deltas: list[TextDelta]) -> str:
    return "".join(d.text for d in deltas)


def test_stream_ends_once_with_its_account(model: LocalModel, tiny_checkpoint: Path) -> None:
    (deltas,) = run(model)
    tokens = [token for d in deltas for token in d.token_ids]
    assert [d.finish is not None for d in deltas] == [False] * (len(deltas) - 1) + [True]
    finish = deltas[-1].finish
    assert finish is not None
    assert (finish.reason, finish.prompt_tokens, finish.completion_tokens) == ("length", 30, 40)
    assert finish.device_s > 0
    assert text_of(deltas) == Tokenizer.load(tiny_checkpoint).decode(tokens)
    (again,) = run(model)
    assert again[-1].finish is not None
    assert again[-1].finish.cached_tokens == 16


def test_a_stop_string_ends_the_choice_and_is_not_shown(model: LocalModel) -> None:
    whole = text_of(run(model)[0])
    stop = whole[20:23]
    (deltas,) = run(model, stop=("not in there", stop))
    assert text_of(deltas) == whole[: whole.index(stop)]
    finish = deltas[-1].finish
    assert finish is not None
    assert finish.reason == "stop"
    assert finish.completion_tokens < 40
    assert model.stats().kv_blocks_used == 0


def test_choices_stop_each_on_its_own(model: LocalModel) -> None:
    whole = [text_of(c) for c in run(model, n=3, temperature=1.0, seed=5)]
    stop = whole[1][15:18]
    stopped = run(model, n=3, temperature=1.0, seed=5, stop=(stop,))
    for deltas, text in zip(stopped, whole, strict=True):
        assert text_of(deltas) == text.split(stop)[0]
        assert deltas[-1].finish is not None
        assert deltas[-1].finish.reason == ("stop" if stop in text else "length")


def test_a_choice_ends_where_its_reader_has_all_of_it(model: LocalModel) -> None:
    async def read() -> dict[int, list[TextDelta]]:
        params = SamplingParams(temperature=1.0, seed=5, max_tokens=40, ignore_eos=True)
        said: dict[int, list[TextDelta]] = {0: [], 1: []}

        def complete(index: int) -> bool:
            return index == 1 and len(text_of(said[1])) >= 5

        async for delta in model.generate("r", PROMPT, params, n=2, complete=complete):
            said[delta.index].append(delta)
        return said

    said = asyncio.run(read())
    whole = [text_of(c) for c in run(model, n=2, temperature=1.0, seed=5)]
    assert text_of(said[0]) == whole[0], "the others go on"
    assert whole[1].startswith(text_of(said[1]))
    finish = said[1][-1].finish
    assert finish is not None
    assert (finish.reason, finish.completion_tokens) == ("stop", sum(len(d.token_ids) for d in said[1]))
    assert finish.completion_tokens < 40


def test_stop_tokens_end_the_choice_and_are_not_shown(model: LocalModel) -> None:
    (deltas,) = run(model)
    tokens = [token for d in deltas for token in d.token_ids]
    chosen = tokens[10]
    first = tokens.index(chosen)
    (stopped,) = run(model, stop_token_ids=(chosen,))
    assert [token for d in stopped for token in d.token_ids] == tokens[: first + 1]
    assert stopped[-1].finish is not None
    assert stopped[-1].finish.reason == "stop"
    assert text_of(stopped) == model.decode(tokens[:first])


def test_logprobs_are_the_models_own(model: LocalModel, tiny_checkpoint: Path) -> None:
    (deltas,) = run(model, logprobs=3, max_tokens=8, temperature=0.7, seed=1, frequency_penalty=1.0)
    tokens = [token for d in deltas for token in d.token_ids]
    entries = [entry for d in deltas for entry in d.logprobs]
    oracle = transformers.AutoModelForCausalLM.from_pretrained(tiny_checkpoint, dtype=torch.float32)
    with torch.inference_mode():
        logits = oracle(torch.tensor([[*PROMPT, *tokens]])).logits[0, len(PROMPT) - 1 : -1]
    expected = logits.log_softmax(-1)
    assert len(entries) == len(tokens)
    for entry, token, row in zip(entries, tokens, expected, strict=True):
        assert entry.logprob == pytest.approx(row[token].item(), abs=1e-4)
        assert [t.logprob for t in entry.top] == pytest.approx(row.topk(3).values.tolist(), abs=1e-4)


def test_a_given_continuation_is_scored_as_the_model_itself_would(model: LocalModel, tiny_checkpoint: Path) -> None:
    # More tokens than have their logits computed at a time, over several steps, and part of the prompt cached.
    continuation = tuple(range(250, 310)) + tuple(range(90, 115))
    oracle = transformers.AutoModelForCausalLM.from_pretrained(tiny_checkpoint, dtype=torch.float32)
    with torch.inference_mode():
        logits = oracle(torch.tensor([[*PROMPT, *continuation]])).logits[0, len(PROMPT) - 1 : -1]
    expected = logits.log_softmax(-1)
    run(model, max_tokens=1)
    for priority in ("foreground", "background"):
        score = asyncio.run(model.score("s", PROMPT, continuation, top=3, priority=priority))
        assert [t.token_id for t in score.tokens] == list(continuation)
        wanted = [row[token].item() for row, token in zip(expected, continuation, strict=True)]
        assert [t.logprob for t in score.tokens] == pytest.approx(wanted, abs=1e-3)
        assert [t.likeliest for t in score.tokens] == [
            row.argmax().item() == token for row, token in zip(expected, continuation, strict=True)
        ]
        for token, row in zip(score.tokens, expected, strict=True):
            assert [row[other].item() for other, _ in token.top] == pytest.approx(row.topk(3).values.tolist(), abs=1e-3)
            assert [logprob for _, logprob in token.top] == pytest.approx(row.topk(3).values.tolist(), abs=1e-3)
        assert score.mean == pytest.approx(sum(wanted) / len(wanted), abs=1e-3)
        assert (score.finish.completion_tokens, score.finish.cached_tokens) == (0, 16)
        assert not score.greedy
    assert model.stats().kv_blocks_used == 0


def test_the_greedy_answer_scores_as_greedy_token_by_token(model: LocalModel) -> None:
    (deltas,) = run(model, max_tokens=30, logprobs=0)
    tokens = tuple(token for d in deltas for token in d.token_ids)
    score = asyncio.run(model.score("s", PROMPT, tokens))
    assert score.greedy
    said = [entry.logprob for d in deltas for entry in d.logprobs]
    assert [t.logprob for t in score.tokens] == pytest.approx(said, abs=1e-3)
    other = asyncio.run(model.score("s", PROMPT, (*tokens[:10], tokens[10] + 1, *tokens[11:])))
    assert [t.likeliest for t in other.tokens[:11]] == [True] * 10 + [False]
    with pytest.raises(ValueError, match="the continuation has no tokens"):
        asyncio.run(model.score("s", PROMPT, ()))


@pytest.mark.parametrize("kernels", ["auto", "reference"])
@pytest.mark.parametrize(
    ("architecture", "dtype"), [("qwen3", "float32"), ("qwen3", "bfloat16"), ("qwen3-moe", "float32")]
)
def test_a_probe_gives_the_state_at_the_end_and_leaves_the_prompt_in_the_cache(
    make_checkpoint: MakeCheckpoint, architecture: str, dtype: str, kernels: KernelSet
) -> None:
    folder = make_checkpoint(architecture)
    write_tokenizer(folder)
    oracle = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    prompts = [tuple(range(40, 40 + length)) for length in (1, 16, 75)]
    with torch.inference_mode():
        expected = []
        for prompt in prompts:
            said = oracle(torch.tensor([prompt]), use_cache=True)
            layers = said.past_key_values.layers
            values = layers[len(layers) // 2].values[0].transpose(0, 1).flatten(1)
            logprobs = said.logits[0, -1].log_softmax(-1)
            likeliest, entropy = logprobs.topk(5).values, -(logprobs.exp() * logprobs).sum()
            expected.append(torch.cat([values[-1], values.mean(0), likeliest, entropy[None]]).numpy())
        scored = oracle(torch.tensor([prompts[-1]])).logits[0, 9:-1].log_softmax(-1)
    # A step takes 24 tokens, so that the longest prompt comes in several, beside the others and an answer.
    engine = Engine(EngineSettings(kernels=kernels, max_step_tokens=24, max_running=8))
    engine.load(ModelSpec("m", folder, dtype=dtype))
    engine.start()
    model = engine.models["m"]

    async def ask() -> tuple[list[Probe], Score, list[Finish]]:
        greedy = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)

        async def answer(name: str, prompt: tuple[int, ...], tenant: str) -> Finish:
            finishes = [d.finish async for d in model.generate(name, prompt, greedy, tenant=tenant)]
            assert finishes[-1] is not None
            return finishes[-1]

        given = asyncio.create_task(answer("other", prompts[-1], "other"))
        score = asyncio.create_task(model.score("s", prompts[-1][:10], prompts[-1][10:], tenant="scorer"))
        probes = await asyncio.gather(*(model.probe("p", prompt, tenant="t") for prompt in prompts))
        await given
        return probes, await score, [await answer("a", prompts[-1], tenant) for tenant in ("t", "stranger")]

    probes, score, (mine, strangers) = asyncio.run(ask())
    engine.stop()
    for probe, state, prompt in zip(probes, expected, prompts, strict=True):
        assert (probe.state.dtype, probe.state.shape) == (np.float32, state.shape)
        np.testing.assert_allclose(probe.state, state, atol=2e-3 if dtype == "float32" else 0.15)
        assert (probe.finish.reason, probe.finish.prompt_tokens, probe.finish.completion_tokens) == (
            "stop",
            len(prompt),
            0,
        )
        assert probe.finish.device_s > 0
    wanted = [row[token].item() for row, token in zip(scored, prompts[-1][10:], strict=True)]
    assert [t.logprob for t in score.tokens] == pytest.approx(wanted, abs=2e-3 if dtype == "float32" else 0.3)
    assert (mine.cached_tokens, strangers.cached_tokens) == (74, 0)  # the last token alone is computed again


def test_a_probe_that_cannot_be_computed_says_so(model: LocalModel) -> None:
    with pytest.raises(PromptTooLong):
        asyncio.run(model.probe("p", tuple([5] * 600)))

    async def leave() -> None:
        task = asyncio.create_task(model.probe("p", PROMPT))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(leave())
    asyncio.run(model.probe("after", PROMPT))
    assert model.stats().kv_blocks_used == 0


def test_chat_template_is_applied(model: LocalModel, tiny_checkpoint: Path) -> None:
    messages = [{"role": "user", "content": "what is the capital?"}]
    tokens = asyncio.run(model.render_chat(messages))
    oracle = transformers.AutoTokenizer.from_pretrained(tiny_checkpoint)
    assert list(tokens) == oracle.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]


def test_a_slow_reader_gets_merged_deltas(model: LocalModel) -> None:
    async def read_slowly() -> list[TextDelta]:
        params = SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True)
        stream = model.generate("slow", PROMPT, params)
        deltas = [await anext(stream)]
        # Another request runs to its end while this one's tokens pile up.
        async for _ in model.generate("other", PROMPT, SamplingParams(temperature=0.0, max_tokens=60, ignore_eos=True)):
            pass
        deltas.extend([delta async for delta in stream])
        return deltas

    deltas = asyncio.run(read_slowly())
    assert len(deltas) <= 3
    assert text_of(deltas) == text_of(run(model)[0])


def test_an_answer_ends_and_counts_alike_however_late_it_is_read(model: LocalModel) -> None:
    whole = text_of(run(model)[0])
    params = SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True)

    async def read(late: bool, stop: tuple[str, ...], wanted: int) -> tuple[str, int, int, str]:
        said: dict[int, list[TextDelta]] = {0: []}
        complete = None if stop else lambda _index: len(text_of(said[0])) >= wanted
        stream = model.generate("r", PROMPT, params, stop=stop, complete=complete)
        said[0].append(await anext(stream))
        if late:
            # Everything is computed meanwhile, so that the end lies in the middle of what is read next.
            async for _ in model.generate("other", PROMPT, SamplingParams(max_tokens=60, ignore_eos=True)):
                pass
        async for delta in stream:
            said[delta.index].append(delta)
        finish = said[0][-1].finish
        assert finish is not None
        return text_of(said[0]), sum(len(d.token_ids) for d in said[0]), finish.completion_tokens, finish.reason

    for stop, wanted in (((whole[20:23],), 0), ((), 12)):
        soon, late = asyncio.run(read(False, stop, wanted)), asyncio.run(read(True, stop, wanted))
        assert soon == late
        assert soon[1] == soon[2] < 40
        assert soon[3] == "stop"


def test_a_stream_told_to_end_still_gives_its_account(model: LocalModel) -> None:
    async def ended() -> tuple[int, list[TextDelta]]:
        params = SamplingParams(temperature=0.0, max_tokens=400, ignore_eos=True)
        stream = model.generate("r", PROMPT, params)
        seen = len((await anext(stream)).token_ids)
        rest = [await stream.asend(True)]
        rest.extend([delta async for delta in stream])
        return seen, rest

    seen, rest = asyncio.run(ended())
    finish = rest[-1].finish
    assert finish is not None
    assert finish.reason == "cancelled"
    assert seen <= finish.completion_tokens < 400
    assert finish.device_s > 0


def test_a_stream_that_is_left_tells_its_account_too(model: LocalModel) -> None:
    accounts: list[Finish] = []

    async def left(cancel: bool) -> int:
        params = SamplingParams(temperature=0.0, max_tokens=400, ignore_eos=True)
        stream = model.generate("r", PROMPT, params, n=2, left=accounts.extend)
        seen = len((await anext(stream)).token_ids)
        if not cancel:
            await stream.aclose()
            return seen

        async def read() -> None:
            async for _ in stream:
                pass

        reader = asyncio.create_task(read())
        await asyncio.sleep(0)
        reader.cancel()
        await asyncio.wait([reader])
        return seen

    for cancel in (False, True):
        seen = asyncio.run(left(cancel))
        assert [f.reason for f in accounts] == ["cancelled", "cancelled"]
        assert seen <= sum(f.completion_tokens for f in accounts) < 800
        assert accounts[0].device_s > 0
        assert all(f.prompt_tokens == len(PROMPT) for f in accounts)
        accounts.clear()


@pytest.mark.parametrize("bounded", [False, True])
def test_a_stream_that_is_left_within_a_hand_over_tells_of_what_has_ended(model: LocalModel, bounded: bool) -> None:
    """What its reader was slow to take came at once: all choices, or all tokens of one, of which he takes a part."""
    accounts: list[Finish] = []
    n = 1 if bounded else 4

    async def leave() -> None:
        params = SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True)
        complete = (lambda _: False) if bounded else None
        stream = model.generate("r", PROMPT, params, n=n, left=accounts.extend, complete=complete)
        await anext(stream)
        async for _ in model.generate("other", PROMPT, replace(params, max_tokens=60)):
            pass
        for _ in range(20):
            taken = await anext(stream)
            if taken.finish is not None:
                accounts.append(taken.finish)
                break
        await stream.aclose()

    asyncio.run(leave())
    assert [(finish.reason, finish.completion_tokens) for finish in accounts] == [("length", 40)] * n


def test_what_is_cached_of_a_prompt_is_told_by_tenant(model: LocalModel) -> None:
    prompt = tuple(range(100, 150))
    assert model.resident(prompt, "") == 0

    async def read() -> None:
        params = SamplingParams(temperature=0.0, max_tokens=1)
        async for _ in model.generate("r", prompt, params):
            pass

    asyncio.run(read())
    assert model.resident(prompt, "") == 48
    assert model.resident((*prompt[:20], 7, *prompt[21:]), "") == 16
    assert model.resident(prompt[:48], "") == 32, "the last token is always computed"
    assert model.resident(prompt[:1], "") == 0
    assert model.resident(prompt, "somebody else") == 0
