"""Greedy text through the whole engine: it depends on the prompt, and on nothing that happens around it."""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
from engine_site import StartLine, serving
from greedy_oracle import likeliest
from tiny_models import ARCHITECTURES, SEEING, MakeCheckpoint, write_tokenizer

from headgate.engine.engine import Engine
from headgate.engine.errors import CheckpointError
from headgate.engine.front.local import LocalModel
from headgate.engine.kernels.choice import KernelSet, choose_kernels
from headgate.engine.kv.store import KVDtype
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.settings import EngineSettings, ModelSpec

NEW = 24
FULLY = [
    n
    for n in ARCHITECTURES
    if n.startswith(("llama", "mistral", "qwen", "mixtral", "olmoe", "phi3-l", "gemma3", "olmo3"))
]
"""Families that are tested in every way here; others are made of the same parts."""


async def complete(model: LocalModel, prompt: list[int], n: int = 1, **sampling: object) -> list[list[int]]:
    params = SamplingParams(**{"temperature": 0.0, "max_tokens": NEW, "ignore_eos": True, **sampling})
    choices: list[list[int]] = [[] for _ in range(n)]
    async for delta in model.generate("r", tuple(prompt), params, n=n):
        choices[delta.index].extend(delta.token_ids)
    return choices


async def complete_all(model: LocalModel, prompts: list[list[int]], new: int = NEW) -> list[list[int]]:
    return [c[0] for c in await asyncio.gather(*(complete(model, p, max_tokens=new) for p in prompts))]


def prompts_of(lengths: list[int]) -> list[list[int]]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randint(3, 320, (n,), generator=generator).tolist() for n in lengths]


def oracle(folder: Path, prompts: list[list[int]], told: list[list[int]]) -> list[list[int]]:
    """What transformers has for likeliest where these are told: the same, if they are its greedy output."""
    config = transformers.AutoConfig.from_pretrained(folder)
    ropes = getattr(config, "rope_parameters", {})
    if "long_factor" in ropes:
        # The context that is served decides here, not how long an answer is at the moment.
        ropes["short_factor"] = ropes["long_factor"]
    model = getattr(transformers, config.architectures[0]).from_pretrained(
        folder, config=config, dtype=torch.float32, attn_implementation="eager"
    )
    return likeliest(model, prompts, told)


@pytest.fixture(params=FULLY)
def folder(request: pytest.FixtureRequest, make_checkpoint: MakeCheckpoint) -> Path:
    path = make_checkpoint(request.param)
    write_tokenizer(path)
    return path


@pytest.mark.parametrize("architecture", [n for n in [*ARCHITECTURES, *SEEING] if n not in FULLY])
def test_other_families_write_what_transformers_write(architecture: str, make_checkpoint: MakeCheckpoint) -> None:
    folder = make_checkpoint(architecture)
    write_tokenizer(folder)
    prompts = prompts_of([37, 5, 64])
    with serving(folder, EngineSettings(max_step_tokens=13, max_running=3, block_size=4)) as model:
        told = asyncio.run(complete_all(model, prompts))
    assert [len(one) for one in told] == [NEW] * 3
    assert oracle(folder, prompts, told) == told


