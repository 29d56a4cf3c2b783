"""The demo pair's architectures, and the assistant's between them, and how a trained model becomes a folder.

`transformers` is imported inside the functions: reading shapes needs none of it.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
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
STUDENT = Shape(hidden=192, layers=2, heads=8, kv_heads=4, mlp=640, induction=True)


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
    """Takes over the weights of a checkpoint folder that `export` wrote, in place; of more layers the first ones.

    Where the model has more heads in the same groups, or wider dense MLPs, what it has beyond the checkpoint keeps its
    fresh weights and writes nothing yet: the model computes what the checkpoint did and learns on from there, as in
    Chen et al. 2016, "Net2Net: Accelerating Learning via Knowledge Transfer".

    Gives whether all of the folder's layers were taken. Raises `ValueError` naming the folder if there is no such
    checkpoint or its sizes are others.
    """
    from transformers import AutoModelForCausalLM

    try:
        found = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
        weights, own = found.state_dict(), model.state_dict()
        same_groups = _heads_a_group(found.config) == _heads_a_group(model.config)
        taken = {name: weight for name, weight in weights.items() if name in own}
        if same_groups:
            taken = {name: _widened(name, weight, own[name]) for name, weight in taken.items()}
        model.load_state_dict(taken)
    except (OSError, RuntimeError) as error:
        raise ValueError(f"{folder} cannot be started from: {str(error).splitlines()[0]}") from error
    return len(weights) == len(own)


_READING = ("q_proj.weight", "k_proj.weight", "v_proj.weight", "gate_proj.weight", "up_proj.weight")
_WRITING = ("o_proj.weight", "down_proj.weight")


def _heads_a_group(config: Any) -> tuple[int, int]:
    return config.num_attention_heads // config.num_key_value_heads, config.head_dim


def _widened(name: str, weight: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    """The weight in the place of the first heads or neurons of `own`; unchanged where nothing is wider."""
    rows, columns = own.shape if own.dim() == 2 else (0, 0)
    if name.endswith(_READING) and weight.shape[1] == columns and weight.shape[0] < rows:
        return torch.cat((weight, own[len(weight) :]))
    if name.endswith(_WRITING) and weight.shape[0] == rows and weight.shape[1] < columns:
        return torch.cat((weight, own.new_zeros(rows, columns - weight.shape[1])), dim=1)
    return weight


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
