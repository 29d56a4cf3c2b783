"""Phi from its third version on."""

from __future__ import annotations

from dataclasses import replace

from headgate.engine.models.config import Config
from headgate.engine.models.families.common import base, head_dim_of, windows
from headgate.engine.models.families.rotary import rope_of
from headgate.engine.models.spec import DecoderSpec, WeightNames


def phi3(config: Config, architecture: str) -> DecoderSpec:
    """Llama with fused projections, windows, and heads of which, from Phi-4-mini on, a part does not turn."""
    rope = rope_of(config, head_dim_of(config), partial=True)
    spec = base(config, architecture, rope=rope)
    return replace(
        spec,
        windows=windows(config, spec.layers, first_windowed=0),
        names=WeightNames(qkv=("self_attn.qkv_proj",), gate_up=("mlp.gate_up_proj",)),
    )
