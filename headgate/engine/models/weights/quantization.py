"""What config.json says of weights that are quantized already, and whether such weights can be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from headgate.engine.errors import CheckpointError
from headgate.engine.quant.fp8 import BLOCK

STATED_IN = ("quantization_config", "compression_config")
"""Keys of config.json that say how weights are quantized; the second is what compressed-tensors wrote at first."""
_KNOWN = (
    "quant_method 'gptq' or 'awq', 'compressed-tensors' of 4- or 8-bit integers or of 8-bit floats, or 'fp8'; "
    "or take the plain checkpoint: weights int8 or int4 quantize it when loading"
)
_BITS = (4, 8)
_COMPRESSED = ("pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "mixed-precision")
_STRATEGIES = ("tensor", "channel", "group")


@dataclass(frozen=True, slots=True)
class Packing:
    """What the tensors of packed integers do not tell themselves.

    Attributes:
        method: whose tensors there may be.
        short: zeros are stored less by one, as GPTQ's first format has them.
        runs: lengths that groups of inputs may have.
        ordered: inputs are in groups that only their tensor tells.
        zeros: all matrices have zeros.
    """

    method: Literal["gptq", "awq", "compressed-tensors", "fp8", "mxfp4"]
    short: bool = False
    runs: frozenset[int] = frozenset()
    ordered: bool = False
    zeros: bool = False


def check_quantization(config: Mapping[str, Any], *, stacks: bool = False) -> Packing | None:
    """How weights are packed by what `config` (the content of config.json) says of them; None where it says nothing.

    Which matrices are packed, in how many bits, and what a scale belongs to, the tensors themselves tell. `stacks`:
    MXFP4 will do, too, whose tensors have all experts of a layer.

    Raises:
        CheckpointError: such weights cannot be served; naming what is there, and what could be.
    """
    stated = next((config[key] for key in STATED_IN if config.get(key)), None)
    if stated is None:
        return None
    method = stated.get("quant_method") if isinstance(stated, dict) else stated
    if method == "gptq":
        return _gptq(stated)
    if method == "awq":
        return _awq(stated)
    if method == "compressed-tensors":
        return _compressed(stated)
    if method == "mxfp4" and stacks:
        return Packing("mxfp4")
    if method != "fp8":
        raise _refusal(f"quantization_config {method!r}", f"use {_KNOWN}")
    _check_block(stated.get("weight_block_size"))
    return Packing("fp8")


def _gptq(stated: Mapping[str, Any]) -> Packing:
    form = stated.get("checkpoint_format") or stated.get("format") or "gptq"
    if stated.get("is_marlin_format"):
        form = "marlin"
    if form not in ("gptq", "gptq_v2"):
        raise _refusal(f"quantization_config 'gptq' in the layout {form!r}", "use 'gptq' or 'gptq_v2'")
    if (words := stated.get("pack_dtype") or "int32") != "int32":
        raise _refusal(f"quantization_config 'gptq' with pack_dtype {words!r}", "it must be 'int32'")
    # By patterns of names, some layers differ; those to be left as they are have no settings.
    given = stated.get("dynamic") or {}
    others = [each for each in given.values() if isinstance(each, dict)] if isinstance(given, dict) else []
    for settings in (stated, *others):
        bits = settings.get("bits", stated.get("bits"))
        if bits not in _BITS:
            raise _refusal(f"quantization_config 'gptq' of {bits!r} bits", "bits must be 4 or 8")
    runs, ordered = _runs([stated, *others], "group_size"), bool(stated.get("desc_act"))
    return Packing("gptq", short=form == "gptq", runs=runs, ordered=ordered)


def _awq(stated: Mapping[str, Any]) -> Packing:
    form = str(stated.get("version") or stated.get("checkpoint_format") or stated.get("format") or "gemm").lower()
    if form != "gemm":
        raise _refusal(f"quantization_config 'awq' of version {form!r}", "use 'gemm'")
    bits = stated.get("bits", stated.get("w_bit", 4))
    if bits != 4:
        raise _refusal(f"quantization_config 'awq' of {bits!r} bits", "bits must be 4")
    return Packing("awq", runs=_runs([stated], "group_size", "q_group_size"))


def _compressed(stated: Mapping[str, Any]) -> Packing:
    named = "quantization_config 'compressed-tensors'"
    given = stated.get("config_groups") or {}
    groups = list(given.values()) if isinstance(given, dict) else [given]
    if not all(isinstance(group, dict) and isinstance(group.get("weights") or {}, dict) for group in groups):
        wanted = "an object of objects, each with an object 'weights'"
        raise CheckpointError(f"config.json: quantization_config.config_groups must be {wanted}; got {given!r}")
    for form in (stated.get("format"), *(group.get("format") for group in groups)):
        if form is not None and form not in _COMPRESSED:
            raise _refusal(f"{named} in the format {form!r}", f"use {', '.join(map(repr, _COMPRESSED[:3]))}")
    sparse = stated.get("sparsity_config")
    if isinstance(sparse, dict) and sparse.get("format", "dense") != "dense":
        raise _refusal(f"{named} with a sparsity_config of {sparse['format']!r}", "it must be 'dense'")
    if stated.get("transform_config"):
        raise _refusal(f"{named} with a transform_config", "use weights that are not rotated")
    kinds = [group.get("weights") or {} for group in groups]
    for weights in kinds:
        kind, bits = weights.get("type"), weights.get("num_bits")
        if (kind, bits) == ("float", 8):
            _check_block(weights.get("block_structure"))
            continue
        if kind != "int" or bits not in _BITS:
            raise _refusal(f"{named} with {bits}-bit {kind} weights", f"use {_KNOWN}")
        strategy = weights.get("strategy") or "tensor"
        if strategy not in _STRATEGIES:
            raise _refusal(f"{named} with integers by {strategy!r}", f"use {', '.join(map(repr, _STRATEGIES))}")
    ordered = any(weights.get("actorder") in (True, "group", "dynamic") for weights in kinds)
    zeros = all(weights.get("symmetric") is False for weights in kinds if weights.get("type") == "int")
    return Packing("compressed-tensors", runs=_runs(kinds, "group_size"), ordered=ordered, zeros=zeros)


def _runs(settings: Sequence[Mapping[str, Any]], *keys: str) -> frozenset[int]:
    found = [each.get(key) for each in settings for key in keys]
    return frozenset(length for length in found if isinstance(length, int) and length > 0)


def _check_block(block: object) -> None:
    if block is not None and block != [BLOCK, BLOCK]:
        raise _refusal(f"quantization_config with blocks of {block}", f"they must be [{BLOCK}, {BLOCK}]")


def _refusal(what: str, instead: str) -> CheckpointError:
    return CheckpointError(f"config.json: {what} is not supported; {instead}")
