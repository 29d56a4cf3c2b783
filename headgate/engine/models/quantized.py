"""Checkpoints whose weights are fp8 already: which can be served, and where their scales are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headgate.engine.errors import CheckpointError
from headgate.engine.models.tensors import CheckpointTensors, Tensors
from headgate.engine.quant.fp8 import BLOCK, E4M3, Fp8Weight

Matrix = Tensor | Fp8Weight
_KNOWN = "quant_method 'fp8' and 'compressed-tensors' of 8-bit floats"


def check_quantization(config: Mapping[str, Any]) -> None:
    """Refuse what `config` (the content of config.json) says of its weights if that cannot be served.

    Which tensors are fp8, and whether a scale belongs to a tensor, an output or a block, the tensors themselves tell.

    Raises:
        CheckpointError: naming what is there, and what could be.
    """
    stated = config.get("quantization_config")
    if not stated:
        return
    if not isinstance(stated, dict) or stated.get("quant_method") not in ("fp8", "compressed-tensors"):
        method = stated.get("quant_method") if isinstance(stated, dict) else stated
        raise _refusal(f"quantization_config {method!r}", f"use {_KNOWN}, or plain weights")
    blocks = [stated.get("weight_block_size")]
    if stated["quant_method"] == "compressed-tensors":
        given = stated.get("config_groups") or {}
        groups = list(given.values()) if isinstance(given, dict) else [given]
        if not all(isinstance(group, dict) and isinstance(group.get("weights") or {}, dict) for group in groups):
            wanted = "an object of objects, each with an object 'weights'"
            raise CheckpointError(f"config.json: quantization_config.config_groups must be {wanted}; got {given!r}")
        groups = [group.get("weights") or {} for group in groups]
        for weights in groups:
            if (weights.get("type"), weights.get("num_bits")) != ("float", 8):
                found = f"{weights.get('num_bits')}-bit {weights.get('type')}"
                raise _refusal(f"quantization_config 'compressed-tensors' with {found} weights", f"use {_KNOWN}")
        blocks = [weights.get("block_structure") for weights in groups]
    for block in blocks:
        if block is not None and block != [BLOCK, BLOCK]:
            raise _refusal(f"quantization_config with blocks of {block}", f"they must be [{BLOCK}, {BLOCK}]")


def read_matrix(source: Tensors, name: str, shape: tuple[int, int]) -> Matrix:
    """The tensor `name` [outputs, inputs] as the checkpoint has it, still memory-mapped.

    Raises:
        CheckpointError: it is missing or misshapen, or the scale of an fp8 one is.
    """
    return _read_fp8(source, name, shape) if source.dtype(name) == E4M3 else source.get(name, shape)


def expanded(folder: Path, dtype: torch.dtype) -> dict[str, Tensor]:
    """All weights of a checkpoint folder by name, in `dtype` those in fp8, without scales.

    Raises:
        CheckpointError: a file is missing or damaged, or a scale is missing or misshapen.
    """
    source = CheckpointTensors(folder)
    found: dict[str, Tensor] = {}
    for name in source.weights:
        matrix = source.get(name, source.shape(name))
        if matrix.dtype == E4M3:
            outputs, inputs = source.shape(name)
            found[name] = _read_fp8(source, name, (outputs, inputs)).expand(dtype)
        else:
            found[name] = matrix
    return found


def stays_fp8(experts: Sequence[Matrix]) -> bool:
    """Whether experts of these matrices can stay in fp8, one after the other in memory.

    All must have scales of one kind, and blocks that do not reach into the next expert.
    """
    found = [matrix for matrix in experts if isinstance(matrix, Fp8Weight)]
    whole = all(not matrix.blocks or matrix.values.shape[0] % BLOCK == 0 for matrix in found)
    return len(found) == len(experts) and whole and len({matrix.blocks for matrix in found}) == 1


def _read_fp8(source: Tensors, name: str, shape: tuple[int, int]) -> Fp8Weight:
    """With its scales; one for the whole tensor becomes one for each output."""
    outputs, inputs = shape
    values = source.get(name, shape)
    given = next((f"{name}{end}" for end in ("_scale_inv", "_scale") if f"{name}{end}" in source), None)
    if given is None:
        raise CheckpointError(f"{source.folder}: fp8 tensor {name!r} has neither {name}_scale_inv nor {name}_scale")
    found, blocks = source.shape(given), (-(-outputs // BLOCK), -(-inputs // BLOCK))
    scales = source.get(given, found, counts=False).to(torch.float32)
    if scales.numel() == 1 and blocks != found:
        return Fp8Weight(values, scales.reshape(1).repeat(outputs))
    if found in ((outputs,), (outputs, 1)) and found != blocks:
        return Fp8Weight(values, scales.reshape(outputs))
    if found == blocks:
        return Fp8Weight(values, scales)
    raise CheckpointError(
        f"{source.folder}: tensor {given!r} has shape {found}; scales of {shape} are one, {outputs} or {blocks}"
    )


def _refusal(what: str, instead: str) -> CheckpointError:
    return CheckpointError(f"config.json: {what} is not supported; {instead}")
