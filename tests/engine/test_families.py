"""What families say in config.json in ways of their own, as their publishers and earlier transformers wrote it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from engine_site import serving
from tiny_models import ARCHITECTURES, COMMON, MakeCheckpoint, write_tokenizer

from headgate.engine.engine import Engine
from headgate.engine.errors import CheckpointError
from headgate.engine.front.local import LocalModel
from headgate.engine.models.architectures import read_spec
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.settings import EngineSettings, ModelSpec

PHI = {"architectures": ["Phi3ForCausalLM"], **COMMON, **ARCHITECTURES["phi3-longrope"][1]}
# As published, but for what other software reads.
GEMMA_3_4B: dict[str, Any] = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "text_config": {
        **{"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34},
        **{"rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024},
    },
    "torch_dtype": "bfloat16",
}
OLMO_3_7B: dict[str, Any] = {
    **{"architectures": ["Olmo3ForCausalLM"], "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32},
    **{"num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 100278, "max_position_embeddings": 65536},
    **{"rms_norm_eps": 1e-6, "rope_theta": 500000, "sliding_window": 4096, "tie_word_embeddings": False},
    "rope_scaling": {
        **{"attention_factor": 1.2079441541679836, "beta_fast": 32.0, "beta_slow": 1.0, "factor": 8.0},
        **{"original_max_position_embeddings": 8192, "rope_type": "yarn"},
    },
}


def test_a_gemma_of_few_words() -> None:
    spec = read_spec(GEMMA_3_4B)
    theirs = transformers.Gemma3Config(**GEMMA_3_4B).to_dict()
    assert spec == read_spec({**theirs, "architectures": GEMMA_3_4B["architectures"], "dtype": "bfloat16"})
    assert (spec.heads, spec.kv_heads, spec.head_dim, spec.vocab_size) == (8, 4, 256, 262208)
    assert (spec.rope.kind, spec.rope.theta, spec.rope.factor) == ("linear", 1e6, 8.0)
    assert spec.second_rope == replace(spec.rope, kind="default", theta=1e4, factor=1.0, original_context=0)
    assert sorted(set(range(34)) - spec.second_rope_layers) == [5, 11, 17, 23, 29]
    assert [spec.windows[layer] for layer in (4, 5)] == [1024, None]
    assert spec.embedding_scale == 50.5  # the root of 2560 in bfloat16
    assert spec.tied_head


def test_only_full_layers_of_olmo_3_are_scaled() -> None:
    spec = read_spec(OLMO_3_7B)
    theirs = transformers.Olmo3Config(**OLMO_3_7B).to_dict()
    assert spec == read_spec({**theirs, "architectures": OLMO_3_7B["architectures"]})
    assert spec.rope.kind == "yarn"
    assert spec.second_rope is not None
    assert (spec.second_rope.kind, spec.second_rope.theta) == ("default", 500000.0)
    assert 3 not in spec.second_rope_layers


@pytest.mark.parametrize(
    ("config", "window"),
    [
        ({"architectures": ["MistralForCausalLM"], **COMMON, "sliding_window": 24}, 24),
        ({"architectures": ["MistralForCausalLM"], **COMMON, "sliding_window": None}, None),
        ({"architectures": ["LlamaForCausalLM"], **COMMON}, None),
        (OLMO_3_7B, None),
    ],
    ids=["in all layers", "in none", "not known", "in some"],
)
def test_a_model_has_a_window_where_each_layer_has_one(config: dict[str, Any], window: int | None) -> None:
    assert read_spec(config).window == window


@pytest.mark.parametrize(("served", "long"), [(64, False), (65, True), (None, True)])
def test_the_context_that_is_served_decides_how_phi_turns(*, served: int | None, long: bool) -> None:
    spec = read_spec(PHI)
    frequencies, factors = spec.rope.frequencies(16, served or spec.context_length)
    expected = PHI["rope_parameters"]["long_factor" if long else "short_factor"]
    assert frequencies == [10000.0 ** (-i / 6) / by for i, by in enumerate(expected)] + [0.0, 0.0]
    # Whatever the context: eight times the one before the extension.
    assert factors == [pytest.approx((1 + 3 / 6) ** 0.5)] * 6 + [1.0, 1.0]


def test_a_short_context_writes_what_transformers_writes(make_checkpoint: MakeCheckpoint) -> None:
    folder = make_checkpoint("phi3-longrope")
    write_tokenizer(folder)
    prompt = torch.randint(3, 320, (30,), generator=torch.Generator().manual_seed(3)).tolist()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    model.generation_config.eos_token_id = None
    with torch.inference_mode():
        expected = model.generate(torch.tensor([prompt]), max_new_tokens=30, do_sample=False)[0, 30:].tolist()

    async def written(model: LocalModel) -> list[int]:
        params = SamplingParams(temperature=0.0, max_tokens=30, ignore_eos=True)
        return [token async for delta in model.generate("r", tuple(prompt), params) for token in delta.token_ids]

    engine = Engine(EngineSettings())
    engine.load(ModelSpec("m", folder, dtype="float32", context_length=64))
    engine.start()
    try:
        assert asyncio.run(written(engine.models["m"])) == expected
    finally:
        engine.stop()
    with serving(folder, EngineSettings()) as longer:
        assert asyncio.run(written(longer)) != expected


def test_ministral_3_ends_where_its_queries_would_grow(make_checkpoint: MakeCheckpoint) -> None:
    folder = make_checkpoint("ministral3")
    write_tokenizer(folder)
    with serving(folder, EngineSettings()) as model:
        assert model.info.context_length == 128


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({**PHI, "num_attention_heads": 8}, r"short_factor must be a list of 3 positive numbers, got \[1\.0, 1\.1"),
        (
            {**PHI, "partial_rotary_factor": 0.2, "rope_parameters": None},
            r"must make an even part of head_dim \(16\) t",
        ),
        ({**GEMMA_3_4B, "text_config": None}, r"text_config must be an object, got None"),
        ({**GEMMA_3_4B, "text_config": {"model_type": "gemma2"}}, r"model_type 'gemma2' is not one of gemma3_text"),
        ({**GEMMA_3_4B, "text_config": {}}, r"text_config\.hidden_size must be a positive integer, got None"),
        (
            {"architectures": ["Gemma3ForCausalLM"], **COMMON, "final_logit_softcapping": 30.0},
            r"final_logit_softcapping 30\.0 is not supported; it must be left out",
        ),
        (
            {"architectures": ["SmolLM3ForCausalLM"], **COMMON, "no_rope_layers": [1]},
            r"a list of 0 \(does not turn\) and",
        ),
        ({"architectures": ["LlamaForCausalLM"], **COMMON, "head_dim": 15}, "head_dim must be even, got 15"),
        ({"architectures": ["ArceeForCausalLM"], **COMMON, "hidden_act": "silu"}, r"'silu' .* it must be 'relu2'"),
    ],
)
def test_what_cannot_be_served_is_named(config: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read_spec(config)


def test_tensors_of_what_sees_are_left_unread(make_checkpoint: MakeCheckpoint) -> None:
    folder: Path = make_checkpoint("gemma3-seeing")
    write_tokenizer(folder)
    alone = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(folder).text_config)
    with serving(folder, EngineSettings()) as model:
        assert model.info.parameters == sum(parameter.numel() for parameter in alone.parameters())
