"""GLM-4."""

from __future__ import annotations

from dataclasses import replace

from headgate.engine.models.config import Config
from headgate.engine.models.families.common import base, head_dim_of
from headgate.engine.models.families.rotary import rope_of
from headgate.engine.models.spec import DecoderSpec, WeightNames


def glm(config: Config, architecture: str) -> DecoderSpec:
    """Llama with a fused MLP and heads of which a part turns, in pairs of neighbours."""
    rope = rope_of(config, head_dim_of(config), partial=True, interleaved=True)
    return replace(
        base(config, architecture, rope=rope),
        qkv_bias=bool(config.get("attention_bias", True)),
        names=WeightNames(gate_up=("mlp.gate_up_proj",)),
    )


def glm4(config: Config, architecture: str) -> DecoderSpec:
    """The same with norms behind what is added, too."""
    spec = glm(config, architecture)
    return replace(
        spec, names=replace(spec.names, attended_norm="post_self_attn_layernorm", fed_norm="post_mlp_layernorm")
    )
