"""Qwen3-Next and Qwen3.5: most layers are of the delta rule, and those that attend have gates."""

from __future__ import annotations

from dataclasses import replace

from headgate.engine.errors import CheckpointError
from headgate.engine.models.config import Config
from headgate.engine.models.families.common import base, head_dim_of
from headgate.engine.models.families.qwen import experts_of, sparse_layers
from headgate.engine.models.families.rotary import rope_of, sections_of
from headgate.engine.models.spec import DecoderSpec, DeltaSpec

_KINDS = ("linear_attention", "full_attention")


def qwen3_5(config: Config, architecture: str) -> DecoderSpec:
    """Heads of which a part turns, norms whose weights lack one, and layers of the delta rule."""
    rope = replace(rope_of(config, head_dim_of(config), partial=True), sections=sections_of(config, [11, 11, 10]))
    spec = base(config, architecture, rope=rope)
    bias = bool(config.get("attention_bias", False))
    return replace(
        spec,
        names=replace(spec.names, unread=("mtp.",)),
        norm_offset=1.0,
        qk_norm="head",
        qkv_bias=bias,
        output_bias=bias,
        gated=True,
        delta=_delta(config),
        delta_layers=_delta_layers(config, spec.layers),
    )


def qwen3_5_moe(config: Config, architecture: str) -> DecoderSpec:
    """With experts in each layer, one of which every token passes."""
    spec = qwen3_5(config, architecture)
    shared = config.integer("shared_expert_intermediate_size")
    experts = replace(experts_of(config), normalize=True, shared_width=shared)
    return replace(spec, experts=experts, moe_layers=frozenset(range(spec.layers)))


def qwen3_next(config: Config, architecture: str) -> DecoderSpec:
    """The first of them: what is projected lies key head by key head."""
    spec = qwen3_5(config, architecture)
    experts = replace(experts_of(config), shared_width=config.integer("shared_expert_intermediate_size"))
    names = replace(spec.names, delta=("in_proj_qkvz",), delta_gates=("in_proj_ba",))
    return replace(spec, experts=experts, moe_layers=sparse_layers(config, spec.layers), names=names)


def _delta(config: Config) -> DeltaSpec:
    spec = DeltaSpec(
        key_heads=config.integer("linear_num_key_heads"),
        value_heads=config.integer("linear_num_value_heads"),
        key_dim=config.integer("linear_key_head_dim"),
        value_dim=config.integer("linear_value_head_dim"),
        convolved=config.integer("linear_conv_kernel_dim", least=2),
    )
    if spec.value_heads % spec.key_heads:
        raise CheckpointError(
            f"config.json: linear_num_value_heads ({spec.value_heads}) must be a multiple of linear_num_key_heads "
            f"({spec.key_heads})"
        )
    return spec


def _delta_layers(config: Config, layers: int) -> frozenset[int]:
    every = config.integer("full_attention_interval", default=4)
    kinds = config.get("layer_types") or [_KINDS[(number + 1) % every == 0] for number in range(layers)]
    if not isinstance(kinds, list) or len(kinds) != layers or any(kind not in _KINDS for kind in kinds):
        wanted = f"a list of {_KINDS[0]!r} and {_KINDS[1]!r} for each of {layers} layers"
        raise CheckpointError(f"config.json: layer_types must be {wanted}, got {kinds!r}")
    found = frozenset(number for number, kind in enumerate(kinds) if kind == _KINDS[0])
    if not 0 < len(found) < layers:
        raise CheckpointError(f"config.json: layer_types must have some of both {_KINDS[0]!r} and {_KINDS[1]!r}")
    return found
