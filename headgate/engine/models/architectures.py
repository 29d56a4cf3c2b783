"""From a checkpoint's config.json to a DecoderSpec: which reader knows which architecture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from headgate.engine.errors import CheckpointError, UnknownArchitecture
from headgate.engine.models.config import Config
from headgate.engine.models.families import (
    exaone,
    gemma,
    glm,
    gpt_oss,
    granite,
    llama,
    mistral,
    olmo,
    phi,
    qwen,
    qwen_delta,
)
from headgate.engine.models.spec import DecoderSpec, Places
from headgate.engine.models.weights.quantization import check_quantization

_QWEN3_5 = {
    **{"num_key_value_heads": 4, "head_dim": 256, "partial_rotary_factor": 0.25, "tie_word_embeddings": False},
    **{"linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128},
    **{"linear_value_head_dim": 128, "linear_conv_kernel_dim": 4},
}
_GLM = {"num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1.5625e-7, "partial_rotary_factor": 0.5}

# What transformers' classes have for keys that config.json leaves out; what all have alike is where the key is read.
_LEFT_OUT: Mapping[str, Mapping[str, Any]] = {
    "MistralForCausalLM": {"num_key_value_heads": 8, "sliding_window": 4096},
    "MinistralForCausalLM": {"num_key_value_heads": 8, "sliding_window": 4096},
    "Ministral3ForCausalLM": {"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "head_dim": 128},
    "Qwen2ForCausalLM": {"num_key_value_heads": 32, "sliding_window": 4096},
    "Qwen2_5_VLForConditionalGeneration": {"num_key_value_heads": 8, "sliding_window": 4096},
    "Qwen3ForCausalLM": {"num_key_value_heads": 32, "sliding_window": 4096, "head_dim": 128},
    "MixtralForCausalLM": {"num_key_value_heads": 8, "rope_theta": 1e6, "rms_norm_eps": 1e-5},
    "Qwen2MoeForCausalLM": {"num_key_value_heads": 16, "sliding_window": 4096},
    "Qwen3MoeForCausalLM": {"num_key_value_heads": 4, "sliding_window": 4096},
    "OlmoeForCausalLM": {"rms_norm_eps": 1e-5},
    "Olmo2ForCausalLM": {"rms_norm_eps": 1e-5},
    "Olmo3ForCausalLM": {"rms_norm_eps": 1e-5, "sliding_window": 4096},
    "Phi3ForCausalLM": {"rms_norm_eps": 1e-5, "original_max_position_embeddings": 4096},
    "SmolLM3ForCausalLM": {"num_key_value_heads": 4, "rope_theta": 2e6, "tie_word_embeddings": True},
    "SeedOssForCausalLM": {"num_key_value_heads": 8, "head_dim": 128},
    "ArceeForCausalLM": {"rms_norm_eps": 1e-5},
    "Ernie4_5ForCausalLM": {
        **{"num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1e-5, "rope_theta": 500000.0},
        "tie_word_embeddings": True,
    },
    "Exaone4ForCausalLM": {"num_key_value_heads": 32, "rms_norm_eps": 1e-5, "sliding_window": 4096},
    "GptOssForCausalLM": {"num_key_value_heads": 8, "head_dim": 64, "rms_norm_eps": 1e-5, "sliding_window": 128},
    "GlmForCausalLM": _GLM,
    "Glm4ForCausalLM": _GLM,
    "Qwen3VLForConditionalGeneration": {"num_key_value_heads": 32, "head_dim": 128, "rope_theta": 500000.0},
    "Qwen3VLMoeForConditionalGeneration": {"num_key_value_heads": 16, "rope_theta": 500000.0},
    "Qwen3_5ForCausalLM": _QWEN3_5,
    "Qwen3_5MoeForCausalLM": {**_QWEN3_5, "num_key_value_heads": 2, "intermediate_size": 5632},
    "Qwen3NextForCausalLM": {
        **{**_QWEN3_5, "num_key_value_heads": 2, "intermediate_size": 5632, "norm_topk_prob": True},
    },
    # Its publisher's config.json has little more than what differs from these.
    "Gemma3ForCausalLM": {
        **{"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208},
        **{"max_position_embeddings": 131072, "sliding_window": 4096, "tie_word_embeddings": True},
    },
}

# Of architectures that see: the reader of their text model, by the model_type of text_config.
_SEEING: Mapping[str, Mapping[str, str]] = {
    "Gemma3ForConditionalGeneration": {"gemma3_text": "Gemma3ForCausalLM"},
    "InternVLForConditionalGeneration": {
        **{"qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM", "llama": "LlamaForCausalLM"},
    },
    "LlavaForConditionalGeneration": {
        **{"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM"},
    },
    "Mistral3ForConditionalGeneration": {"mistral": "MistralForCausalLM", "ministral3": "Ministral3ForCausalLM"},
    "Qwen2_5_VLForConditionalGeneration": {"qwen2_5_vl_text": "Qwen2_5_VLForConditionalGeneration"},
    "Qwen3VLForConditionalGeneration": {"qwen3_vl_text": "Qwen3VLForConditionalGeneration"},
    "Qwen3VLMoeForConditionalGeneration": {"qwen3_vl_moe_text": "Qwen3VLMoeForConditionalGeneration"},
    "Qwen3_5ForConditionalGeneration": {"qwen3_5_text": "Qwen3_5ForCausalLM"},
    "Qwen3_5MoeForConditionalGeneration": {"qwen3_5_moe_text": "Qwen3_5MoeForCausalLM"},
}
# What a text_config may leave out besides, which no config.json of a text model does.
_TEXT_LEFT_OUT: Mapping[str, Mapping[str, Any]] = {
    "LlamaForCausalLM": {
        **{"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32},
        **{"vocab_size": 32000, "max_position_embeddings": 2048},
    },
    "MistralForCausalLM": {
        **{"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32},
        **{"vocab_size": 32000, "max_position_embeddings": 131072},
    },
}
_FLAT = {"Qwen2_5_VLForConditionalGeneration": "qwen2_5_vl_text"}
"""Those whose publisher's config.json has the keys of text_config beside vision_config, and its model_type."""
_UNTIED = (
    *("LlavaForConditionalGeneration", "Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration"),
    *_FLAT,
)
"""Those whose head is the embedding only where config.json says so."""
_TEXT_PLACES = (Places("language_model.model", "language_model.lm_head"), Places("model.language_model", "lm_head"))
_EYES = (
    *("vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector."),
    *("model.visual.", "visual.", "mtp."),
)


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
    check_quantization(config, stacks=name == "GptOssForCausalLM")
    if name in _SEEING:
        return _checked(_text_model(config, name))
    return _checked(_READERS[name](Config({**_LEFT_OUT.get(name, {}), **config}), name))