def test_greedy_tokens_whatever_happens_around(folder: Path) -> None:
    prompts = prompts_of([37, 5, 64, 17, 90])

    async def alone_then_together(model: LocalModel) -> list[list[int]]:
        alone = [(await complete(model, p))[0] for p in prompts]
        # The second round finds every prompt in the prefix cache.
        hits = model.stats().prefix_hits
        assert await complete_all(model, prompts) == alone
        assert model.stats().prefix_hits - hits == sum((len(p) - 1) // 16 * 16 for p in prompts)
        return alone

    async def together(model: LocalModel) -> None:
        assert await complete_all(model, prompts) == expected

    line = StartLine()

    async def in_one_step(model: LocalModel) -> None:
        assert await line.together(model, [complete(model, p) for p in prompts]) == [[e] for e in expected]

    with serving(folder, EngineSettings()) as model:
        expected = asyncio.run(alone_then_together(model))
    assert [len(one) for one in expected] == [NEW] * 5
    assert oracle(folder, prompts, expected) == expected
    with serving(folder, EngineSettings(max_step_tokens=13, max_running=5, block_size=4)) as model:
        asyncio.run(together(model))
        assert model.stats().steps > sum(map(len, prompts)) / 13
    # 44 blocks of 4 tokens hold the longest sequence, not all of them: some are preempted and recomputed.
    per_token = model.info.kv_bytes_per_token
    tight = EngineSettings(block_size=4, kv_bytes=per_token * 4 * 44, prefix_cache=False)
    with serving(folder, tight, clock=line) as model:
        asyncio.run(in_one_step(model))
        # Behind windows blocks are given back, and then all have room: for these see test_windows.py.
        assert (model.stats().preemptions > 0) == (model.info.context_length == 176)
        assert model.stats().kv_blocks_used == 0


@pytest.mark.parametrize(("kernels", "kind"), [("auto", "int8"), ("reference", "int8"), ("reference", "fp8")])
def test_rounded_keys_and_values_write_nearly_the_same_in_less_memory(
    tiny_checkpoint: Path, kernels: KernelSet, kind: KVDtype
) -> None:
    prompts = prompts_of([37, 5, 64, 90])
    with serving(tiny_checkpoint, EngineSettings(kernels=kernels)) as model:
        expected, exact_bytes = asyncio.run(complete_all(model, prompts)), model.info.kv_bytes_per_token
    budget = EngineSettings(kernels=kernels, kv_dtype=kind, max_step_tokens=13, max_running=5, block_size=4)
    with serving(tiny_checkpoint, budget) as model:
        got, info = asyncio.run(complete_all(model, prompts)), model.info
        again = asyncio.run(complete_all(model, prompts))
        assert model.stats().prefix_hits > 0
    with serving(tiny_checkpoint, replace(budget, prefix_cache=False)) as model:
        alone = [asyncio.run(complete_all(model, [prompt]))[0] for prompt in prompts]
    assert got == again == alone
    # The first token's logits are off by little; whole texts may part where two tokens are as likely.
    assert [text[0] for text in got] == [text[0] for text in expected]
    config = json.loads((tiny_checkpoint / "config.json").read_text())
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    assert info.kv_bytes_per_token * 4 * head_dim == exact_bytes * (head_dim + 4)


def test_compiled_kernels_keep_no_fp8() -> None:
    native = choose_kernels("auto", torch.device("cpu"))
    if not native.native:
        pytest.skip(native.why)
    with pytest.raises(ValueError, match=r"kv_dtype is 'fp8', which these kernels cannot keep .*int8 takes as little"):
        Engine(EngineSettings(device="cpu", kv_dtype="fp8"))


def test_several_choices_share_the_prompt(tiny_checkpoint: Path) -> None:
    prompt = prompts_of([50])[0]
    with serving(tiny_checkpoint, EngineSettings()) as model:
        choices = asyncio.run(complete(model, prompt, n=4, temperature=1.0, seed=3))
        assert len({tuple(c) for c in choices}) == 4
        stats = model.stats()
        # The first choice computes 50 tokens; the others find three full blocks of 16 and compute 2.
        assert stats.prompt_tokens == 50 + 3 * 2
        assert asyncio.run(complete(model, prompt, n=4, temperature=1.0, seed=3)) == choices
        assert asyncio.run(complete(model, prompt, n=4, temperature=1.0, seed=4)) != choices


def test_seeded_draws_do_not_depend_on_neighbours(tiny_checkpoint: Path) -> None:
    prompts = prompts_of([20, 33, 8])

    async def run(model: LocalModel) -> None:
        alone = [await complete(model, p, temperature=0.8, top_p=0.9, seed=11) for p in prompts]
        together = await asyncio.gather(*(complete(model, p, temperature=0.8, top_p=0.9, seed=11) for p in prompts))
        assert together == alone

    with serving(tiny_checkpoint, EngineSettings()) as model:
        asyncio.run(run(model))


def test_penalties_count_each_generated_token_once(tiny_checkpoint: Path) -> None:
    """Five tokens are far ahead of the others; a penalty of 2 for each use, large beside the logits, makes them take
    turns, also beside a sequence without penalties and after blocks were taken away."""
    prompts = prompts_of([20, 9])
    bias = tuple((token, 50.0) for token in range(5, 10))

    line = StartLine()

    async def run(model: LocalModel) -> None:
        penalised = complete(model, prompts[0], logit_bias=bias, frequency_penalty=2.0, max_tokens=20)
        (tokens,), (plain,) = await line.together(model, [penalised, complete(model, prompts[1], max_tokens=20)])
        assert {tokens.count(token) for token in range(5, 10)} == {4}
        assert (plain,) == tuple(await complete(model, prompts[1], max_tokens=20))

    with serving(tiny_checkpoint, EngineSettings(), clock=line) as model:
        asyncio.run(run(model))
        assert not model.stats().preemptions
    # The two need three and two blocks.
    with serving(tiny_checkpoint, EngineSettings(), blocks=4, clock=line) as model:
        asyncio.run(run(model))
        assert model.stats().preemptions


def test_no_output_begins_with_what_is_suppressed_and_any_may_go_on_with_it(tiny_checkpoint: Path) -> None:
    prompts = prompts_of([20, 33])
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny_checkpoint, dtype=torch.float32)
    model.generation_config.eos_token_id = None

    def expected(prompt: list[int], suppressed: list[int]) -> list[int]:
        tokens = torch.tensor([prompt])
        options = {"max_new_tokens": NEW, "do_sample": False, "begin_suppress_tokens": suppressed}
        with torch.inference_mode():
            return model.generate(tokens, attention_mask=torch.ones_like(tokens), **options)[0, len(prompt) :].tolist()

    with serving(tiny_checkpoint, EngineSettings(block_size=4)) as served:
        for prompt in prompts:
            [plain] = asyncio.run(complete(served, prompt))
            ruled_out = [plain[0]]
            for _ in range(3):
                told = expected(prompt, ruled_out)
                [output] = asyncio.run(complete(served, prompt, begin_suppress_tokens=tuple(ruled_out)))
                assert output == told
                options = {"begin_suppress_tokens": tuple(ruled_out), "logprobs": 0}
                [[first, *_]] = asyncio.run(complete(served, prompt, **options))
                assert first == told[0]
                ruled_out.append(told[0])
            # Any token may follow: one that nothing else lets through comes again and again.
            bias = ((plain[0], 100.0),)
            [output] = asyncio.run(complete(served, prompt, logit_bias=bias, begin_suppress_tokens=(plain[0],)))
            assert output[0] != plain[0]
            assert set(output[1:]) == {plain[0]}
            most = tuple(range(3, 320))
            drawn = asyncio.run(complete(served, prompt, 8, temperature=2.0, begin_suppress_tokens=most))
            assert all(choice[0] not in most for choice in drawn)


