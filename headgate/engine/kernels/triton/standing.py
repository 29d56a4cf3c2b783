"""The geometry of steps that can be recorded: in memory that stays where it is, as large as the largest needs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from headgate.engine.kernels.standing import StepBound, StepNumbers
from headgate.engine.kernels.triton.plan import ARRIVALS, FEW, Tiles

Ints = np.ndarray[tuple[int, ...], np.dtype[np.int32]]


class StandingPlan:
    """As TritonPlan, of up to `bound.sequences` sequences, of one that fills up, and of an empty one.

    Tiles that are left over are the empty one's, of whose rows and keys there are none.

    Attributes:
        geometry: as in TritonPlan.
        tables: likewise.
    """

    def __init__(self, bound: StepBound, geometry: Tensor, tables: Tensor) -> None:
        self.geometry, self.tables, self.block_size = geometry, tables, bound.block_size
        self._bound = bound
        self._counts: Ints = np.zeros(1, np.int32)
        self._tiled: dict[tuple[int, int], Tiles] = {}

    def tiles(self, group: int, rows: int) -> Tiles:
        """See TritonPlan. They stand where they are from the first time on."""
        if (group, rows) not in self._tiled:
            bound, few_queries, many_queries = self._bound, max(1, FEW // group), max(1, rows // group)
            sequences = bound.sequences + 1
            # n tokens of k sequences take n / queries + k tiles at most.
            many = bound.tokens // many_queries + min(sequences, bound.tokens // (few_queries + 1))
            pairs = self.geometry.new_zeros(sequences + many, 2)
            arrivals = self.geometry.new_zeros(sequences, ARRIVALS)
            longest = bound.blocks * bound.block_size
            tiles = Tiles(pairs[:sequences], few_queries, longest, arrivals, pairs[sequences:], many_queries)
            self._tiled[group, rows] = tiles
            self._fill(tiles)
        return self._tiled[group, rows]

    def place(self, counts: Ints) -> None:
        """Share out the queries of sequences with so many, of which the last is empty."""
        self._counts = counts
        for tiles in self._tiled.values():
            self._fill(tiles)

    def _fill(self, tiles: Tiles) -> None:
        counts, few, many = self._counts, len(tiles.few), len(tiles.many)
        with _uploaded(tiles.few, 2 * (few + many)) as numbers:
            pairs = numbers.reshape(-1, 2)
            pairs[:] = len(counts) - 1, 0
            short = np.flatnonzero((counts > 0) & (counts <= tiles.few_queries))
            pairs[: len(short), 0] = short
            at = few
            for sequence in np.flatnonzero(counts > tiles.few_queries):
                firsts = np.arange(0, counts[sequence], tiles.many_queries)
                pairs[at : at + len(firsts), 0], pairs[at : at + len(firsts), 1] = sequence, firsts
                at += len(firsts)


class TritonStandingStep:
    """Implements StandingStep. All it takes comes in one transfer, and one more for each kind of tiles."""

    def __init__(self, bound: StepBound, device: torch.device) -> None:
        self.bound = bound
        count, wide = bound.tokens, 3 * bound.tokens + bound.sequences
        # int64 first; then int32, two in the place of one: the geometry, and last the tables, as long as they are.
        self._wide, self._geometry = wide, 4 * (bound.sequences + 2)
        tables = bound.table_blocks + -(-count // bound.block_size)
        self._numbers = torch.zeros(wide + (self._geometry + tables + 1) // 2, dtype=torch.int64, device=device)
        self.tokens, self.positions, self.slots = self._numbers[: 3 * count].view(3, count)
        self.slots.fill_(bound.spare * bound.block_size)
        self.rows = self._numbers[3 * count : wide]
        narrow = self._numbers[wide:].view(torch.int32)
        geometry = narrow[: self._geometry].view(-1, 4)
        self.plan = StandingPlan(bound, geometry, narrow[self._geometry :])

    def place(self, numbers: StepNumbers) -> bool:
        """See StandingStep."""
        bound, size, count = self.bound, self.bound.block_size, len(numbers.tokens)
        counts, contexts = numbers.counts, numbers.contexts
        used = [-(-context // size) for context in contexts]
        within = count <= bound.tokens and max(len(counts), len(numbers.rows)) <= bound.sequences
        if not within or sum(used) > bound.table_blocks or max(used, default=0) > bound.blocks:
            return False
        filling = bound.tokens - count
        used.append(-(-filling // size))
        shared = np.array([*counts, filling, 0], np.int32)
        length = self._geometry + sum(used)
        with _uploaded(self._numbers, self._wide + (length + 1) // 2) as host:
            wide, narrow = host[: self._wide], host[self._wide :].view(np.int32)
            tokens, positions, slots = wide[: 3 * bound.tokens].reshape(3, bound.tokens)
            for row, given, filler in (
                (tokens, numbers.tokens, 0),
                (positions, numbers.positions, 0),
                (slots, numbers.slots, bound.spare * size),
                (wide[3 * bound.tokens :], numbers.rows, 0),
            ):
                row[: len(given)], row[len(given) :] = given, filler
            geometry = narrow[: self._geometry].reshape(-1, 4)
            geometry[:] = 0
            own = geometry[: len(shared)]
            own[:, 1] = shared
            own[1:, 0] = np.cumsum(shared[:-1])
            own[:-1, 2] = [*contexts, filling]
            own[1:, 3] = np.cumsum(used)
            tables, at = narrow[self._geometry :], 0
            for table, blocks in zip(numbers.tables, used, strict=False):
                tables[at : at + blocks] = table[:blocks]
                at += blocks
            tables[at:] = bound.spare
        self.plan.place(shared)
        return True


@contextmanager
def _uploaded(target: Tensor, count: int) -> Iterator[np.ndarray[tuple[int, ...], np.dtype[np.int64 | np.int32]]]:
    """Memory of the host, to be filled, for the first `count` numbers from where `target` begins on.

    On CUDA it is pinned, and not given to anybody else before it has been read.
    """
    host = torch.empty(count, dtype=target.dtype, pin_memory=target.device.type == "cuda")
    yield host.numpy()
    target.as_strided((count,), (1,)).copy_(host, non_blocking=True)
