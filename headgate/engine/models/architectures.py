"""From a checkpoint's config.json to a DecoderSpec: one reader per family of architectures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, cast

from headgate.engine.errors import CheckpointError, UnknownArchitecture
from headgate.engine.models.quantized import check_quantization
from headgate.engine.models.spec import DecoderSpec, ExpertsSpec, RopeSpec, WeightNames


class _Config:
    """Reads config.json with errors that name the key."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def get(self, key: str, default: Any = None) -> Any:
        value = self._values.get(key)
        return default if value is None else value

    def integer(self, key: str, *synonyms: str) -> int:
        value = next((self._values[k] for k in (key, *synonyms) if self._values.get(k) is not None), None)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise CheckpointError(f"config.json: {key} must be a positive integer, got {value!r}")
        return value


def read_spec(config: Mapping[str, Any]) -> DecoderSpec:
    """The specification of the checkpoint that `config` (the content of its config.json) describes.

    Raises:
        UnknownArchitecture: no reader for it; the message lists those there are.
        CheckpointError: a key is missing or has a value that cannot be served.
    """
    names = config.get("architectures") or []
    name = names[0] if names else str(config.get("model_type", "none given"))
    reader = _READERS.get(name)
    if reader is None:
        raise UnknownArchitecture(f"config.json: architecture {name!r} is not known; known are {', '.join(known())}")
    activation = config.get("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise CheckpointError(f"config.json: hidden_act {activation!r} is not supported; it must be 'silu'")
    check_quantization(config)
    return reader(_Config(config), name)


def known() -> list[str]:
    """Names of the architectures that can be served, sorted."""
    return sorted(_READERS)


def _base(config: _Config, architecture: str) -> DecoderSpec:
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    kv_heads = config.get("num_key_value_heads", heads)
    head_dim = config.get("head_dim", hidden // heads)
    layers = config.integer("num_hidden_layers")
    if heads % kv_heads:
        raise CheckpointError(
            f"config.json: num_attention_heads ({heads}) must be a multiple of num_key_value_heads ({kv_heads})"
        )
    rope = _rope(config)
    context = config.integer("max_position_embeddings")
    if rope.kind == "yarn":
        # Some checkpoints state the context before the extension, some after it.
        context = max(context, int(rope.factor * rope.original_context))
    return DecoderSpec(
        architecture=architecture,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        mlp_width=config.integer("intermediate_size"),
        vocab_size=config.integer("vocab_size"),
        norm_eps=float(config.get("rms_norm_eps", 1e-6)),
        rope=rope,
        context_length=context,
        tied_head=bool(config.get("tie_word_embeddings", False)),
        windows=(None,) * layers,
    )


def _rope(config: _Config) -> RopeSpec:
    # transformers 5 writes rope_parameters; earlier versions rope_theta beside an optional rope_scaling.
    parameters = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    if config.get("partial_rotary_factor", parameters.get("partial_rotary_factor", 1.0)) != 1.0:
        raise CheckpointError("config.json: partial_rotary_factor other than 1.0 is not supported")
    theta = float(parameters.get("rope_theta") or config.get("rope_theta", 10000.0))
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind not in ("default", "linear", "llama3", "yarn"):
        raise CheckpointError(f"config.json: rope type {kind!r} is not one of default, linear, llama3, yarn")
    if kind == "default":
        return RopeSpec(theta)
    factor = parameters.get("factor")
    if not isinstance(factor, int | float):
        raise CheckpointError(f"config.json: rope factor must be a number for rope type {kind!r}, got {factor!r}")
    original = parameters.get("original_max_position_embeddings") or config.integer("max_position_embeddings")
    return RopeSpec(
        theta,
        kind=cast(Literal["linear", "llama3", "yarn"], kind),
        factor=float(factor),
        original_context=int(original),
        low_frequency_factor=float(parameters.get("low_freq_factor", 1.0)),
        high_frequency_factor=float(parameters.get("high_freq_factor", 4.0)),
        beta_fast=float(parameters.get("beta_fast") or 32.0),
        beta_slow=float(parameters.get("beta_slow") or 1.0),
        attention_factor=parameters.get("attention_factor"),
        truncate=bool(parameters.get("truncate", True)),
        mscale=parameters.get("mscale"),
        mscale_all_dim=parameters.get("mscale_all_dim"),
    )


def _windows(config: _Config, layers: int, first_windowed: int) -> tuple[int | None, ...]:
    """Per-layer windows from layer_types where given, else every layer from `first_windowed` on."""
    window = config.get("sliding_window")
    if not window:
        return (None,) * layers
    types = config.get("layer_types")
    if types:
        return tuple(int(window) if kind == "sliding_attention" else None for kind in types)
    return tuple(int(window) if layer >= first_windowed else None for layer in range(layers))


def _sparse_layers(config: _Config, layers: int) -> frozenset[int]:
    step, dense = int(config.get("decoder_sparse_step", 1)), set(config.get("mlp_only_layers", []))
    return frozenset(i for i in range(layers) if i not in dense and (i + 1) % step == 0)


def _llama(config: _Config, architecture: str) -> DecoderSpec:
    bias = bool(config.get("attention_bias", False))
    return replace(
        _base(config, architecture),
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bool(config.get("mlp_bias", False)),
    )


def _mistral(config: _Config, architecture: str) -> DecoderSpec:
    spec = _base(config, architecture)
    return replace(spec, windows=_windows(config, spec.layers, first_windowed=0))


def _qwen2(config: _Config, architecture: str) -> DecoderSpec:
    spec = replace(_base(config, architecture), qkv_bias=bool(config.get("qkv_bias", True)))
    if not config.get("use_sliding_window", False):
        return spec
    return replace(spec, windows=_windows(config, spec.layers, int(config.get("max_window_layers", 28))))


def _qwen3(config: _Config, architecture: str) -> DecoderSpec:
    bias = bool(config.get("attention_bias", False))
    return replace(_qwen2(config, architecture), qkv_bias=bias, output_bias=bias, qk_norm="head")


def _mixtral(config: _Config, architecture: str) -> DecoderSpec:
    spec = _mistral(config, architecture)
    experts = ExpertsSpec(
        count=config.integer("num_local_experts", "num_experts"),
        per_token=config.integer("num_experts_per_tok"),
        width=spec.mlp_width,
        normalize=True,
    )
    names = WeightNames("block_sparse_moe.gate", "block_sparse_moe.experts", "w1", "w3", "w2")
    return replace(spec, experts=experts, moe_layers=frozenset(range(spec.layers)), names=names)


def _qwen2_moe(config: _Config, architecture: str) -> DecoderSpec:
    spec = _qwen2(config, architecture)
    if config.get("use_sliding_window", False) and not config.get("layer_types"):
        raise CheckpointError("config.json: use_sliding_window needs layer_types for this architecture")
    experts = replace(_experts(config), shared_width=config.integer("shared_expert_intermediate_size"))
    return replace(spec, experts=experts, moe_layers=_sparse_layers(config, spec.layers))


def _qwen3_moe(config: _Config, architecture: str) -> DecoderSpec:
    spec = _qwen3(config, architecture)
    if config.get("use_sliding_window", False):
        spec = replace(spec, windows=_windows(config, spec.layers, first_windowed=0))
    return replace(spec, experts=_experts(config), moe_layers=_sparse_layers(config, spec.layers))


def _olmoe(config: _Config, architecture: str) -> DecoderSpec:
    bias = bool(config.get("attention_bias", False))
    spec = _base(config, architecture)
    experts = ExpertsSpec(
        count=config.integer("num_experts", "num_local_experts"),
        per_token=config.integer("num_experts_per_tok"),
        width=spec.mlp_width,
        normalize=bool(config.get("norm_topk_prob", False)),
    )
    return replace(
        spec,
        qkv_bias=bias,
        output_bias=bias,
        qk_norm="projection",
        clip_qkv=config.get("clip_qkv"),
        experts=experts,
        moe_layers=frozenset(range(spec.layers)),
    )


def _experts(config: _Config) -> ExpertsSpec:
    return ExpertsSpec(
        count=config.integer("num_experts", "num_local_experts"),
        per_token=config.integer("num_experts_per_tok"),
        width=config.integer("moe_intermediate_size"),
        normalize=bool(config.get("norm_topk_prob", False)),
    )


_READERS: Mapping[str, Callable[[_Config, str], DecoderSpec]] = {
    "LlamaForCausalLM": _llama,
    "MistralForCausalLM": _mistral,
    "Qwen2ForCausalLM": _qwen2,
    "Qwen3ForCausalLM": _qwen3,
    "MixtralForCausalLM": _mixtral,
    "Qwen2MoeForCausalLM": _qwen2_moe,
    "Qwen3MoeForCausalLM": _qwen3_moe,
    "OlmoeForCausalLM": _olmoe,
}
