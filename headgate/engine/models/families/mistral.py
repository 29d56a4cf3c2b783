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


def ministral3(config: Config, architecture: str) -> DecoderSpec:
    """Mistral whose queries grow with their position from the context before the extension on, where this ends.

    Up to there they do not. A factor of queries alone has no place in the rotation, nor in a weight.
    """
    spec = mistral(config, architecture)
    if config.object("rope_parameters", "rope_scaling").number_or_none("llama_4_scaling_beta") is None:
        return spec
    return replace(spec, context_length=min(spec.context_length, spec.rope.original_context or spec.context_length))


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
