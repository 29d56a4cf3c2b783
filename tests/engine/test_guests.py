"""Architectures that only transformers has: its own layers write, through our attention and cache, what it writes."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from engine_site import serving
from greedy_oracle import likeliest
from safetensors.torch import load_file, save_file
from tiny_models import COMMON, write_tokenizer

from headgate.engine.engine import Engine
from headgate.engine.errors import CheckpointError, UnknownArchitecture
from headgate.engine.front.local import LocalModel
from headgate.engine.kernels.choice import KernelSet
from headgate.engine.models.guests.loading import guest_facts
from headgate.engine.models.loading import check_config, read_facts
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.settings import EngineSettings, ModelSpec

NEW = 24
PROMPTS = [torch.randint(3, 320, (n,), generator=torch.Generator().manual_seed(n)).tolist() for n in (37, 5, 64, 90)]

GUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    # Scores are capped, and every other layer has a window.
    "gemma2": ("Gemma2Config", {"sliding_window": 24, "head_dim": 16, "attn_logit_softcapping": 2.0}),
    # Sinks, windows, and experts in one tensor.
    "granite-swa-moe": (
        "GraniteMoeSWAConfig",
        {"sliding_window": 24, "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    # Values are narrower than keys, routers have biases, and there is a shared expert.
    "deepseek-v3": (
        "DeepseekV3Config",
        {
            "num_key_value_heads": 4,
            "q_lora_rank": 32,
            "kv_lora_rank": 32,
            "qk_nope_head_dim": 16,
            "qk_rope_head_dim": 8,
            "v_head_dim": 16,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "n_group": 1,
            "topk_group": 1,
            "first_k_dense_replace": 1,
            "moe_intermediate_size": 32,
        },
    ),
    # Layers of other heads, wider ones, and a window.
    "gemma4": (
        "Gemma4TextConfig",
        {
            "head_dim": 16,
            "global_head_dim": 32,
            "num_key_value_heads": 4,
            "num_global_key_value_heads": 2,
            "sliding_window": 24,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "hidden_size_per_layer_input": 0,
        },
    ),
    # Learned positions, biases, fused projections that are no linear layers of torch, another name for the layers.
    "gpt2": ("GPT2Config", {"n_positions": 512}),
    # Logits are scaled behind the head.
    "cohere": ("CohereConfig", {"logit_scale": 0.5}),
}


def write(folder: Path, config: str, options: dict[str, Any], seed: int = 0) -> Path:
    torch.manual_seed(seed)
    made = getattr(transformers, config)(**{**COMMON, **options})
    transformers.AutoModelForCausalLM.from_config(made).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def oracle(folder: Path, told: list[list[int]]) -> list[list[int]]:
    """What transformers has for likeliest where these are told: the same, if they are its greedy output."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    return likeliest(model, PROMPTS, told)


async def complete(model: LocalModel, prompt: list[int], **sampling: Any) -> list[int]:
    params = SamplingParams(temperature=0.0, max_tokens=NEW, ignore_eos=True, **sampling)
    return [token async for delta in model.generate("r", tuple(prompt), params) for token in delta.token_ids]


async def complete_all(model: LocalModel) -> list[list[int]]:
    return [*await asyncio.gather(*(complete(model, prompt) for prompt in PROMPTS))]


