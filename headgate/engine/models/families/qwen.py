"""Qwen from its second version on, with and without experts."""

from __future__ import annotations

from dataclasses import replace

from headgate.engine.errors import CheckpointError
from headgate.engine.models.config import Config
from headgate.engine.models.families.common import base, windows
from headgate.engine.models.families.rotary import sections_of
from headgate.engine.models.spec import DecoderSpec, ExpertsSpec


def qwen2(config: Config, architecture: str) -> DecoderSpec:
    """Llama with biases where queries, keys and values come from, and windows from some layer on."""
    spec = replace(base(config, architecture), qkv_bias=bool(config.get("qkv_bias", True)))
    if not config.get("use_sliding_window", False):
        return spec
    return replace(spec, windows=windows(config, spec.layers, config.integer("max_window_layers", default=28, least=0)))


def qwen2_5_vl(config: Config, architecture: str) -> DecoderSpec:
    """Heads that turn by rows and columns of pictures, too."""
    spec = qwen2(config, architecture)
    sections = sections_of(config, [16, 24, 24])
    if sum(sections) > spec.head_dim // 2:
        raise CheckpointError(f"config.json: mrope_section has {sum(sections)} pairs; heads have {spec.head_dim // 2}")
    return replace(spec, rope=replace(spec.rope, sections=sections, in_turns=False))


def qwen3(config: Config, architecture: str) -> DecoderSpec:
    """Norms of heads instead of biases."""
    bias = bool(config.get("attention_bias", False))
    return replace(qwen2(config, architecture), qkv_bias=bias, output_bias=bias, qk_norm="head")


def qwen2_moe(config: Config, architecture: str) -> DecoderSpec:
    """With experts, one of which every token passes."""
    spec = qwen2(config, architecture)
    if config.get("use_sliding_window", False) and not config.get("layer_types"):
        raise CheckpointError("config.json: use_sliding_window needs layer_types for this architecture")
    experts = replace(experts_of(config), shared_width=config.integer("shared_expert_intermediate_size"))
    return replace(spec, experts=experts, moe_layers=sparse_layers(config, spec.layers))


def qwen3_moe(config: Config, architecture: str) -> DecoderSpec:
    """With experts."""
    spec = qwen3(config, architecture)
    if config.get("use_sliding_window", False):
        spec = replace(spec, windows=windows(config, spec.layers, first_windowed=0))
    return replace(spec, experts=experts_of(config), moe_layers=sparse_layers(config, spec.layers))


def qwen3_vl(config: Config, architecture: str) -> DecoderSpec:
    """Heads that turn by rows and columns of pictures, too, pairs of the kinds in turns."""
    return _seeing(qwen3(config, architecture), config)


def qwen3_vl_moe(config: Config, architecture: str) -> DecoderSpec:
    """With experts, whose weights are made to sum to one whatever config.json says."""
    spec = _seeing(qwen3_moe(config, architecture), config)
    names = replace(spec.names, turned_experts=True)
    return replace(spec, experts=replace(experts_of(config), normalize=True), names=names)


def _seeing(spec: DecoderSpec, config: Config) -> DecoderSpec:
    return replace(spec, rope=replace(spec.rope, sections=sections_of(config, [24, 20, 20])))


def experts_of(config: Config) -> ExpertsSpec:
    """As Qwen's configurations say it."""
    return ExpertsSpec(
        count=config.integer("num_experts", "num_local_experts"),
        per_token=config.integer("num_experts_per_tok"),
        width=config.integer("moe_intermediate_size"),
        normalize=bool(config.get("norm_topk_prob", False)),
    )


def sparse_layers(config: Config, layers: int) -> frozenset[int]:
    """Those with experts."""
    step, dense = config.integer("decoder_sparse_step", default=1), config.get("mlp_only_layers", [])
    if not isinstance(dense, list):
        raise CheckpointError(f"config.json: mlp_only_layers must be a list of layers, got {dense!r}")
    return frozenset(i for i in range(layers) if i not in dense and (i + 1) % step == 0)
