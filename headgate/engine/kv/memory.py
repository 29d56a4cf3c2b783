"""Host memory of keys and values: room is taken as it is used, in small pages at first and in huge ones later."""

from __future__ import annotations

import mmap
from contextlib import suppress

import torch
from torch import Tensor

HUGE_PAGE = 1 << 21  # bytes
_LINE = 64  # bytes
_COLLAPSE = 25  # Linux's MADV_COLLAPSE, since 6.1, which `mmap` does not name yet


class HostMemory:
    """Tensors of zeros, each at a huge page, or at a line of the cache where it is small.

    Huge pages are faster, but one for each of a model's many tensors is a good deal of memory, which a first short
    prompt would take. So the first one of a tensor is small pages until `gather`.
    """

    def __init__(self) -> None:
        self._scattered: list[tuple[mmap.mmap, int]] = []

    def zeros(self, count: int) -> Tensor:
        """uint8 [count]."""
        alignment = HUGE_PAGE if count >= HUGE_PAGE else _LINE
        # Anonymous memory that nothing was written to takes none.
        content = mmap.mmap(-1, count + alignment, access=mmap.ACCESS_COPY)
        raw = torch.frombuffer(content, dtype=torch.uint8)
        start = -raw.data_ptr() % alignment
        if count >= HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # a kernel without them
                content.madvise(mmap.MADV_HUGEPAGE)
                content.madvise(mmap.MADV_NOHUGEPAGE, start, HUGE_PAGE)
                self._scattered.append((content, start))
        return raw[start : start + count]

    def gather(self) -> None:
        """Make huge pages of the small ones. Takes about as long as writing to them anew; where it fails they stay."""
        for content, start in self._scattered:
            with suppress(OSError):
                content.madvise(mmap.MADV_HUGEPAGE, start, HUGE_PAGE)
                content.madvise(_COLLAPSE, start, HUGE_PAGE)
        self._scattered.clear()
