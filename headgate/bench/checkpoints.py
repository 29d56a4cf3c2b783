"""Random checkpoints of well-known shapes: speed does not depend on what the weights say, and no hub is needed."""

from __future__ import annotations

import itertools
import json
import math
import shutil
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import torch
from safetensors.torch import save_file

from headgate.engine.demo import checkpoint as demo_checkpoint
from headgate.engine.models.architectures import read_spec
from headgate.engine.models.spec import DecoderSpec
from headgate.engine.models.weights.tensors import BLOCK_SCALES, BLOCKS
from headgate.engine.quant.mxfp4 import GROUP

QWEN3: Mapping[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "max_position_embeddings": 40960,
    "dtype": "bfloat16",
}

SHAPES: Mapping[str, Mapping[str, Any]] = {
    "qwen3-0.6b": {
        **QWEN3,
        "model_type": "qwen3",
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
    },
    # A mixture of experts that fits a laptop: about 175 million of its 1.3 billion parameters are active.
    "qwen3-moe": {
        **QWEN3,
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "hidden_size": 1024,
        "intermediate_size": 2048,
        "moe_intermediate_size": 512,
        "num_experts": 32,
        "num_experts_per_tok": 4,
        "norm_topk_prob": True,
        "num_hidden_layers": 16,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "vocab_size": 32000,
        "tie_word_embeddings": False,
    },
    # Three layers of gpt-oss 20b's 24, and a small vocabulary, so that the experts are most of what a token reads.
    "gpt-oss": {
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 150000,
        "rope_scaling": {
            **{"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False},
            "original_max_position_embeddings": 4096,
        },
        "max_position_embeddings": 131072,
        "dtype": "bfloat16",
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "num_local_experts": 32,
        "num_experts_per_tok": 4,
        "num_hidden_layers": 3,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "sliding_window": 128,
        "vocab_size": 16384,
        "tie_word_embeddings": False,
        "quantization_config": {"quant_method": "mxfp4"},
    },
    # The text model of Qwen3.5 0.8B with a small vocabulary, so that its head hides no layers of the delta rule.
    "qwen3.5": {
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000000.0, "partial_rotary_factor": 0.25},
        "max_position_embeddings": 40960,
        "dtype": "bfloat16",
        "hidden_size": 1024,
        "intermediate_size": 3584,
        "num_hidden_layers": 24,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "full_attention_interval": 4,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 16,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "vocab_size": 32000,
        "tie_word_embeddings": True,
    },
}


def write_random(shape: str, folder: Path) -> Path:
    """A bfloat16 checkpoint of `shape` in `folder`, with the demo pair's tokenizer; kept if it is there already."""
    return write_shape(shape, SHAPES[shape], folder)


def model_folder(model: str, scratch: Path) -> Path:
    """The checkpoint of the name that a command was given: of the demo pair, of a shape, or a folder."""
    if model in ("small", "large"):
        return demo_checkpoint("student" if model == "small" else "teacher")
    if model in SHAPES:
        return write_random(model, scratch)
    if Path(model).is_dir():
        return Path(model)
    raise click.BadParameter(
        f"{model!r} is no folder and none of small, large, {', '.join(SHAPES)}", param_hint="--model"
    )


def write_shape(name: str, config: Mapping[str, Any], folder: Path, *, spread: float = 0.02) -> Path:
    """The same for any configuration; `spread` is the standard deviation of its matrices."""
    target = folder / name
    if (target / "model.safetensors").exists():
        return target
    write_without_weights(name, config, folder)
    generator = torch.Generator().manual_seed(0)
    tensors = {name: _drawn(name, shape, generator, spread) for name, shape in tensor_shapes(config).items()}
    unfinished = target / "model.safetensors.part"
    save_file(tensors, unfinished)
    unfinished.rename(target / "model.safetensors")
    return target


def _drawn(name: str, shape: tuple[int, ...], generator: torch.Generator, spread: float) -> torch.Tensor:
    if name.endswith(BLOCKS):
        return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    if name.endswith(BLOCK_SCALES):
        # All codes alike often have a root mean square of 2.9.
        return torch.full(shape, 127 + round(math.log2(spread / 2.9)), dtype=torch.uint8)
    return (
        torch.ones(shape).bfloat16()
        if len(shape) == 1
        else (torch.randn(shape, generator=generator) * spread).bfloat16()
    )


def write_without_weights(name: str, config: Mapping[str, Any], folder: Path) -> Path:
    """Its files but the weights."""
    target = folder / name
    target.mkdir(parents=True, exist_ok=True)
    for file in ("tokenizer_config.json", "generation_config.json"):
        shutil.copy(demo_checkpoint("student") / file, target / file)
    (target / "tokenizer.json").write_text(_tokenizer(config["vocab_size"]), encoding="utf-8")
    (target / "config.json").write_text(json.dumps(config, indent=1))
    return target


