"""From a checkpoint's config.json to a DecoderSpec: which reader knows which architecture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headgate.engine.errors import UnknownArchitecture
from headgate.engine.models.config import Config
from headgate.engine.models.families import granite, llama, mistral, olmo, phi, qwen
from headgate.engine.models.quantized import check_quantization
from headgate.engine.models.spec import DecoderSpec

# What transformers' classes have for keys that config.json leaves out; what all have alike is where the key is read.
_LEFT_OUT: Mapping[str, Mapping[str, Any]] = {
    "MistralForCausalLM": {"num_key_value_heads": 8, "sliding_window": 4096},
    "MinistralForCausalLM": {"num_key_value_heads": 8, "sliding_window": 4096},
    "Ministral3ForCausalLM": {"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "head_dim": 128},
    "Qwen2ForCausalLM": {"num_key_value_heads": 32, "sliding_window": 4096},
    "Qwen3ForCausalLM": {"num_key_value_heads": 32, "sliding_window": 4096, "head_dim": 128},
    "MixtralForCausalLM": {"num_key_value_heads": 8, "rope_theta": 1e6, "rms_norm_eps": 1e-5},
    "Qwen2MoeForCausalLM": {"num_key_value_heads": 16, "sliding_window": 4096},
    "Qwen3MoeForCausalLM": {"num_key_value_heads": 4, "sliding_window": 4096},
    "OlmoeForCausalLM": {"rms_norm_eps": 1e-5},
    "Phi3ForCausalLM": {"rms_norm_eps": 1e-5, "original_max_position_embeddings": 4096},
    "SmolLM3ForCausalLM": {"num_key_value_heads": 4, "rope_theta": 2e6, "tie_word_embeddings": True},
    "SeedOssForCausalLM": {"num_key_value_heads": 8, "head_dim": 128},
    "ArceeForCausalLM": {"rms_norm_eps": 1e-5},
}


def read_spec(config: Mapping[str, Any]) -> DecoderSpec:
    """The specification of the checkpoint that `config` (the content of its config.json) describes.

    Raises:
        UnknownArchitecture: no reader for it; the message lists those there are.
        CheckpointError: a key is missing or has a value that cannot be served.
    """
    names = config.get("architectures")
    name = str(names[0] if isinstance(names, list) and names else names or config.get("model_type", "none given"))
    if name not in known():
        raise UnknownArchitecture(f"config.json: architecture {name!r} is not known; known are {', '.join(known())}")
    check_quantization(config)
    return _READERS[name](Config({**_LEFT_OUT.get(name, {}), **config}), name)


def known() -> list[str]:
    """Names of the architectures that can be served, sorted."""
    return sorted(_READERS)


_READERS: Mapping[str, Callable[[Config, str], DecoderSpec]] = {
    "LlamaForCausalLM": llama.llama,
    "SmolLM3ForCausalLM": llama.smollm3,
    "SeedOssForCausalLM": llama.seed_oss,
    "ArceeForCausalLM": llama.arcee,
    "MistralForCausalLM": mistral.mistral,
    "MinistralForCausalLM": mistral.mistral,
    "Ministral3ForCausalLM": mistral.ministral3,
    "MixtralForCausalLM": mistral.mixtral,
    "Qwen2ForCausalLM": qwen.qwen2,
    "Qwen3ForCausalLM": qwen.qwen3,
    "Qwen2MoeForCausalLM": qwen.qwen2_moe,
    "Qwen3MoeForCausalLM": qwen.qwen3_moe,
    "OlmoeForCausalLM": olmo.olmoe,
    "Phi3ForCausalLM": phi.phi3,
    "GraniteForCausalLM": granite.granite,
    "GraniteMoeForCausalLM": granite.granite_moe,
}
