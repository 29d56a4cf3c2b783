"""Mistral, and its successors of other names."""

from __future__ import annotations

from dataclasses import replace

from headgate.engine.models.config import Config
from headgate.engine.models.families.common import base, windows
from headgate.engine.models.spec import DecoderSpec, ExpertsSpec, WeightNames


def mistral(config: Config, architecture: str) -> DecoderSpec:
    """Llama with windows."""
    spec = base(config, architecture)
    return replace(spec, windows=windows(config, spec.layers, first_windowed=0))


def mixtral(config: Config, architecture: str) -> DecoderSpec:
    """Mistral with experts for MLPs."""
    spec = mistral(config, architecture)
    experts = ExpertsSpec(
        count=config.integer("num_local_experts", "num_experts"),
        per_token=config.integer("num_experts_per_tok"),
        width=spec.mlp_width,
        normalize=True,
    )
    names = WeightNames(
        router="block_sparse_moe.gate",
        experts="block_sparse_moe.experts",
        expert_gate="w1",
        expert_up="w3",
        expert_down="w2",
    )
    return replace(spec, experts=experts, moe_layers=frozenset(range(spec.layers)), names=names)
