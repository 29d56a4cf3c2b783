"""A Qwen3 checkpoint as GGUF, by llama.cpp's own `gguf` package. Arguments: checkpoint folder, file to write.

Names and shapes follow llama.cpp's conversion of these architectures; no tensor needs to be permuted. The vocabulary
is the checkpoint's, filled up with tokens of no meaning: no text is ever made of a random model's tokens.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors import safe_open


def main(folder: Path, target: Path) -> None:
    """Write the file in bfloat16; norms and the router in float32, as llama.cpp wants them."""
    config = json.loads((folder / "config.json").read_text())
    experts = config.get("num_experts", 0)
    architecture = gguf.MODEL_ARCH.QWEN3MOE if experts else gguf.MODEL_ARCH.QWEN3
    writer = gguf.GGUFWriter(target, gguf.MODEL_ARCH_NAMES[architecture])
    writer.add_name(folder.name)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    _add_vocabulary(writer, json.loads((folder / "tokenizer.json").read_text()), config["vocab_size"])
    names = gguf.get_tensor_name_map(architecture, config["num_hidden_layers"])
    with safe_open(folder / "model.safetensors", "pt") as tensors:
        for name in tensors.keys():  # noqa: SIM118  not a mapping
            if ".experts." not in name:
                _add(writer, names.get_name(name, try_suffixes=(".weight",)), tensors.get_tensor(name))
        for layer in range(config["num_hidden_layers"] if experts else 0):
            for part in ("gate", "up", "down"):
                stem = f"model.layers.{layer}.mlp.experts"
                stacked = torch.stack([tensors.get_tensor(f"{stem}.{e}.{part}_proj.weight") for e in range(experts)])
                _add(writer, f"blk.{layer}.ffn_{part}_exps.weight", stacked)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add(writer: Any, name: str, tensor: torch.Tensor) -> None:
    if tensor.dim() == 1 or "ffn_gate_inp" in name:
        writer.add_tensor(name, tensor.float().numpy())
    else:
        # numpy has no bfloat16: its bits go in as bytes.
        raw = tensor.contiguous().view(torch.uint8).numpy()
        writer.add_tensor(name, raw.astype(np.uint8, copy=False), raw_dtype=gguf.GGMLQuantizationType.BF16)


def _add_vocabulary(writer: Any, tokenizer: dict[str, Any], size: int) -> None:
    model = tokenizer["model"]
    by_id = {number: token for token, number in model["vocab"].items()}
    special = {entry["id"]: entry["content"] for entry in tokenizer["added_tokens"]}
    known = by_id | special
    tokens = [known.get(number, f"[PAD{number}]") for number in range(size)]
    kinds = [
        gguf.TokenType.CONTROL if n in special else gguf.TokenType.NORMAL if n in known else gguf.TokenType.UNUSED
        for n in range(size)
    ]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in model["merges"]])
    writer.add_eos_token_id(min(special) if special else 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
