"""Granite 3: Llama with constant factors at four places."""

from __future__ import annotations

from dataclasses import replace

from headgate.engine.models.config import Config
from headgate.engine.models.families.common import base
from headgate.engine.models.spec import DecoderSpec, ExpertsSpec, WeightNames


def granite(config: Config, architecture: str) -> DecoderSpec:
    """Where layers add m times what they computed to a sum, here they add it to the m-th part of that sum.

    All that reads the sum is normalised: what is left of m is in the embedding's scale, and in the norms' epsilon.
    """
    spec = base(config, architecture)
    bias = bool(config.get("attention_bias", False))
    residual = config.number("residual_multiplier", 1.0)
    return replace(
        spec,
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bool(config.get("mlp_bias", False)),
        embedding_scale=config.number("embedding_multiplier", 1.0) / residual,
        norm_eps=spec.norm_eps / residual**2,
        attention_scale=config.number("attention_multiplier", 1.0),
        logit_scale=1.0 / config.number("logits_scaling", 1.0),
    )


def granite_moe(config: Config, architecture: str) -> DecoderSpec:
    """Granite with experts for MLPs."""
    spec = granite(config, architecture)
    experts = ExpertsSpec(
        count=config.integer("num_local_experts", default=8),
        per_token=config.integer("num_experts_per_tok", default=2),
        width=spec.mlp_width,
        normalize=True,
    )
    names = WeightNames(
        router="block_sparse_moe.router.layer",
        experts="block_sparse_moe",
        expert_gate="input_linear",
        expert_down="output_linear",
        stacked_experts=True,
    )
    return replace(spec, experts=experts, moe_layers=frozenset(range(spec.layers)), names=names)
