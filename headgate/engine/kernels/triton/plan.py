"""A step's geometry as the attention kernels take it: what each program works on, made on the host, once per step."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate

import torch
from torch import Tensor

from headgate.engine.kernels.interface import AttentionBatch

_FEW = 16
"""Rows of a tile, a row being one head of one query: the least that tensor cores take."""
LEAST_SPAN, MOST_SPLITS = 128, 32
"""Keys of a sequence that one program reads, and programs that share a sequence's: at 1,024 keys there are 8 of each
key head, so that batch 1 already fills half of a large GPU, and at 128,000 there is little to combine."""
_PROGRAMS = 256
"""Of each key head in a step that only the device knows, sequences and their splits together: with eight of these, as
many as the largest GPU holds at once."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """Consecutive queries of a sequence that are attended together: int32 [tiles, 2], sequence and first query.

    `few` has the sequences whose queries fit one tile of `few_queries`; their keys are read by up to `splits` programs
    each. `many` has the others, in tiles of `many_queries`. `programs` share the splits of a sequence out.
    """

    few: Tensor
    few_queries: int
    splits: int
    programs: int
    many: Tensor
    many_queries: int


@dataclass(frozen=True, slots=True)
class TritonPlan:
    """Geometry of one step, on the device.

    Attributes:
        geometry: int32 [sequences, 5]: first row, rows, context, where its blocks begin in `tables`, keys of a split.
        tables: int32, the blocks of one sequence after the other.
    """

    counts: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    """Context and keys of a split, per sequence."""
    geometry: Tensor
    tables: Tensor
    block_size: int
    tiled: dict[tuple[int, int], Tiles] = field(default_factory=dict)

    @classmethod
    def of(cls, batch: AttentionBatch, device: torch.device) -> TritonPlan:
        """The geometry of `batch`, in one transfer."""
        spans = [(context, _span(context)) for context in batch.contexts]
        rows = accumulate(batch.counts, initial=0)
        blocks = accumulate((len(table) for table in batch.tables), initial=0)
        numbers = [
            number
            for row, count, (context, span), first in zip(rows, batch.counts, spans, blocks, strict=False)
            for number in (row, count, context, first, span)
        ]
        sequences = len(spans)
        both = torch.tensor([*numbers, *(b for table in batch.tables for b in table)], dtype=torch.int32).to(device)
        geometry, tables = both[: 5 * sequences].view(sequences, 5), both[5 * sequences :]
        return cls(tuple(batch.counts), tuple(spans), geometry, tables, batch.block_size)

    def tiles(self, group: int, rows: int) -> Tiles:
        """For `group` query heads per key head, `rows` rows in a tile of many; made at the first layer that asks."""
        if (group, rows) not in self.tiled:
            few_queries, many_queries = max(1, _FEW // group), max(1, rows // group)
            few = [i for i, count in enumerate(self.counts) if count <= few_queries]
            many = [
                (i, first)
                for i, count in enumerate(self.counts)
                if count > few_queries
                for first in range(0, count, many_queries)
            ]
            pairs = torch.tensor([*((i, 0) for i in few), *many], dtype=torch.int32).to(self.geometry.device)
            splits = max((-(-context // span) for context, span in (self.spans[i] for i in few)), default=1)
            self.tiled[group, rows] = Tiles(
                pairs[: len(few)], few_queries, splits, splits, pairs[len(few) :], many_queries
            )
        return self.tiled[group, rows]


@dataclass(frozen=True, slots=True)
class DecodePlan:
    """Geometry of a step of one token per sequence that only the device knows; what is launched depends on shapes.

    Attributes:
        geometry: as in TritonPlan.
        pairs: int32 [sequences, 2], the tile of each.
        tables: int32, likewise.
        longest: the most tokens that a sequence can have.
    """

    geometry: Tensor
    pairs: Tensor
    tables: Tensor
    longest: int
    block_size: int

    def tiles(self, group: int, rows: int) -> Tiles:  # noqa: ARG002
        """See TritonPlan. As many programs share a sequence's keys as fill a GPU, however long it turns out to be."""
        splits = min(MOST_SPLITS, -(-self.longest // LEAST_SPAN))
        programs = max(1, min(splits, _PROGRAMS // len(self.pairs)))
        return Tiles(self.pairs, 1, splits, programs, self.pairs[:0], 1)


def _span(context: int) -> int:
    """Of the context alone: how a sequence is split, and so what it gets, does not depend on its neighbours."""
    shortest = -(-context // MOST_SPLITS)
    return max(LEAST_SPAN, 1 << (shortest - 1).bit_length())
