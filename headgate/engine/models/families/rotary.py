"""What a config.json says of rotary position embedding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from headgate.engine.errors import CheckpointError
from headgate.engine.models.config import Config
from headgate.engine.models.rope import RopeKind, RopeSpec

_KINDS: Mapping[str, RopeKind] = {
    **{"default": "default", "linear": "linear", "llama3": "llama3", "yarn": "yarn", "longrope": "longrope"},
    "mrope": "default",  # of models that see: rows and columns of pictures are another matter
    "su": "longrope",  # what the first Phi-3 called it
}


def rope_of(
    config: Config, head_dim: int, *, theta: float = 10000.0, partial: bool = False, interleaved: bool = False
) -> RopeSpec:
    """The one rotation of all layers. `theta`: what the family has where config.json says nothing of it.

    `partial`: the family has heads of which some features stand still.

    Raises:
        CheckpointError: naming a key that is missing or has a value that cannot be served.
    """
    # transformers 5 writes rope_parameters; earlier versions rope_theta beside an optional rope_scaling.
    parameters = config.object("rope_parameters", "rope_scaling")
    # Of the two the one beside the scaling is believed first, as in transformers.
    stated = config if config.get("original_max_position_embeddings") else parameters
    original = stated.integer(
        "original_max_position_embeddings", default=config.integer("max_position_embeddings", default=1)
    )
    theta = (parameters if parameters.get("rope_theta") else config).number("rope_theta", theta, above=1.0)
    rotated = _rotated(config, parameters, head_dim, partial=partial)
    return _rope(config, parameters, theta, original, head_dim, rotated, interleaved=interleaved)


def sections_of(config: Config, default: list[int]) -> tuple[int, ...]:
    """See RopeSpec. `default`: of the family, where config.json says nothing of them."""
    stated = config.object("rope_parameters", "rope_scaling").get("mrope_section", default)
    if not isinstance(stated, list) or len(stated) != 3 or not all(type(each) is int and each >= 0 for each in stated):
        raise CheckpointError(f"config.json: mrope_section must be a list of three counts of pairs, got {stated!r}")
    return tuple(stated)


def ropes_by_kind(
    config: Config, head_dim: int, *, full: tuple[str, float], sliding: tuple[str, float]
) -> tuple[RopeSpec, RopeSpec]:
    """The rotations of layers of full and of sliding attention, for families that have both.

    They are objects of rope_parameters, or, from earlier versions, keys of which `full` and `sliding` are the names and
    defaults, beside a rope_scaling that is of the full ones alone.

    Raises:
        CheckpointError: as `rope_of`.
    """
    parameters = config.object("rope_parameters")
    nested = any(parameters.get(kind) for kind in ("full_attention", "sliding_attention"))
    both = []
    for kind, (key, default) in (("full_attention", full), ("sliding_attention", sliding)):
        if nested:
            own = parameters.object(kind)
        else:
            own = config.object("rope_parameters", "rope_scaling") if kind == "full_attention" else Config({})
        original = own.integer(
            "original_max_position_embeddings", default=config.integer("max_position_embeddings", default=1)
        )
        theta = own.number("rope_theta", config.number(key, default, above=1.0), above=1.0)
        both.append(_rope(config, own, theta, original, head_dim, None, interleaved=False))
    return both[0], both[1]


def _rotated(config: Config, parameters: Config, head_dim: int, *, partial: bool) -> int | None:
    given = parameters if parameters.get("partial_rotary_factor") else config
    share = given.number("partial_rotary_factor", 1.0)
    if share == 1.0:
        return None
    if not partial:
        raise CheckpointError(
            "config.json: partial_rotary_factor other than 1.0 is not supported for this architecture"
        )
    rotated = int(head_dim * share)
    if share > 1.0 or rotated % 2 or not rotated:
        raise CheckpointError(
            f"config.json: partial_rotary_factor must make an even part of head_dim ({head_dim}) turn, got {share}"
        )
    return rotated


def _rope(
    config: Config,
    parameters: Config,
    theta: float,
    original: int,
    head_dim: int,
    rotated: int | None,
    *,
    interleaved: bool,
) -> RopeSpec:
    named = parameters.get("rope_type", parameters.get("type", "default"))
    kind = _KINDS.get(named) if isinstance(named, str) else None
    if kind is None:
        raise CheckpointError(f"config.json: rope type {named!r} is not one of {', '.join(_KINDS)}")
    if kind == "default":
        return RopeSpec(theta, rotated=rotated, interleaved=interleaved)
    pairs = (rotated or head_dim) // 2
    # Phi's checkpoints have no factor: it is what the context became by the extension.
    grown = config.integer("max_position_embeddings") / original if kind == "longrope" else None
    return RopeSpec(
        theta,
        kind=kind,
        factor=parameters.number("factor", grown),
        original_context=original,
        low_frequency_factor=parameters.number("low_freq_factor", 1.0),
        high_frequency_factor=parameters.number("high_freq_factor", 4.0),
        beta_fast=parameters.number_or_none("beta_fast") or 32.0,
        beta_slow=parameters.number_or_none("beta_slow") or 1.0,
        attention_factor=parameters.number_or_none("attention_factor"),
        truncate=bool(parameters.get("truncate", True)),
        mscale=parameters.number_or_none("mscale"),
        mscale_all_dim=parameters.number_or_none("mscale_all_dim"),
        rotated=rotated,
        interleaved=interleaved,
        short_factors=_factors(parameters, "short_factor", pairs) if kind == "longrope" else (),
        long_factors=_factors(parameters, "long_factor", pairs) if kind == "longrope" else (),
    )


def _factors(parameters: Config, key: str, pairs: int) -> tuple[float, ...]:
    given = parameters.get(key)
    numbers = isinstance(given, list) and all(isinstance(f, int | float) and f > 0 for f in given)
    if not numbers or len(given) != pairs:
        raise CheckpointError(f"config.json: {key} must be a list of {pairs} positive numbers, got {given!r}")
    return tuple(float(factor) for factor in cast("list[float]", given))