def known() -> list[str]:
    """Names of the architectures that can be served, sorted."""
    return sorted({*_READERS, *_SEEING})


def _checked(spec: DecoderSpec) -> DecoderSpec:
    """What holds in all families that have experts."""
    experts = spec.experts
    if experts is not None and experts.per_token > experts.count:
        raise CheckpointError(
            f"config.json: num_experts_per_tok must be {experts.count} at most, which is how many experts there are, "
            f"got {experts.per_token}"
        )
    return spec


def _text_model(config: Mapping[str, Any], name: str) -> DecoderSpec:
    """Of an architecture that sees. What its whole says of dtype and head its text model may leave out."""
    text, kinds = config.get("text_config"), _SEEING[name]
    if text is None and name in _FLAT:
        text = {**config, "model_type": _FLAT[name]}
    if not isinstance(text, Mapping):
        raise CheckpointError(f"config.json: text_config must be an object, got {text!r}")
    kind = text.get("model_type", next(iter(kinds)))
    inner = kinds.get(kind) if isinstance(kind, str) else None
    if inner is None:
        raise CheckpointError(f"config.json: text_config.model_type {kind!r} is not one of {', '.join(kinds)}")
    whole = {key: config[key] for key in ("tie_word_embeddings", "dtype", "torch_dtype") if config.get(key) is not None}
    left_out = {**_TEXT_LEFT_OUT.get(inner, {}), **_LEFT_OUT.get(inner, {})}
    stated = {"tie_word_embeddings": name not in _UNTIED, **left_out, **text, **whole}
    spec = _READERS[inner](Config(stated, "text_config"), name)
    places = (*_TEXT_PLACES, Places()) if name in _FLAT else _TEXT_PLACES
    return replace(spec, names=replace(spec.names, places=places, unread=_EYES))


_READERS: Mapping[str, Callable[[Config, str], DecoderSpec]] = {
    "LlamaForCausalLM": llama.llama,
    "SmolLM3ForCausalLM": llama.smollm3,
    "SeedOssForCausalLM": llama.seed_oss,
    "ArceeForCausalLM": llama.arcee,
    "Ernie4_5ForCausalLM": llama.ernie,
    "Exaone4ForCausalLM": exaone.exaone4,
    "MistralForCausalLM": mistral.mistral,
    "MinistralForCausalLM": mistral.mistral,
    "Ministral3ForCausalLM": mistral.ministral3,
    "MixtralForCausalLM": mistral.mixtral,
    "Qwen2ForCausalLM": qwen.qwen2,
    "Qwen2_5_VLForConditionalGeneration": qwen.qwen2_5_vl,
    "Qwen3ForCausalLM": qwen.qwen3,
    "Qwen2MoeForCausalLM": qwen.qwen2_moe,
    "Qwen3MoeForCausalLM": qwen.qwen3_moe,
    "Qwen3VLForConditionalGeneration": qwen.qwen3_vl,
    "Qwen3VLMoeForConditionalGeneration": qwen.qwen3_vl_moe,
    "Qwen3NextForCausalLM": qwen_delta.qwen3_next,
    "Qwen3_5ForCausalLM": qwen_delta.qwen3_5,
    "Qwen3_5MoeForCausalLM": qwen_delta.qwen3_5_moe,
    "OlmoeForCausalLM": olmo.olmoe,
    "Olmo2ForCausalLM": olmo.olmo2,
    "Olmo3ForCausalLM": olmo.olmo3,
    "Phi3ForCausalLM": phi.phi3,
    "GraniteForCausalLM": granite.granite,
    "GraniteMoeForCausalLM": granite.granite_moe,
    "GptOssForCausalLM": gpt_oss.gpt_oss,
    "GlmForCausalLM": glm.glm,
    "Glm4ForCausalLM": glm.glm4,
    "Gemma3ForCausalLM": gemma.gemma3,
}
