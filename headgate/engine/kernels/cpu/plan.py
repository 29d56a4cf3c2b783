"""A step's geometry in the form that the compiled operators take."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import torch
from torch import Tensor

from headgate.engine.kernels.interface import AttentionBatch


@dataclass(frozen=True, slots=True)
class CpuPlan:
    """Geometry of one step as the attention operator takes it.

    Attributes:
        geometry: [sequences, 4] int64: first row, rows, context, where the blocks begin in `tables`.
        tables: int32, the blocks of one sequence after the other.
        block_size: slots per block.
    """

    geometry: Tensor
    tables: Tensor
    block_size: int

    @classmethod
    def of(cls, batch: AttentionBatch) -> CpuPlan:
        """The geometry of `batch`."""
        geometry, tables = array("q"), array("i")
        row = 0
        for count, context, blocks in zip(batch.counts, batch.contexts, batch.tables, strict=True):
            geometry.extend((row, count, context, len(tables)))
            tables.extend(blocks)
            row += count
        return cls(
            torch.frombuffer(geometry, dtype=torch.int64),
            torch.frombuffer(tables, dtype=torch.int32),
            batch.block_size,
        )
