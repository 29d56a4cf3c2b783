"""A step's geometry as the attention kernels take it: what each program works on, made on the host, once per step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import torch
from torch import Tensor

from headgate.engine.kernels.interface import AttentionBatch
from headgate.engine.kernels.reference_plan import ReferencePlan

FEW = 16
"""Rows of a tile, a row being one head of one query: the least that tensor cores take."""
ARRIVALS = 128
"""Key heads of a tile whose parts can be counted as they arrive."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """Consecutive queries of a sequence that are attended together: int32 [tiles, 2], sequence and first query.

    `few` has the sequences whose queries fit one tile of `few_queries`; none has more than `longest` tokens. `arrivals`
    int32 [few, ARRIVALS] are zero before and after each use. `many` has the others, in tiles of `many_queries`.
    """

    few: Tensor
    few_queries: int
    longest: int
    arrivals: Tensor
    many: Tensor
    many_queries: int


@dataclass(frozen=True, slots=True)
class TritonPlan:
    """Geometry of one step, on the device.

    Attributes:
        geometry: int32 [sequences, 4]: first row, rows, context, where its blocks begin in `tables`.
        tables: int32, the blocks of one sequence after the other.
        blocks: the same, of each sequence, on the host.
    """

    counts: tuple[int, ...]
    contexts: tuple[int, ...]
    geometry: Tensor
    tables: Tensor
    block_size: int
    blocks: Sequence[Sequence[int]]
    tiled: dict[tuple[int, int], Tiles] = field(default_factory=dict)

    @classmethod
    def of(cls, batch: AttentionBatch, device: torch.device) -> TritonPlan:
        """The geometry of `batch`, in one transfer."""
        rows = accumulate(batch.counts, initial=0)
        blocks = accumulate((len(table) for table in batch.tables), initial=0)
        numbers = [
            number
            for row, count, context, first in zip(rows, batch.counts, batch.contexts, blocks, strict=False)
            for number in (row, count, context, first)
        ]
        sequences = len(batch.counts)
        both = torch.tensor([*numbers, *(b for table in batch.tables for b in table)], dtype=torch.int32).to(device)
        geometry, tables = both[: 4 * sequences].view(sequences, 4), both[4 * sequences :]
        return cls(tuple(batch.counts), tuple(batch.contexts), geometry, tables, batch.block_size, batch.tables)

    def tiles(self, group: int, rows: int) -> Tiles:
        """For `group` query heads per key head, `rows` rows in a tile of many; made at the first layer that asks."""
        if (group, rows) not in self.tiled:
            few_queries, many_queries = max(1, FEW // group), max(1, rows // group)
            few = [i for i, count in enumerate(self.counts) if count <= few_queries]
            many = [
                (i, first)
                for i, count in enumerate(self.counts)
                if count > few_queries
                for first in range(0, count, many_queries)
            ]
            pairs = torch.tensor([*((i, 0) for i in few), *many], dtype=torch.int32).to(self.geometry.device)
            longest = max((self.contexts[i] for i in few), default=1)
            arrivals = pairs.new_zeros(len(few), ARRIVALS)
            self.tiled[group, rows] = Tiles(
                pairs[: len(few)], few_queries, longest, arrivals, pairs[len(few) :], many_queries
            )
        return self.tiled[group, rows]


@dataclass(frozen=True, slots=True)
class SeeingPlan:
    """Geometry of a step in which some rows see later keys.

    Attributes:
        causal: of all rows, as if none did.
        rows: int64, those of the sequences in which some do.
        wide: these sequences alone, as plain torch takes them.
    """

    causal: TritonPlan
    rows: Tensor
    wide: ReferencePlan


@dataclass(frozen=True, slots=True)
class DecodePlan:
    """Geometry of a step of one token per sequence that only the device knows; what is launched depends on shapes.

    Attributes:
        geometry: as in TritonPlan.
        pairs: int32 [sequences, 2], the tile of each.
        arrivals: as in Tiles.
        tables: int32, likewise.
        longest: the most tokens that a sequence can have.
    """

    geometry: Tensor
    pairs: Tensor
    arrivals: Tensor
    tables: Tensor
    longest: int
    block_size: int

    def tiles(self, group: int, rows: int) -> Tiles:  # noqa: ARG002
        """See TritonPlan."""
        return Tiles(self.pairs, 1, self.longest, self.arrivals, self.pairs[:0], 1)
