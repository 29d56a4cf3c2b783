"""gpt-oss."""

from __future__ import annotations

from dataclasses import replace

from headgate.engine.errors import CheckpointError
from headgate.engine.kernels.mixture import ALPHA
from headgate.engine.models.config import Config
from headgate.engine.models.families.common import base, head_dim_of, windows
from headgate.engine.models.families.rotary import rope_of
from headgate.engine.models.rope import RopeSpec
from headgate.engine.models.spec import DecoderSpec, ExpertsSpec, WeightNames

_THETA = 150000.0


def gpt_oss(config: Config, architecture: str) -> DecoderSpec:
    """Sinks beside the keys, windows in every other layer, and experts whose gates and ups are clamped."""
    if (alpha := config.number("swiglu_alpha", ALPHA)) != ALPHA:
        raise CheckpointError(f"config.json: swiglu_alpha {alpha} is not supported; it must be {ALPHA}")
    if config.get("rope_parameters") or config.get("rope_scaling"):
        rope = rope_of(config, head_dim_of(config), theta=_THETA)
    else:
        # What its class has where config.json says nothing.
        theta = config.number("rope_theta", _THETA, above=1.0)
        rope = RopeSpec(theta, kind="yarn", factor=32.0, original_context=4096, truncate=False)
    spec = base(config, architecture, rope=rope)
    if not config.get("layer_types"):
        window = config.integer("sliding_window")
        spec = replace(spec, windows=tuple(None if layer % 2 else window for layer in range(spec.layers)))
    else:
        spec = replace(spec, windows=windows(config, spec.layers, first_windowed=0))
    experts = ExpertsSpec(
        count=config.integer("num_local_experts", "num_experts", default=128),
        per_token=config.integer("num_experts_per_tok", "experts_per_token", default=4),
        width=spec.mlp_width,
        normalize=True,
        bias=True,
        limit=config.number("swiglu_limit", 7.0),
    )
    bias = bool(config.get("attention_bias", True))
    return replace(
        spec,
        qkv_bias=bias,
        output_bias=bias,
        sinks=True,
        experts=experts,
        moe_layers=frozenset(range(spec.layers)),
        names=WeightNames(
            router="mlp.router", expert_gate="gate_up_proj", expert_down="down_proj", interleaved_experts=True
        ),
    )
