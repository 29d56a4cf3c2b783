"""The two architectures of the pair, as `transformers` models, and how a trained one becomes a checkpoint folder.

`transformers` is imported inside the functions: serving needs none of it.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from tokenizers import Tokenizer
from torch.nn import functional as F

from headgate.engine.demo.tokenizer import END_OF_TEXT, TURN_END, save_tokenizer, token_id

Name = Literal["teacher", "student"]
CONTEXT = 2048


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a decoder. With `experts` > 0 its MLPs are mixtures of that many experts of width `mlp`."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    mlp: int
    head_dim: int = 32
    experts: int = 0
    active: int = 0


TEACHER = Shape(hidden=256, layers=4, heads=8, kv_heads=4, mlp=128, experts=8, active=2)
STUDENT = Shape(hidden=128, layers=4, heads=4, kv_heads=2, mlp=320)


def build(shape: Shape, tokenizer: Tokenizer, *, seed: int) -> Any:
    """A freshly initialised `Qwen3MoeForCausalLM` or `Qwen3ForCausalLM` in fp32, the same for the same seed."""
    import transformers

    settings: dict[str, Any] = {
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "max_position_embeddings": CONTEXT,
        "rope_theta": 10_000.0,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": token_id(tokenizer, TURN_END),
        "pad_token_id": token_id(tokenizer, END_OF_TEXT),
    }
    torch.manual_seed(seed)
    if shape.experts:
        config = transformers.Qwen3MoeConfig(
            **settings,
            intermediate_size=shape.mlp * shape.active,
            moe_intermediate_size=shape.mlp,
            num_experts=shape.experts,
            num_experts_per_tok=shape.active,
            decoder_sparse_step=1,
            norm_topk_prob=True,
        )
        model = transformers.Qwen3MoeForCausalLM(config)
    else:
        model = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**settings, intermediate_size=shape.mlp))
    _start_copying(model, shape)
    return model


@torch.no_grad()
def _start_copying(model: Any, shape: Shape) -> None:
    """Makes each head's output projection the transpose of its value projection, in place.

    Their product is then positive semidefinite: what a head attends to raises the logit of that very token, from the
    first step on. Copying from the prompt otherwise takes millions of tokens to appear. The idea is mimetic
    initialization (Trockman and Kolter 2023, "Mimetic Initialization of Self-Attention Layers").
    """
    group = shape.heads // shape.kv_heads
    for layer in model.model.layers:
        values = layer.self_attn.v_proj.weight.view(shape.kv_heads, shape.head_dim, shape.hidden)
        output = layer.self_attn.o_proj.weight.view(shape.hidden, shape.heads, shape.head_dim)
        for head in range(shape.heads):
            output[:, head] = values[head // group].T


def prepare(model: Any) -> Any:
    """Switches a model to the attention and expert functions that train fastest. Returns the model."""
    from transformers import AttentionInterface

    AttentionInterface.register("headgate_causal", _causal_attention)
    model.set_attn_implementation("headgate_causal")
    if hasattr(model.config, "num_experts"):
        model.set_experts_implementation("grouped_mm")
    return model


def _causal_attention(
    _module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    _mask: torch.Tensor | None,
    scaling: float | None = None,
    **_options: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention over right-padded rows, [rows, heads, length, head_dim] to [rows, length, heads, head_dim].

    In fp32 under autocast too: torch's bf16 backward of this operation on a CPU is several times slower.
    """
    with torch.autocast(query.device.type, enabled=False):
        output = F.scaled_dot_product_attention(
            query.float(), key.float(), value.float(), is_causal=True, scale=scaling, enable_gqa=True
        )
    return output.transpose(1, 2), None


def export(model: Any, tokenizer: Tokenizer, folder: Path) -> None:
    """Writes a bf16 checkpoint folder that `transformers` and the engine load. Replaces `folder` in one rename."""
    from transformers import AutoModelForCausalLM, GenerationConfig

    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    # A copy, because training may go on with the fp32 weights.
    copy = AutoModelForCausalLM.from_config(model.config, dtype=torch.bfloat16)
    copy.load_state_dict(model.state_dict())
    end, pad = token_id(tokenizer, TURN_END), token_id(tokenizer, END_OF_TEXT)
    copy.generation_config = GenerationConfig(do_sample=False, eos_token_id=[end, pad], pad_token_id=pad)
    copy.save_pretrained(temporary)
    save_tokenizer(tokenizer, temporary)
    old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    if folder.exists():
        folder.rename(old)
    temporary.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