def _tokenizer(size: int) -> str:
    """The demo pair's, with a word of four letters for each further token: without a text there is nothing to send."""
    content = json.loads((demo_checkpoint("student") / "tokenizer.json").read_text(encoding="utf-8"))
    # Added tokens that are not in the vocabulary are numbered from its end on, wherever that is.
    vocabulary = content["model"]["vocab"]
    vocabulary |= {token["content"]: token["id"] for token in content["added_tokens"]}
    words = ("\u0120" + "".join(letters) for letters in itertools.product(string.ascii_lowercase, repeat=4))
    further = itertools.filterfalse(set(vocabulary).__contains__, words)
    vocabulary.update(zip(further, range(len(vocabulary), size), strict=False))
    return json.dumps(content, ensure_ascii=False)


def tensor_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the tensors of a checkpoint of Qwen3, Qwen3.5 or gpt-oss, by its `config.json`."""
    spec = read_spec(config)
    hidden, q_width, kv_width = spec.hidden, spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (spec.vocab_size, hidden),
        "model.norm.weight": (hidden,),
    }
    if not spec.tied_head:
        shapes["lm_head.weight"] = (spec.vocab_size, hidden)
    for number in range(spec.layers):
        at = f"model.layers.{number}"
        shapes |= {
            f"{at}.input_layernorm.weight": (hidden,),
            f"{at}.post_attention_layernorm.weight": (hidden,),
        }
        if number in spec.delta_layers:
            shapes |= _delta_shapes(spec, f"{at}.linear_attn")
        else:
            shapes |= {
                f"{at}.self_attn.q_proj.weight": (2 * q_width if spec.gated else q_width, hidden),
                f"{at}.self_attn.k_proj.weight": (kv_width, hidden),
                f"{at}.self_attn.v_proj.weight": (kv_width, hidden),
                f"{at}.self_attn.o_proj.weight": (hidden, q_width),
            }
            if spec.qk_norm == "head":
                shapes |= {f"{at}.self_attn.{name}_norm.weight": (spec.head_dim,) for name in "qk"}
        if spec.sinks:
            shapes |= _gpt_oss_shapes(spec, at)
            continue
        mlps = {f"{at}.mlp": spec.mlp_width}
        if spec.experts is not None and number in spec.moe_layers:
            shapes[f"{at}.mlp.gate.weight"] = (spec.experts.count, hidden)
            mlps = {f"{at}.mlp.experts.{e}": spec.experts.width for e in range(spec.experts.count)}
        for mlp, width in mlps.items():
            shapes[f"{mlp}.gate_proj.weight"] = shapes[f"{mlp}.up_proj.weight"] = (width, hidden)
            shapes[f"{mlp}.down_proj.weight"] = (hidden, width)
    return shapes


def _delta_shapes(spec: DecoderSpec, at: str) -> dict[str, tuple[int, ...]]:
    """What stands at the place of attention in layers of the delta rule."""
    assert spec.delta is not None
    hidden, channels, heads = spec.hidden, spec.delta.channels, spec.delta.value_heads
    return {
        f"{at}.in_proj_qkv.weight": (channels, hidden),
        f"{at}.in_proj_z.weight": (spec.delta_width, hidden),
        f"{at}.in_proj_b.weight": (heads, hidden),
        f"{at}.in_proj_a.weight": (heads, hidden),
        f"{at}.conv1d.weight": (channels, 1, spec.delta.convolved),
        f"{at}.A_log": (heads,),
        f"{at}.dt_bias": (heads,),
        f"{at}.norm.weight": (spec.delta.value_dim,),
        f"{at}.out_proj.weight": (hidden, spec.delta_width),
    }


def _gpt_oss_shapes(spec: DecoderSpec, at: str) -> dict[str, tuple[int, ...]]:
    """What its layers have beside projections and norms."""
    assert spec.experts is not None
    hidden, count, width = spec.hidden, spec.experts.count, spec.experts.width
    kv_width = spec.kv_heads * spec.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        f"{at}.self_attn.q_proj.bias": (spec.heads * spec.head_dim,),
        f"{at}.self_attn.k_proj.bias": (kv_width,),
        f"{at}.self_attn.v_proj.bias": (kv_width,),
        f"{at}.self_attn.o_proj.bias": (hidden,),
        f"{at}.self_attn.sinks": (spec.heads,),
        f"{at}.mlp.router.weight": (count, hidden),
        f"{at}.mlp.router.bias": (count,),
    }
    for name, outputs, inputs in (("gate_up_proj", 2 * width, hidden), ("down_proj", hidden, width)):
        stack = f"{at}.mlp.experts.{name}"
        groups = inputs // GROUP
        shapes[f"{stack}_bias"] = (count, outputs)
        shapes[stack + BLOCKS] = (count, outputs, groups, GROUP // 2)
        shapes[stack + BLOCK_SCALES] = (count, outputs, groups)
    return shapes
