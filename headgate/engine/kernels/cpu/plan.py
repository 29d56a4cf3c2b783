"""A step's geometry in the form that the compiled operators take."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from itertools import accumulate, islice

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
        limits: see AttentionBatch.
    """

    geometry: Tensor
    tables: Tensor
    block_size: int
    limits: Tensor | None = None

    @classmethod
    def of(cls, batch: AttentionBatch) -> CpuPlan:
        """The geometry of `batch`."""
        counts, sequences = batch.counts, len(batch.counts)
        tables = array("i")
        for blocks in batch.tables:
            tables.extend(blocks)
        # Column by column: row by row takes several times as long, and a small model's step hardly longer than that.
        geometry = array("q", bytes(32 * sequences))
        geometry[0::4] = array("q", islice(accumulate(counts, initial=0), sequences))
        geometry[1::4] = array("q", counts)
        geometry[2::4] = array("q", batch.contexts)
        geometry[3::4] = array("q", islice(accumulate(map(len, batch.tables), initial=0), sequences))
        return cls(
            torch.frombuffer(geometry, dtype=torch.int64),
            torch.frombuffer(tables, dtype=torch.int32),
            batch.block_size,
            batch.limits,
        )

    def with_pages(self, batch: AttentionBatch) -> Tensor:
        """The tables, and behind them as many pages where layers of this step are paged."""
        if batch.pages is None:
            return self.tables
        pages = array("i")
        for blocks, own in zip(batch.tables, batch.pages.tables, strict=True):
            pages.extend(own)
            pages.extend([0] * (len(blocks) - len(own)))  # where it has none yet, which nobody reads
        return torch.cat([self.tables, torch.frombuffer(pages, dtype=torch.int32)])
