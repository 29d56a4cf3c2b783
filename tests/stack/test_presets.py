"""Presets: their files, whether the loader reads such checkpoints, the sums of docs/running-models.md."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from click.testing import CliRunner
from stack_files import ROOT

from headgate.engine.kv.store import kv_bytes_per_token
from headgate.engine.models.architectures import read_spec
from headgate.engine.models.spec import DecoderSpec
from headgate.engine.models.weights.formats import layer_formats
from headgate.engine.quant.linear import WeightFormat
from headgate.gateway.cli import main

PRESETS = sorted((ROOT / "config/presets").glob("*.yaml"))
GUIDE = (ROOT / "docs/running-models.md").read_text()
QWEN3: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"], "vocab_size": 151936, "max_position_embeddings": 40960, "head_dim": 128,
    "num_key_value_heads": 8, "rope_theta": 1e6, "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
}  # fmt: skip
# What decides about sizes in the config.json of each, as its authors published it.
CONFIGS: dict[str, dict[str, Any]] = {
    "Qwen/Qwen3-0.6B": {
        **QWEN3, "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16, "intermediate_size": 3072,
    },
    "Qwen/Qwen3-1.7B": {
        **QWEN3, "hidden_size": 2048, "num_hidden_layers": 28, "num_attention_heads": 16, "intermediate_size": 6144,
    },
    "Qwen/Qwen3-4B": {
        **QWEN3, "hidden_size": 2560, "num_hidden_layers": 36, "num_attention_heads": 32, "intermediate_size": 9728,
    },
    "Qwen/Qwen3-30B-A3B": {
        **QWEN3, "architectures": ["Qwen3MoeForCausalLM"], "tie_word_embeddings": False, "num_key_value_heads": 4,
        "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32, "intermediate_size": 6144,
        "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "norm_topk_prob": True,
        "decoder_sparse_step": 1, "mlp_only_layers": [],
    },
    "allenai/OLMoE-1B-7B-0924-Instruct": {
        "architectures": ["OlmoeForCausalLM"], "vocab_size": 50304, "max_position_embeddings": 4096,
        "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 16,
        "intermediate_size": 1024, "num_experts": 64, "num_experts_per_tok": 8, "norm_topk_prob": False,
        "rope_theta": 10000.0, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
    },
}  # fmt: skip
BYTES = {"native": 2.0, "int8": 1.0, "int4": 4.5 / 8}
"""Of a weight in a linear layer; embeddings stay in bfloat16."""


@dataclass(frozen=True)
class Size:
    """Parameters and bytes of a model, norms and scales aside: they are a thousandth of it."""

    parameters: float
    weights: float
    kv: int


def size(spec: DecoderSpec, weights: WeightFormat, kv_dtype: str) -> Size:
    embedding = spec.vocab_size * spec.hidden
    attention = spec.hidden * (spec.qkv_width + spec.heads * spec.head_dim)
    mlp = 3 * spec.hidden * spec.mlp_width
    if spec.experts is not None:
        mlp = spec.hidden * spec.experts.count * (3 * spec.experts.width + 1)
    layers = spec.layers * (attention + mlp)
    # A tied head is the embedding itself, unless it is quantized.
    head = 0 if spec.tied_head and weights == "native" else embedding
    formats = layer_formats(spec, weights, int8=True)
    total = embedding * 2 + sum(attention * BYTES[fmt] for fmt in formats.attention)
    total += (spec.layers * mlp + head) * BYTES[formats.others]
    kept = torch.int8 if kv_dtype == "int8" else torch.bfloat16
    parameters = layers + embedding * (1 if spec.tied_head else 2)
    return Size(parameters, total, kv_bytes_per_token(spec, kept))


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_a_preset_can_be_used(path: Path) -> None:
    done = CliRunner().invoke(main, ["config", "check", str(path)])
    assert done.exit_code == 0, done.output


def test_there_is_a_dense_model_and_a_mixture_for_each_machine() -> None:
    assert [path.stem for path in PRESETS] == ["gpu-24gb", "gpu-80gb", "laptop"]
    for path in PRESETS:
        models = yaml.safe_load(path.read_text())["models"]
        kinds = {model["tier"]: read_spec(CONFIGS[model["path"]]).experts is not None for model in models}
        assert kinds == {"small": False, "large": True}


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_the_guide_has_the_sums_right(path: Path) -> None:
    preset = yaml.safe_load(path.read_text())
    section = GUIDE.split(f"config/presets/{path.name}`\n")[1].split("\n## ")[0].split("\n### ")[0]
    sizes = []
    for model in preset["models"]:
        own = size(
            read_spec(CONFIGS[model["path"]]), model.get("weights", "native"), preset["engine"].get("kv_dtype", "")
        )
        sizes.append(own)
        row = rf"\| `{model['path']}` \| {own.parameters / 1e9:.2f} \| {model.get('weights', 'native')} \| "
        row += rf"{own.weights / 1e9:.1f} GB \| {own.kv:,} \|"
        assert re.search(row, section), row.replace("\\", "")
    together, each = sum(s.weights for s in sizes) / 1e9, sum(s.kv for s in sizes)
    assert f"{together:.1f} GB" in section
    assert f"{together:.1f} GB of weights" in path.read_text()
    assert f"{each:,} bytes" in section
    left = re.search(r"([\d.]+) GB for keys and values", section)
    assert left is not None
    assert f"{round(float(left[1]) * 1e9 / each, -2):,.0f} tokens of each" in section