@pytest.mark.parametrize(
    ("guest", "kernels"),
    [*((guest, "auto") for guest in GUESTS), ("deepseek-v3", "reference"), ("gemma2", "reference")],
)
def test_greedy_tokens_are_those_of_transformers_whatever_happens_around(
    guest: str, kernels: KernelSet, tmp_path: Path
) -> None:
    folder = write(tmp_path, *GUESTS[guest])
    with serving(folder, EngineSettings(kernels=kernels)) as model:
        expected = [asyncio.run(complete(model, prompt)) for prompt in PROMPTS]
        assert [len(one) for one in expected] == [NEW] * 4
        assert oracle(folder, expected) == expected
        hits = model.stats().prefix_hits
        assert asyncio.run(complete_all(model)) == expected
        assert model.stats().prefix_hits - hits == sum((len(p) - 1) // 16 * 16 for p in PROMPTS)
    chunked = EngineSettings(kernels=kernels, max_step_tokens=13, max_running=5, block_size=4, prefix_cache=False)
    with serving(folder, chunked) as model:
        assert asyncio.run(complete_all(model)) == expected


@pytest.mark.parametrize("guest", ["gemma2", "gpt2", "cohere"])
def test_scores_are_those_of_transformers(guest: str, tmp_path: Path) -> None:
    folder = write(tmp_path, *GUESTS[guest])
    text = PROMPTS[2]
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    with torch.inference_mode():
        logprobs = model(torch.tensor([text])).logits[0].log_softmax(-1)
    with serving(folder, EngineSettings()) as served:
        score = asyncio.run(served.score("s", tuple(text[:9]), tuple(text[9:])))
    for place, told in enumerate(score.tokens, start=8):
        assert told.logprob == pytest.approx(float(logprobs[place, text[place + 1]]), abs=1e-4)


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_linear_layers_and_keys_can_have_fewer_bits(tmp_path: Path, weights: Any) -> None:
    folder = write(tmp_path, *GUESTS["granite-swa-moe"])
    engines = [Engine(EngineSettings(device="cpu", kv_dtype=kind)) for kind in ("auto", "int8")]
    for engine, spec in zip(engines, (ModelSpec("m", folder), ModelSpec("m", folder, weights=weights)), strict=True):
        engine.load(spec)
        engine.start()
    try:
        plain, small = (engine.models["m"] for engine in engines)
        assert small.info.weight_bytes < plain.info.weight_bytes
        assert small.info.kv_bytes_per_token < plain.info.kv_bytes_per_token
        assert (plain.info.experts, plain.info.experts_per_token) == (4, 2)
        assert len(asyncio.run(complete(small, PROMPTS[0], logprobs=2))) == NEW
    finally:
        for engine in engines:
            engine.stop()


async def test_a_guest_sleeps_and_answers_as_before(tmp_path: Path) -> None:
    folder = write(tmp_path, *GUESTS["gemma2"])
    with serving(folder, EngineSettings()) as model:
        before = await complete(model, PROMPTS[0])
        assert model.sleeper is not None
        await asyncio.wrap_future(model.sleeper.sleep())
        assert model.stats().kv_bytes == 0
        assert await complete(model, PROMPTS[0]) == before


def test_facts_need_no_weights(tmp_path: Path) -> None:
    folder = write(tmp_path, *GUESTS["granite-swa-moe"])
    with serving(folder, EngineSettings()) as model:
        info, facts = model.info, read_facts(folder)
    assert (info.architecture, info.context_length, info.vocab_size) == ("GraniteMoeSWAForCausalLM", 512, 320)
    assert (facts.architecture, facts.context_length, facts.vocab_size) == ("GraniteMoeSWAForCausalLM", 512, 320)
    assert (facts.parameters, facts.revision) == (info.parameters, info.revision)


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "recurrent": ("MambaConfig", {"state_size": 8}, "none of its layers attends"),
    "attention of its own": ("BloomConfig", {}, "it has no place for another attention"),
    "sees what follows": ("BertConfig", {"is_decoder": False}, "its attention takes .*is_causal"),
    "window untold": (
        "MoshiConfig",
        {"sliding_window": 24},
        "sliding_window is 24, of which its attention is not told",
    ),
}


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path) -> None:
    """Its head would be the embedding, as in a language model."""
    folder = write(tmp_path, "Gemma2Config", {})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["Gemma2ForSequenceClassification"]}))
    with pytest.raises(UnknownArchitecture, match=r"SequenceClassification' .* only Gemma2ForCausalLM can be"):
        check_config(folder)


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_compute_something_else_is_refused(tmp_path: Path, case: str) -> None:
    config, options, why = REFUSED[case]
    folder = write(tmp_path, config, options)
    with pytest.raises(UnknownArchitecture, match=f"the model 'm': config.json: .* cannot be served: .*{why}"):
        Engine(EngineSettings(device="cpu")).load(ModelSpec("m", folder))


def test_layers_are_found_where_their_model_says_otherwise(tmp_path: Path) -> None:
    """Llama 4's text model calls them as the one that sees does."""
    options = {"head_dim": 16, "num_local_experts": 4, "intermediate_size_mlp": 96, "attention_chunk_size": 256}
    folder = write(tmp_path, "Llama4TextConfig", options)
    with serving(folder, EngineSettings()) as model:
        told = asyncio.run(complete_all(model))
        assert oracle(folder, told) == told
        assert model.info.context_length == 256


@pytest.mark.parametrize(("key", "most"), [("num_hidden_layers", 10_000), ("max_position_embeddings", 2**31 - 1)])
def test_a_slip_of_the_pen_is_refused_before_anything_is_made_of_it(key: str, most: int, tmp_path: Path) -> None:
    config = transformers.Gemma2Config(**COMMON).to_dict() | {"architectures": ["Gemma2ForCausalLM"], key: 10**30}
    (tmp_path / "config.json").write_text(json.dumps({**config, "layer_types": None}))
    with pytest.raises(CheckpointError, match=rf"config\.json: {key} must be .* {most}, got 1"):
        guest_facts(tmp_path)


def test_a_model_type_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["OtherForCausalLM"], "model_type": []}))
    with pytest.raises(UnknownArchitecture, match=r"'OtherForCausalLM' is not known, nor is model_type \[\]"):
        check_config(tmp_path)


def test_angles_of_longer_sequences_are_not_served(tmp_path: Path) -> None:
    """They would be those of all that is in a step beside one that is as long."""
    rope = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
    options = {"rope_parameters": rope, "head_dim": 16, "original_max_position_embeddings": 64}
    folder = write(tmp_path, "Phi3Config", options)
    config = json.loads((folder / "config.json").read_text())
    # As one that has no decoder of ours.
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["OtherForCausalLM"]}))
    assert read_facts(folder).context_length == 64


def test_files_that_lack_weights_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, *GUESTS["gemma2"])
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"missing tensors: model\.layers\.1\.mlp\.up_proj\.weight"):
        Engine(EngineSettings(device="cpu")).load(ModelSpec("m", folder))


def test_without_transformers_the_message_says_what_would_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path, *GUESTS["gemma2"])
    check_config(folder)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(UnknownArchitecture, match=r"'Gemma2ForCausalLM' is not known; .*pip install 'headgate\[transf"):
        check_config(folder)


def test_nothing_is_shown_while_it_loads(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path, *GUESTS["gemma2"])
    capfd.readouterr()
    Engine(EngineSettings(device="cpu")).load(ModelSpec("m", folder))
    assert "%" not in capfd.readouterr().err
    assert "transformers" in sys.modules
