"""From a checkpoint's config.json to a DecoderSpec: one reader per family of architectures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, cast

from headgate.engine.errors import CheckpointError, UnknownArchitecture
from headgate.engine.models.config import Config
from headgate.engine.models.quantization import check_quantization
from headgate.engine.models.spec import DecoderSpec, ExpertsSpec, RopeSpec, WeightNames

# What transformers' classes have for keys that config.json leaves out; what all have alike is where the key is read.
_LEFT_OUT: Mapping[str, Mapping[str, Any]] = {
    "MistralForCausalLM": {"num_key_value_heads": 8, "sliding_window": 4096},
    "Qwen2ForCausalLM": {"num_key_value_heads": 32, "sliding_window": 4096},
    "Qwen3ForCausalLM": {"num_key_value_heads": 32, "sliding_window": 4096, "head_dim": 128},
    "MixtralForCausalLM": {"num_key_value_heads": 8, "rope_theta": 1e6, "rms_norm_eps": 1e-5},
    "Qwen2MoeForCausalLM": {"num_key_value_heads": 16, "sliding_window": 4096},
    "Qwen3MoeForCausalLM": {"num_key_value_heads": 4, "sliding_window": 4096},
    "OlmoeForCausalLM": {"rms_norm_eps": 1e-5},
}


def read_spec(config: Mapping[str, Any]) -> DecoderSpec:
    """The specification of the checkpoint that `config` (the content of its config.json) describes.

    Raises:
        UnknownArchitecture: no reader for it; the message lists those there are.
        CheckpointError: a key is missing or has a value that cannot be served.
    """
    names = config.get("architectures")
    name = str(names[0] if isinstance(names, list) and names else names or config.get("model_type", "none given"))
    reader = _READERS.get(name)
    if reader is None:
        raise UnknownArchitecture(f"config.json: architecture {name!r} is not known; known are {', '.join(known())}")
    activation = config.get("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise CheckpointError(f"config.json: hidden_act {activation!r} is not supported; it must be 'silu'")
    check_quantization(config)
    return reader(Config({**_LEFT_OUT.get(name, {}), **config}), name)


def known() -> list[str]:
    """Names of the architectures that can be served, sorted."""
    return sorted(_READERS)


def _base(config: Config, architecture: str) -> DecoderSpec:
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    kv_heads = config.integer("num_key_value_heads", default=heads)
    head_dim = config.integer("head_dim", default=hidden // heads)
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
        norm_eps=config.number("rms_norm_eps", 1e-6),
        rope=rope,
        context_length=context,
        tied_head=bool(config.get("tie_word_embeddings", False)),
        windows=(None,) * layers,
    )


def _rope(config: Config) -> RopeSpec:
    # transformers 5 writes rope_parameters; earlier versions rope_theta beside an optional rope_scaling.
    parameters = config.object("rope_parameters", "rope_scaling")
    if config.get("partial_rotary_factor", parameters.get("partial_rotary_factor", 1.0)) != 1.0:
        raise CheckpointError("config.json: partial_rotary_factor other than 1.0 is not supported")
    theta = (parameters if parameters.get("rope_theta") else config).number("rope_theta", 10000.0, above=1.0)
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind not in ("default", "linear", "llama3", "yarn"):
        raise CheckpointError(f"config.json: rope type {kind!r} is not one of default, linear, llama3, yarn")
    if kind == "default":
        return RopeSpec(theta)
    # Of these the one beside the scaling is believed first, as in transformers.
    stated = config if config.get("original_max_position_embeddings") else parameters
    return RopeSpec(
        theta,
        kind=cast(Literal["linear", "llama3", "yarn"], kind),
        factor=parameters.number("factor"),
        original_context=stated.integer(
            "original_max_position_embeddings", default=config.integer("max_position_embeddings")
        ),
        low_frequency_factor=parameters.number("low_freq_factor", 1.0),
        high_frequency_factor=parameters.number("high_freq_factor", 4.0),
        beta_fast=parameters.number_or_none("beta_fast") or 32.0,
        beta_slow=parameters.number_or_none("beta_slow") or 1.0,
        attention_factor=parameters.number_or_none("attention_factor"),
        truncate=bool(parameters.get("truncate", True)),
        mscale=parameters.number_or_none("mscale"),
        mscale_all_dim=parameters.number_or_none("mscale_all_dim"),
    )


def _windows(config: Config, layers: int, first_windowed: int) -> tuple[int | None, ...]:
    """Per-layer windows from layer_types where given, else every layer from `first_windowed` on."""
    window = config.integer("sliding_window", default=0, least=0)
    if not window:
        return (None,) * layers
    types = config.get("layer_types")
    if types:
        known = isinstance(types, list) and all(kind in ("sliding_attention", "full_attention") for kind in types)
        if not known or len(types) != layers:
            wanted = f"a list of 'sliding_attention' and 'full_attention' for each of {layers} layers"
            raise CheckpointError(f"config.json: layer_types must be {wanted}, got {types!r}")
        return tuple(window if kind == "sliding_attention" else None for kind in types)
    return tuple(window if layer >= first_windowed else None for layer in range(layers))


def _sparse_layers(config: Config, layers: int) -> frozenset[int]:
    step, dense = config.integer("decoder_sparse_step", default=1), config.get("mlp_only_layers", [])
    if not isinstance(dense, list):
        raise CheckpointError(f"config.json: mlp_only_layers must be a list of layers, got {dense!r}")
    return frozenset(i for i in range(layers) if i not in dense and (i + 1) % step == 0)


def _llama(config: Config, architecture: str) -> DecoderSpec:
    bias = bool(config.get("attention_bias", False))
    return replace(
        _base(config, architecture),
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bool(config.get("mlp_bias", False)),
    )


def _mistral(config: Config, architecture: str) -> DecoderSpec:
    spec = _base(config, architecture)
    return replace(spec, windows=_windows(config, spec.layers, first_windowed=0))


def _qwen2(config: Config, architecture: str) -> DecoderSpec:
    spec = replace(_base(config, architecture), qkv_bias=bool(config.get("qkv_bias", True)))
    if not config.get("use_sliding_window", False):
        return spec
    return replace(
        spec, windows=_windows(config, spec.layers, config.integer("max_window_layers", default=28, least=0))
    )


def _qwen3(config: Config, architecture: str) -> DecoderSpec:
    bias = bool(config.get("attention_bias", False))
    return replace(_qwen2(config, architecture), qkv_bias=bias, output_bias=bias, qk_norm="head")


def _mixtral(config: Config, architecture: str) -> DecoderSpec:
    spec = _mistral(config, architecture)
    experts = ExpertsSpec(
        count=config.integer("num_local_experts", "num_experts"),
        per_token=config.integer("num_experts_per_tok"),
        width=spec.mlp_width,
        normalize=True,
    )
    names = WeightNames("block_sparse_moe.gate", "block_sparse_moe.experts", "w1", "w3", "w2")
    return replace(spec, experts=experts, moe_layers=frozenset(range(spec.layers)), names=names)


def _qwen2_moe(config: Config, architecture: str) -> DecoderSpec:
    spec = _qwen2(config, architecture)
    if config.get("use_sliding_window", False) and not config.get("layer_types"):
        raise CheckpointError("config.json: use_sliding_window needs layer_types for this architecture")
    experts = replace(_experts(config), shared_width=config.integer("shared_expert_intermediate_size"))
    return replace(spec, experts=experts, moe_layers=_sparse_layers(config, spec.layers))


def _qwen3_moe(config: Config, architecture: str) -> DecoderSpec:
    spec = _qwen3(config, architecture)
    if config.get("use_sliding_window", False):
        spec = replace(spec, windows=_windows(config, spec.layers, first_windowed=0))
    return replace(spec, experts=_experts(config), moe_layers=_sparse_layers(config, spec.layers))


def _olmoe(config: Config, architecture: str) -> DecoderSpec:
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
        clip_qkv=config.number_or_none("clip_qkv"),
        experts=experts,
        moe_layers=frozenset(range(spec.layers)),
    )


def _experts(config: Config) -> ExpertsSpec:
    return ExpertsSpec(
        count=config.integer("num_experts", "num_local_experts"),
        per_token=config.integer("num_experts_per_tok"),
        width=config.integer("moe_intermediate_size"),
        normalize=bool(config.get("norm_topk_prob", False)),
    )


_READERS: Mapping[str, Callable[[Config, str], DecoderSpec]] = {
    "LlamaForCausalLM": _llama,
    "MistralForCausalLM": _mistral,
    "Qwen2ForCausalLM": _qwen2,
    "Qwen3ForCausalLM": _qwen3,
    "MixtralForCausalLM": _mixtral,
    "Qwen2MoeForCausalLM": _qwen2_moe,
    "Qwen3MoeForCausalLM": _qwen3_moe,
    "OlmoeForCausalLM": _olmoe,
}
