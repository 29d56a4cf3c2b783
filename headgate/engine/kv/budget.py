"""How much memory keys and values get where nobody says."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from headgate.engine.kv.store import kv_bytes_per_token, paged_bytes_per_token
from headgate.engine.kv.window import Window, partial_window
from headgate.engine.models.language_model import ModelShape
from headgate.engine.scheduling.limits import Limits

# Of the control group that a container's processes see as theirs: version 2, then 1. Without a bound the first says
# "max", and the second a number that no machine has.
_BOUNDS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


class Memory(Protocol):
    """Of a device."""

    def peak(self, work: Callable[[], object]) -> int:
        """Most bytes that `work` takes at a time, beyond what was taken before."""
        ...

    def free(self) -> int:
        """Bytes that nobody has taken."""
        ...


class CudaMemory:
    """Implements Memory: torch's allocator tells of peaks, the driver of what other processes leave."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def peak(self, work: Callable[[], object]) -> int:
        """See Memory."""
        torch.cuda.reset_peak_memory_stats(self._device)
        before = torch.cuda.memory_allocated(self._device)
        work()
        torch.cuda.synchronize(self._device)
        return torch.cuda.max_memory_allocated(self._device) - before

    def free(self) -> int:
        """See Memory. What the allocator keeps for later is given back first."""
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(self._device)[0]


def kv_budget(device: torch.device, steps: Iterable[Callable[[], object]], rows: int = 0) -> int:
    """Bytes for all KV caches together: what `steps` leave of a GPU, or a quarter of the memory there is.

    `steps`: the largest of each model, which take turns. `rows`: bytes that all models' rows for decoding a step ahead
    take, the counts for penalties above all.
    """
    return measured_budget(CudaMemory(device), steps, rows) if device.type == "cuda" else host_memory() // 4


def measured_budget(memory: Memory, steps: Iterable[Callable[[], object]], rows: int = 0) -> int:
    """80 % of what is free beside the rows, or 90 % of what the largest step leaves of it if that is less.

    Graphs, choosing tokens and fragments take some beside the step.
    """
    peak = max((memory.peak(step) for step in steps), default=0)
    free = max(0, memory.free() - rows)
    return max(0, min(free * 8 // 10, (free - peak) * 9 // 10))


@dataclass(frozen=True, slots=True)
class BlockBytes:
    """What a block of a model takes.

    Attributes:
        whole: bytes of layers that keep as many blocks as there are.
        paged: bytes of those that lie in pages.
        pages: most pages that sequences can use: beyond as many blocks there are no more.
    """

    whole: int
    paged: int = 0
    pages: int = 0

    def of(self, blocks: int) -> int:
        """Bytes of so many blocks."""
        return blocks * self.whole + min(blocks, self.pages) * self.paged


def block_bytes(
    shape: ModelShape, dtype: torch.dtype, limits: Limits, block_size: int, *, context_length: int, apart: bool
) -> BlockBytes:
    """Of a model whose keys and values are kept in `dtype`, and sequences are of up to `context_length` tokens.

    `apart`: whether layers with a window may have pages where others see all: as many as sequences that run can use.
    """
    every = kv_bytes_per_token(shape, dtype) * block_size
    window = partial_window(shape.kv_windows, context_length) if apart else None
    if window is None:
        return BlockBytes(every)
    paged = paged_bytes_per_token(shape, dtype, context_length) * block_size
    return BlockBytes(
        every - paged, paged, limits.max_running * Window(window, limits.max_step_tokens, block_size).blocks
    )


def divided(budget: int, *, models: Sequence[BlockBytes], state: int, most_states: int) -> tuple[int, int]:
    """How many blocks of each model and how many states of sequences `budget` bytes hold; `state`: bytes of one.

    States get what `most_states` of them take, but no more than half. They are 0 for models without.
    """
    states = min(most_states, budget // 2 // state) if state else 0
    left = budget - states * state
    bound = range(1, left // sum(model.whole for model in models) + 1)
    return bisect_right(bound, left, key=lambda blocks: sum(model.of(blocks) for model in models)), states


def host_memory(bounds: Iterable[Path] = _BOUNDS) -> int:
    """Bytes of memory that this process may use: the machine's, or less where files of `bounds` say so."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in bounds:
        with suppress(OSError, ValueError):
            found.append(int(path.read_text()))
    return min(found)
