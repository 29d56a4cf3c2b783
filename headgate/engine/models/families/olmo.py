"""OLMo: of experts, and from its second version on with norms behind what is added."""

from __future__ import annotations

from dataclasses import replace

from headgate.engine.models.config import Config
from headgate.engine.models.families.common import base
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
