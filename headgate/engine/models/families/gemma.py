"""Gemma 3."""

from __future__ import annotations

from dataclasses import replace

import torch

from headgate.engine.errors import CheckpointError
from headgate.engine.models.config import Config
from headgate.engine.models.families.common import base, head_dim_of, sliding_layers
from headgate.engine.models.families.rotary import ropes_by_kind
from headgate.engine.models.spec import DecoderSpec, WeightNames


def gemma3(config: Config, architecture: str) -> DecoderSpec:
    """Norms before and behind both halves of a layer, five layers of windows to one without, and a rotation for each.

    The embedding's scale is rounded to the dtype that the checkpoint is in, as it was when the model was trained.
    """
    for key in ("final_logit_softcapping", "attn_logit_softcapping", "use_bidirectional_attention"):
        if config.get(key):
            raise CheckpointError(f"config.json: {key} {config.get(key)!r} is not supported; it must be left out")
    full, sliding = ropes_by_kind(
        config, head_dim_of(config), full=("rope_theta", 1000000.0), sliding=("rope_local_base_freq", 10000.0)
    )
    spec = base(config, architecture, activation="gelu", rope=full)
    layers = sliding_layers(config, spec.layers)
    if layers is None:
        pattern = config.integer("sliding_window_pattern", default=6)
        layers = frozenset(layer for layer in range(spec.layers) if (layer + 1) % pattern)
    window = config.integer("sliding_window")
    bias = bool(config.get("attention_bias", False))
    stated = config.get("dtype", config.get("torch_dtype", "bfloat16"))
    trained = torch.float32 if stated == "float32" else torch.bfloat16
    return replace(
        spec,
        qkv_bias=bias,
        output_bias=bias,
        qk_norm="head",
        norm_offset=1.0,
        attention_scale=config.number("query_pre_attn_scalar", 256.0) ** -0.5,
        embedding_scale=torch.tensor(spec.hidden**0.5, dtype=trained).item(),
        second_rope=sliding,
        second_rope_layers=layers,
        windows=tuple(window if layer in layers else None for layer in range(spec.layers)),
        names=WeightNames(
            attended_norm="post_attention_layernorm",
            mlp_norm="pre_feedforward_layernorm",
            fed_norm="post_feedforward_layernorm",
        ),
    )
