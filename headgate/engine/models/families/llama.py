"""Llama, and what differs from it in one thing."""

from __future__ import annotations

from dataclasses import replace

from headgate.engine.errors import CheckpointError
from headgate.engine.models.config import Config
from headgate.engine.models.families.common import base, head_dim_of, sliding_layers
from headgate.engine.models.families.rotary import rope_of
from headgate.engine.models.rope import RopeSpec
from headgate.engine.models.spec import DecoderSpec, WeightNames


def llama(config: Config, architecture: str) -> DecoderSpec:
    """Llama 2 and 3."""
    bias = bool(config.get("attention_bias", False))
    return replace(
        base(config, architecture),
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bool(config.get("mlp_bias", False)),
    )


def smollm3(config: Config, architecture: str) -> DecoderSpec:
    """Llama with layers that do not turn, and with windows, if any, in these."""
    spec = base(config, architecture)
    turning = config.get("no_rope_layers")
    if turning is None:
        interval = config.integer("no_rope_layer_interval", default=4)
        turning = [int((layer + 1) % interval != 0) for layer in range(spec.layers)]
    if not isinstance(turning, list) or len(turning) < spec.layers or any(each not in (0, 1) for each in turning):
        wanted = f"a list of 0 (does not turn) and 1 for each of {spec.layers} layers"
        raise CheckpointError(f"config.json: no_rope_layers must be {wanted}, got {turning!r}")
    still = frozenset(layer for layer in range(spec.layers) if not turning[layer])
    window = config.integer("sliding_window", default=0, least=0) if config.get("use_sliding_window", False) else 0
    sliding = sliding_layers(config, spec.layers)
    windowed = still if sliding is None else sliding
    bias = bool(config.get("attention_bias", False))
    return replace(
        spec,
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bool(config.get("mlp_bias", False)),
        second_rope=RopeSpec(spec.rope.theta, kind="none") if still else None,
        second_rope_layers=still,
        windows=tuple(window if window and layer in windowed else None for layer in range(spec.layers)),
    )


def seed_oss(config: Config, architecture: str) -> DecoderSpec:
    """Llama with biases that are said one by one."""
    return replace(
        base(config, architecture),
        qkv_bias=bool(config.get("attention_bias", True)),
        output_bias=bool(config.get("attention_out_bias", False)),
        mlp_bias=bool(config.get("mlp_bias", False)),
    )


def ernie(config: Config, architecture: str) -> DecoderSpec:
    """ERNIE 4.5 without experts: Llama whose heads turn in pairs of neighbours."""
    rope = rope_of(config, head_dim_of(config), interleaved=True)
    bias = bool(config.get("use_bias", False))
    return replace(base(config, architecture, rope=rope), qkv_bias=bias, output_bias=bias, mlp_bias=bias)


def arcee(config: Config, architecture: str) -> DecoderSpec:
    """Llama with MLPs without gates."""
    bias = bool(config.get("attention_bias", False))
    return replace(
        base(config, architecture, activation="relu2"),
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bool(config.get("mlp_bias", False)),
        names=WeightNames(gate_up=("mlp.up_proj",)),
    )
