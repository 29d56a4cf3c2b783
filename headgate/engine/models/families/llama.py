"""Llama, and what differs from it in one thing."""

from __future__ import annotations

from dataclasses import replace

from headgate.engine.models.config import Config
from headgate.engine.models.families.common import base
from headgate.engine.models.spec import DecoderSpec


def llama(config: Config, architecture: str) -> DecoderSpec:
    """Llama 2 and 3."""
    bias = bool(config.get("attention_bias", False))
    return replace(
        base(config, architecture),
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bool(config.get("mlp_bias", False)),
    )
