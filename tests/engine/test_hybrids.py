"""Models with layers that keep a state: they write what transformers writes, wherever a state is begun or lost."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from engine_site import StartLine, serving
from safetensors.torch import load_file, save_file
from test_guests import NEW, PROMPTS, complete, complete_all, oracle, write
from tiny_models import COMMON, write_tokenizer

from headgate.engine.engine import Engine
from headgate.engine.errors import CheckpointError, UnknownArchitecture
from headgate.engine.front.local import LocalModel
from headgate.engine.models import state_passes
from headgate.engine.models.decoder import Decoder
from headgate.engine.models.delta import GatedDelta
from headgate.engine.models.guests import states as guest_states
from headgate.engine.models.loading import check_config, read_facts
from headgate.engine.models.spec import DeltaSpec
from headgate.engine.quant.linear import DenseLinear
from headgate.engine.request import Finish
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.settings import EngineSettings, ModelSpec

DELTA = {
    **{"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 16},
    **{"linear_value_head_dim": 16, "linear_conv_kernel_dim": 4, "head_dim": 32},
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
}
MIXTURE = {
    **{"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
    "shared_expert_intermediate_size": 32,
}
QWEN = ("Qwen3_5TextConfig", DELTA)

HYBRIDS: dict[str, tuple[str, dict[str, Any]]] = {
    # Gated delta rule, and experts.
    "qwen3-next": ("Qwen3NextConfig", {**DELTA, **MIXTURE}),
    # Short convolutions, and nothing recurrent beside them.
    "lfm2": ("Lfm2Config", {"layer_types": ["conv", "full_attention", "conv"]}),
    # Mamba 2, and layers that are neither that nor attention.
    "nemotron-h": (
        "NemotronHConfig",
        {
            **{"hybrid_override_pattern": "M*M-", "num_hidden_layers": 4, "mamba_num_heads": 8, "mamba_head_dim": 16},
            **{"ssm_state_size": 16, "n_groups": 1, "chunk_size": 16, "head_dim": 16},
        },
    ),
    # Mamba 2 and attention side by side in each layer.
    "falcon-h1": (
        "FalconH1Config",
        {
            **{"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_n_groups": 1, "mamba_d_ssm": 128},
            "mamba_chunk_size": 16,
        },
    ),
    # Mamba 1, which goes on from a state token by token only, and reads weights of linear layers.
    "jamba": (
        "JambaConfig",
        {
            **{"attn_layer_period": 3, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1},
            **{"mamba_d_state": 16, "mamba_dt_rank": 8, "num_experts": 4, "use_mamba_kernels": False},
        },
    ),
}


@pytest.mark.parametrize("hybrid", ["qwen3-next", "lfm2"])
def test_greedy_tokens_are_those_of_transformers_whatever_happens_around(hybrid: str, tmp_path: Path) -> None:
    folder = write(tmp_path, *HYBRIDS[hybrid])
    with serving(folder, EngineSettings()) as model:
        expected = asyncio.run(complete_all(model))
        assert oracle(folder, expected) == expected
        hits = model.stats().prefix_hits
        assert [asyncio.run(complete(model, prompt)) for prompt in PROMPTS] == expected
        assert model.stats().prefix_hits - hits == sum((len(p) - 1) // 16 * 16 for p in PROMPTS)
    with serving(folder, EngineSettings(max_step_tokens=13, max_running=5, block_size=4)) as model:
        assert asyncio.run(complete_all(model)) == expected


@pytest.mark.parametrize("hybrid", ["nemotron-h", "falcon-h1", "jamba"])
def test_prompts_are_read_in_parts(hybrid: str, tmp_path: Path) -> None:
    folder = write(tmp_path, *HYBRIDS[hybrid])
    with serving(folder, EngineSettings(max_step_tokens=40, max_running=4)) as model:
        told = asyncio.run(complete_all(model))
    assert oracle(folder, told) == told


def test_a_checkpoint_that_sees_is_read_for_its_text_model(tmp_path: Path) -> None:
    """Beside it the files have what sees, and what guesses tokens ahead."""
    vision = {"depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 64}
    config = transformers.Qwen3_5Config(text_config={**COMMON, **DELTA}, vision_config=vision, tie_word_embeddings=True)
    torch.manual_seed(0)
    whole: Any = transformers.Qwen3_5ForConditionalGeneration(config).eval()
    whole.save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    assert any(name.startswith("model.visual.") for name in tensors)
    tensors["mtp.fc.weight"] = torch.zeros(4, 4)
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    check_config(tmp_path)
    whole.generation_config.eos_token_id = None
    prompt = torch.tensor([PROMPTS[0]])
    with torch.inference_mode():
        options: dict[str, Any] = {"attention_mask": torch.ones_like(prompt), "do_sample": False}
        expected = whole.generate(prompt, max_new_tokens=NEW, **options)[0, prompt.shape[1] :].tolist()
    with serving(tmp_path, EngineSettings()) as model:
        assert asyncio.run(complete(model, PROMPTS[0])) == expected
        assert model.info.architecture == "Qwen3_5ForConditionalGeneration"
        assert read_facts(tmp_path).parameters == model.info.parameters


def test_experts_may_be_two_tensors(tmp_path: Path) -> None:
    """As the files of Qwen3.5 have them; transformers writes them one by one."""
    folder = write(tmp_path, "Qwen3_5MoeTextConfig", {**DELTA, **MIXTURE})
    twin = Path(shutil.copytree(folder, tmp_path / "twin"))
    tensors, count = load_file(folder / "model.safetensors"), MIXTURE["num_experts"]
    for at in [name.removesuffix("gate.weight") + "experts" for name in tensors if name.endswith("mlp.gate.weight")]:
        gates, ups, downs = (
            torch.stack([tensors.pop(f"{at}.{e}.{part}_proj.weight") for e in range(count)])
            for part in ("gate", "up", "down")
        )
        tensors |= {f"{at}.gate_up_proj": torch.cat([gates, ups], dim=1), f"{at}.down_proj": downs}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with serving(folder, EngineSettings()) as model:
        told = asyncio.run(complete_all(model))
    assert oracle(twin, told) == told


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_layers_of_the_delta_rule_can_have_fewer_bits(tmp_path: Path, weights: Any) -> None:
    folder = write(tmp_path, "Qwen3_5MoeTextConfig", {**DELTA, **MIXTURE, "hidden_size": 128})
    engines = [Engine(EngineSettings(device="cpu")) for _ in range(2)]
    for engine, fmt in zip(engines, ("native", weights), strict=True):
        engine.load(ModelSpec("m", folder, weights=fmt))
        engine.start()
    try:
        plain, small = (engine.models["m"] for engine in engines)
        # Experts, too.
        assert small.info.weight_bytes < 0.7 * plain.info.weight_bytes
        text = PROMPTS[2]
        wanted, found = (asyncio.run(m.score("s", tuple(text[:9]), tuple(text[9:]))) for m in (plain, small))
        off = [abs(a.logprob - b.logprob) for a, b in zip(wanted.tokens, found.tokens, strict=True)]
        assert sum(off) / len(off) < 0.5
    finally:
        for engine in engines:
            engine.stop()


@pytest.mark.parametrize("parts", [[130], [64, 66], [1, 63, 65, 1]])
def test_the_delta_rule_is_the_same_however_it_is_read(parts: list[int]) -> None:
    """As token by token, and as its formula."""
    torch.manual_seed(0)
    spec = DeltaSpec(key_heads=2, value_heads=4, key_dim=8, value_dim=6, convolved=3)
    layer = GatedDelta(
        spec=spec,
        place=0,
        gates=DenseLinear(torch.zeros(8, 1)),
        convolution=torch.randn(3, spec.channels),
        decay=-torch.rand(4),
        decay_bias=torch.randn(4),
        norm=torch.rand(6),
        norm_eps=1e-6,
    )
    tokens = torch.randn(2, 130, spec.channels + 24 + 8)
    found, at, states = [], 0, None
    for count in parts:
        part, states = layer.call(tokens[:, at : at + count], states)
        found.append(part)
        at += count
    one_by_one, left = [], None
    for place in range(130):
        part, left = layer.call(tokens[:, place : place + 1], left)
        one_by_one.append(part)
    assert states is not None
    assert left is not None
    torch.testing.assert_close(torch.cat(found, 1), torch.cat(one_by_one, 1), rtol=2e-4, atol=2e-4)
    torch.testing.assert_close(states["recurrent", 0], left["recurrent", 0], rtol=2e-4, atol=2e-4)
    torch.testing.assert_close(states["conv", 0], left["conv", 0])


async def answered(model: LocalModel, prompt: list[int], **more: Any) -> tuple[list[int], Finish]:
    params, tokens, ends = SamplingParams(temperature=0.0, max_tokens=NEW, ignore_eos=True), [], []
    async for delta in model.generate("r", tuple(prompt), params, **more):
        tokens.extend(delta.token_ids)
        ends.append(delta.finish)
    assert ends[-1] is not None
    return tokens, ends[-1]


async def test_prompts_go_on_where_a_state_was_kept(tmp_path: Path) -> None:
    folder, begin = write(tmp_path, *QWEN), PROMPTS[3][:40]
    with serving(folder, EngineSettings()) as model:
        # A conversation's next turn: from the last full block of the answer before.
        first, finish = await answered(model, PROMPTS[0])
        assert (len(PROMPTS[0]), finish.cached_tokens) == (37, 0)
        turn = [*PROMPTS[0], *first, 7, 8, 9]
        assert model.resident(tuple(turn), "") == 48
        second, finish = await answered(model, turn)
        assert finish.cached_tokens == 48
        # A beginning that they share: the second finds no state there, and has it kept for those that follow.
        ends = [begin + [number] * 20 for number in (5, 6, 7)]
        answers = [await answered(model, prompt) for prompt in ends]
        assert [finish.cached_tokens for _, finish in answers] == [0, 0, 32]
        # Choices beside each other read the prompt once.
        params = SamplingParams(temperature=0.0, max_tokens=3, ignore_eos=True)
        before = model.stats().prompt_tokens
        async for _ in model.generate("r", tuple(PROMPTS[2]), params, n=3):
            pass
        assert model.stats().prompt_tokens - before == 64 + 2 * 16
    with serving(folder, EngineSettings(prefix_cache=False)) as model:
        assert (await answered(model, turn))[0] == second
        for prompt, (tokens, _) in zip(ends, answers, strict=True):
            assert (await answered(model, prompt))[0] == tokens


def test_where_memory_is_short_states_begin_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path, *QWEN)
    line = StartLine()
    # Seven states, and blocks for 176 tokens, of which the prompts with their answers are 292.
    with serving(folder, EngineSettings(max_running=4, kv_bytes=170_000), clock=line) as model:
        expected = asyncio.run(line.together(model, [complete(model, prompt) for prompt in PROMPTS]))
        assert model.stats().preemptions
    assert oracle(folder, expected) == expected
    logits, calls = Decoder.logits, 0

    def failing(self: Decoder, hidden: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == 9:  # behind the layers, which have changed their states by then
            raise torch.OutOfMemoryError("CUDA out of memory")
        return logits(self, hidden)

    with serving(folder, EngineSettings()) as model:
        monkeypatch.setattr(Decoder, "logits", failing)
        assert asyncio.run(complete_all(model)) == expected
        assert model.stats().short_steps == 1
    with pytest.raises(CheckpointError, match=r"kv_bytes 9000 holds no block and state; 22528 is the least"):
        Engine(EngineSettings(device="cpu", kv_bytes=9000)).load(ModelSpec("m", folder, dtype="float32"))


async def test_it_sleeps_scores_and_takes_no_drafts(tmp_path: Path) -> None:
    folder, text = write(tmp_path, *QWEN), PROMPTS[2]
    model_there = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        logprobs = model_there(torch.tensor([text])).logits[0].log_softmax(-1)
    with serving(folder, EngineSettings(max_step_tokens=20, max_running=4)) as model:
        before, _ = await answered(model, PROMPTS[0])
        assert model.sleeper is not None
        await asyncio.wrap_future(model.sleeper.sleep())
        assert model.stats().kv_bytes == 0
        tokens, finish = await answered(model, PROMPTS[0], draft=tuple(before))
        assert (tokens, finish.accepted, finish.rejected, finish.cached_tokens) == (before, 0, 0, 0)
        score = await model.score("s", tuple(text[:9]), tuple(text[9:]))
        for place, told in enumerate(score.tokens, start=8):
            assert told.logprob == pytest.approx(float(logprobs[place, text[place + 1]]), abs=1e-4)
        assert await model.pin(tuple(text), "") is not None
        assert (await answered(model, text))[1].cached_tokens == 48


@pytest.mark.parametrize(("hybrid", "lost"), [("lfm2", "_by_position"), ("jamba", "_continues")])
def test_where_states_would_be_lost_it_is_refused(
    hybrid: str, lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, said = (state_passes, {}) if lost == "_by_position" else (guest_states, True)
    monkeypatch.setattr(where, lost, lambda *_: said)
    folder = write(tmp_path, *HYBRIDS[hybrid])
    with pytest.raises(UnknownArchitecture, match=r"with our attention and cache its logits are off by"):
        Engine(EngineSettings(device="cpu")).load(ModelSpec("m", folder, dtype="float32"))
