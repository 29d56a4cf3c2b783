"""Matrices of checkpoints as their tensors have them: plain, in fp8 with scales, packed integers, or GGUF's blocks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from headgate.engine.errors import CheckpointError
from headgate.engine.models.adapters.files import AdaptedWeight
from headgate.engine.models.gguf.tensors import GgufTensors
from headgate.engine.models.weights.integers import read_integers
from headgate.engine.models.weights.quantization import check_quantization
from headgate.engine.models.weights.tensors import CheckpointTensors, Tensors, read_json
from headgate.engine.quant.fp8 import BLOCK, E4M3, Fp8Weight
from headgate.engine.quant.ggml import GgmlWeight
from headgate.engine.quant.integers import IntegerWeight

Matrix = Tensor | Fp8Weight | IntegerWeight | GgmlWeight | AdaptedWeight


def read_matrix(source: Tensors, name: str, shape: tuple[int, int]) -> Matrix:
    """The tensor `name` [outputs, inputs] as the checkpoint and its adapter have it, still memory-mapped.

    Raises:
        CheckpointError: it, or a tensor that belongs to it, is missing or misshapen, or of another format than
            config.json says.
    """
    stored = _stored(source, name, shape)
    return stored if source.adapter is None else source.adapter.applied(name, stored, shape)


def expanded(folder: Path, dtype: torch.dtype) -> dict[str, Tensor]:
    """All weights of a checkpoint folder by name, in `dtype` those that are quantized, without scales.

    Names and shapes are those that transformers takes, so that it reads what it has no package for.

    Raises:
        CheckpointError: a file is missing or damaged, or a scale is missing or misshapen.
    """
    source = CheckpointTensors(folder)
    source.packing = check_quantization(read_json(folder / "config.json"))
    found: dict[str, Tensor] = {}
    for name, shape in source.shapes.items():
        matrix = read_matrix(source, name, (shape[0], shape[1])) if len(shape) == 2 else source.get(name, shape)
        if isinstance(matrix, Tensor):
            found[name] = matrix
        else:
            found[name] = matrix.expand(dtype)
            source.release(name)
    return found


def stays_fp8(experts: Sequence[Matrix]) -> bool:
    """Whether experts of these matrices can stay in fp8, one after the other in memory.

    All must have scales of one kind, and blocks that do not reach into the next expert.
    """
    found = [matrix for matrix in experts if isinstance(matrix, Fp8Weight)]
    whole = all(not matrix.blocks or matrix.values.shape[0] % BLOCK == 0 for matrix in found)
    return len(found) == len(experts) and whole and len({matrix.blocks for matrix in found}) == 1


def _stored(source: Tensors, name: str, shape: tuple[int, int]) -> Tensor | Fp8Weight | IntegerWeight | GgmlWeight:
    if isinstance(source, GgufTensors):
        blocks = source.packed(name, shape)
        return source.get(name, shape) if blocks is None else blocks
    if source.dtype(name) == E4M3:
        return _read_fp8(source, name, shape)
    packed = read_integers(source, name, shape)
    return source.get(name, shape) if packed is None else packed


def _read_fp8(source: Tensors, name: str, shape: tuple[int, int]) -> Fp8Weight:
    """With its scales; one for the whole tensor becomes one for each output."""
    outputs, inputs = shape
    values = source.get(name, shape)
    given = next((f"{name}{end}" for end in ("_scale_inv", "_scale") if f"{name}{end}" in source), None)
    if given is None:
        raise CheckpointError(f"{source.folder}: fp8 tensor {name!r} has neither {name}_scale_inv nor {name}_scale")
    found, blocks = source.shape(given), (-(-outputs // BLOCK), -(-inputs // BLOCK))
    scales = source.get(given, found, parameters=0).to(torch.float32)
    if scales.numel() == 1 and blocks != found:
        return Fp8Weight(values, scales.reshape(1).repeat(outputs))
    if found in ((outputs,), (outputs, 1)) and found != blocks:
        return Fp8Weight(values, scales.reshape(outputs))
    if found == blocks:
        return Fp8Weight(values, scales)
    raise CheckpointError(
        f"{source.folder}: tensor {given!r} has shape {found}; scales of {shape} are one, {outputs} or {blocks}"
    )
