"""OLMo: of experts, and from its second version on with norms behind what is added."""

from __future__ import annotations

from dataclasses import replace

from headgate.engine.models.config import Config
from headgate.engine.models.families.common import NORMS_BEHIND, base, head_dim_of, sliding_layers
from headgate.engine.models.families.rotary import ropes_by_kind
from headgate.engine.models.spec import DecoderSpec, ExpertsSpec


def olmoe(config: Config, architecture: str) -> DecoderSpec:
    """The one with experts, and norms of the whole projections."""
    bias = bool(config.get("attention_bias", False))
    spec = base(config, architecture)
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


def olmo2(config: Config, architecture: str) -> DecoderSpec:
    """Llama with norms of the whole projections, and of what is added in place of what is read."""
    return _behind(base(config, architecture), config)


def olmo3(config: Config, architecture: str) -> DecoderSpec:
    """OLMo 2 with windows in three of four layers, which no scaling of the rotation reaches."""
    theta = ("rope_theta", 500000.0)
    full, sliding = ropes_by_kind(config, head_dim_of(config), full=theta, sliding=theta)
    spec = _behind(base(config, architecture, rope=full), config)
    layers = sliding_layers(config, spec.layers)
    if layers is None:
        layers = frozenset(layer for layer in range(spec.layers) if (layer + 1) % 4)
    window = config.integer("sliding_window", default=0, least=0) or None
    return replace(
        spec,
        second_rope=sliding if sliding != full else None,
        second_rope_layers=layers if sliding != full else frozenset(),
        windows=tuple(window if layer in layers else None for layer in range(spec.layers)),
    )


def _behind(spec: DecoderSpec, config: Config) -> DecoderSpec:
    bias = bool(config.get("attention_bias", False))
    return replace(spec, qkv_bias=bias, output_bias=bias, qk_norm="projection", names=NORMS_BEHIND)
