"""EXAONE 4."""

from __future__ import annotations

from dataclasses import replace

from headgate.engine.models.config import Config
from headgate.engine.models.families.common import NORMS_BEHIND, base, sliding_layers
from headgate.engine.models.rope import RopeSpec
from headgate.engine.models.spec import DecoderSpec


def exaone4(config: Config, architecture: str) -> DecoderSpec:
    """Norms of heads, and of what is added. Where some layers have windows, those without do not turn."""
    spec = replace(base(config, architecture), qk_norm="head", names=NORMS_BEHIND)
    window = config.integer("sliding_window", default=0, least=0)
    if not window:
        return spec
    sliding = sliding_layers(config, spec.layers)
    if sliding is None:
        pattern = config.integer("sliding_window_pattern", default=4)
        sliding = frozenset(layer for layer in range(spec.layers) if (layer + 1) % pattern)
    return replace(
        spec,
        second_rope=RopeSpec(spec.rope.theta, kind="none"),
        second_rope_layers=frozenset(range(spec.layers)) - sliding,
        windows=tuple(window if layer in sliding else None for layer in range(spec.layers)),
    )
