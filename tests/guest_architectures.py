"""Which architectures of transformers are served as guests: a small random checkpoint of each is loaded, and told of.

Run it by hand: `python tests/guest_architectures.py [MODEL_TYPE ...]`. It takes some five minutes.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as NAMES

from headgate.engine.errors import CheckpointError
from headgate.engine.kernels.choice import choose_kernels
from headgate.engine.models.guests.loading import load_guest

CPU = torch.device("cpu")
# Keys of any configuration that make it small; each has some of them.
SMALL: dict[str, Any] = {
    **{"vocab_size": 320, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "head_dim": 16},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512, "sliding_window": 24},
    **{"moe_intermediate_size": 32, "shared_expert_intermediate_size": 32, "shared_intermediate_size": 32},
    **{"num_experts": 8, "num_local_experts": 8, "n_routed_experts": 8, "moe_num_experts": 8, "n_shared_experts": 1},
    **{"num_experts_per_tok": 2, "moe_topk": 2, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1},
    **{"q_lora_rank": 32, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16},
    **{"n_embd": 64, "n_head": 4, "n_layer": 4, "n_positions": 512, "n_ctx": 512, "rotary_dim": 8, "ffn_dim": 96},
    **{"word_embed_proj_dim": 64, "global_head_dim": 32, "intermediate_size_mlp": 96, "attention_chunk_size": 128},
    **{"moe_num_shared_experts": 1, "topk_method": "greedy", "index_n_heads": 2, "index_head_dim": 16},
    **{"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
    **{"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 16},
    **{"linear_head_dim": 16, "linear_num_heads": 4, "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16},
    **{"mamba_n_groups": 1, "mamba_d_ssm": 128, "mamba_dt_rank": 8, "mamba_chunk_size": 16, "use_mamba_kernels": False},
    **{"mamba_num_heads": 8, "mamba_head_dim": 16, "ssm_state_size": 16, "n_groups": 1, "chunk_size": 16},
    **{"adapter_rank": 8, "num_dense_layers": 1, "attn_layer_indices": [1], "attn_layer_period": 2},
}
# Of layers that the default configuration does not have, or has after the first four.
KINDS = {
    **{kind: ["conv", "full_attention"] for kind in ("lfm2", "lfm2_moe")},
    **{kind: ["linear_attention", "full_attention"] for kind in ("kimi_linear", "bailing_hybrid")},
    **{kind: ["mamba", "hybrid"] for kind in ("zamba", "zamba2")},
    "granitemoehybrid": ["mamba", "attention"],
}
OWN: dict[str, dict[str, Any]] = {
    "nemotron_h": {"hybrid_override_pattern": "M*M-"},
    "zamba": {"n_mamba_heads": 2, "num_key_value_heads": 4, "hidden_act": "gelu"},
    "zamba2": {"num_key_value_heads": 4},
    "zaya": {"num_experts_per_tok": 1},
    "jamba": {"attn_layer_offset": 1},
}


def write(kind: str, folder: Path) -> None:
    """A checkpoint of a model type, its weights large enough for masks to matter."""
    make = transformers.CONFIG_MAPPING[kind]
    plain = make()
    if plain.get_text_config() is not plain:
        raise ValueError("it sees or hears, too")
    there = {*plain.to_dict(), *getattr(plain, "attribute_map", {})}
    chosen = {key: value for key, value in SMALL.items() if key in there}
    if "kv_lora_rank" in there:
        chosen |= {"num_key_value_heads": 4}
        chosen.pop("head_dim", None)
    if getattr(plain, "sliding_window", None) is None:
        chosen.pop("sliding_window", None)
    if kinds := KINDS.get(kind) or list(dict.fromkeys(getattr(plain, "layer_types", None) or ())):
        chosen["layer_types"] = [kinds[layer % len(kinds)] for layer in range(4)]
    if isinstance(getattr(make, "layers_block_type", None), property):
        chosen.pop("layer_types", None)
    chosen |= OWN.get(kind, {})
    for name, alias in getattr(plain, "attribute_map", {}).items():
        if name in chosen and kind in KINDS:
            chosen[alias] = chosen.pop(name)
    config = make(**chosen)
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in getattr(transformers, NAMES[kind])(config).parameters())
    if size > 1 << 24:
        raise ValueError("some of it is made small by keys that are not known here")
    torch.manual_seed(0)
    model: Any = getattr(transformers, NAMES[kind])(config).eval().float()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.3 if parameter.shape[-1] <= 128 else 0.1)
    model.save_pretrained(folder)


def verdict(kind: str) -> str:
    """How one does."""
    made = getattr(transformers, NAMES[kind])
    if not any(getattr(made, key, False) for key in ("_supports_attention_backend", "_is_stateful")):
        return "has no place for another attention"
    with tempfile.TemporaryDirectory() as scratch:
        try:
            write(kind, Path(scratch))
        except Exception as error:
            return f"not tried: {type(error).__name__}"
        try:
            load_guest(Path(scratch), choose_kernels("auto", CPU).kernels, dtype="float32", fmt="native", device=CPU)
        except CheckpointError as error:
            return str(error).partition(": architecture ")[2].partition(": ")[2] or str(error)
    return "served"


def main(kinds: list[str]) -> None:
    """Tell of all, or of these."""
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    told = {kind: verdict(kind) for kind in kinds or sorted(NAMES)}
    for kind, said in told.items():
        print(f"{kind:24} {said[:150]}")
    print(f"{sum(said == 'served' for said in told.values())} of {len(told)} are served")


if __name__ == "__main__":
    main(sys.argv[1:])