def test_it_is_suppressed_where_all_but_a_prompts_last_token_is_cached(tiny_checkpoint: Path) -> None:
    # In bfloat16, where several tokens follow each other in one call.
    engine = Engine(EngineSettings(block_size=4))
    engine.load(ModelSpec("m", tiny_checkpoint, dtype="bfloat16"))
    engine.start()
    try:
        model, prompt = engine.models["m"], prompts_of([33])[0]
        [[first, *_]] = asyncio.run(complete(model, prompt))
        hits = model.stats().prefix_hits
        [output] = asyncio.run(complete(model, prompt, begin_suppress_tokens=(first,)))
        assert model.stats().prefix_hits - hits == 32
        assert output[0] != first
    finally:
        engine.stop()


@pytest.mark.parametrize("token", [-1, 320, "~", 1.5])
def test_what_is_no_token_cannot_be_suppressed(tiny_checkpoint: Path, tmp_path: Path, token: object) -> None:
    folder = tmp_path / "damaged"
    shutil.copytree(tiny_checkpoint, folder)
    (folder / "generation_config.json").write_text(json.dumps({"begin_suppress_tokens": [3, token]}))
    engine = Engine(EngineSettings())
    with pytest.raises(CheckpointError, match=r"json: begin_suppress_tokens is .*; a list of token ids from 0 to 319"):
        engine.load(ModelSpec("m", folder))


def test_a_token_beyond_the_embedding_is_told_when_the_model_is_loaded(tiny_checkpoint: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_checkpoint, tmp_path / "model"))
    config = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = config["model"]["vocab"]
    vocabulary[max(vocabulary, key=vocabulary.get)] = 320  # no more tokens than before
    (folder / "tokenizer.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"token ids up to 320; vocab_size 320 .* accepts those below 320"):
        Engine(EngineSettings()).load(ModelSpec("m", folder))


def test_tenants_do_not_share_blocks(tiny_checkpoint: Path) -> None:
    prompt = tuple(prompts_of([64])[0])

    async def cached(model: LocalModel, tenant: str) -> int:
        params = SamplingParams(temperature=0.0, max_tokens=2)
        deltas = [d async for d in model.generate("r", prompt, params, tenant=tenant)]
        assert deltas[-1].finish is not None
        return deltas[-1].finish.cached_tokens

    with serving(tiny_checkpoint, EngineSettings()) as model:
        assert [asyncio.run(cached(model, tenant)) for tenant in ("a", "b", "a", "b")] == [0, 0, 48, 48]
