"""The demo pair's architectures, and the assistant's between them, and how a trained model becomes a folder.

`transformers` is imported inside the functions: reading shapes needs none of it.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from headgate.engine.demo.tokenizer import END_OF_TEXT, TURN_END, save_tokenizer, token_id
from headgate.training.induction import copying_values, induction_heads

CONTEXT = 2048


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a decoder. With `experts` > 0 its MLPs are mixtures of that many experts of width `mlp`.

    `induction` says whether it starts with heads that copy (see `headgate.training.induction`).
    """

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    mlp: int
    head_dim: int = 32
    experts: int = 0
    active: int = 0
    induction: bool = False


TEACHER = Shape(hidden=256, layers=8, heads=8, kv_heads=4, mlp=192, experts=8, active=2, induction=True)
ASSISTANT = Shape(hidden=192, layers=3, heads=6, kv_heads=3, mlp=512, induction=True)
STUDENT = replace(ASSISTANT, mlp=256)


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
    copying_values(model)
    if shape.induction:
        induction_heads(model)
    return model


def load_weights(model: Any, folder: Path) -> bool:
    """Takes over the weights of a checkpoint folder that `export` wrote, in place: of more layers the first
    ones, of wider dense MLPs the neurons that say most.

    Gives whether all of the folder's layers were taken. Raises `ValueError` naming the folder if there is no such
    checkpoint or its sizes are others.
    """
    from transformers import AutoModelForCausalLM

    try:
        found = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
        weights, own = found.state_dict(), model.state_dict()
        taken = _narrowed({name: weight for name, weight in weights.items() if name in own}, model.config)
        model.load_state_dict(taken)
    except (OSError, RuntimeError) as error:
        raise ValueError(f"{folder} cannot be started from: {str(error).splitlines()[0]}") from error
    return len(weights) == len(own)


def _narrowed(weights: dict[str, torch.Tensor], config: Any) -> dict[str, torch.Tensor]:
    """The weights with the dense MLPs' strongest neurons, as many as the configuration has, in their order.

    A neuron is as strong as the product of the norms of what it reads with and of what it writes.
    """
    width, kept = config.intermediate_size, dict(weights)
    for name, down in weights.items():
        if not name.endswith("mlp.down_proj.weight") or down.shape[1] <= width:
            continue
        stem = name.removesuffix("down_proj.weight")
        gate, up = (f"{stem}{part}_proj.weight" for part in ("gate", "up"))
        strength = weights[gate].norm(dim=1) * weights[up].norm(dim=1) * down.norm(dim=0)
        strongest = strength.topk(width).indices.sort().values
        kept |= {gate: weights[gate][strongest], up: weights[up][strongest], name: down[:, strongest]}
    return kept


def export(model: Any, tokenizer: Tokenizer, folder: Path, card: str) -> None:
    """Writes a bf16 checkpoint folder with `card` as its README.md, which `transformers` and the engine load.

    `folder` is replaced in one rename, so it is never half written.
    """
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
    (temporary / "README.md").write_text(card, encoding="utf-8")
    old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    if folder.exists():
        folder.rename(old)
    temporary.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
