"""How much memory keys and values get where nobody says."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import torch

# Of the control group that a container's processes see as theirs: version 2, then 1. Without a bound the first says
# "max", and the second a number that no machine has.
_BOUNDS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def kv_budget(device: torch.device) -> int:
    """Bytes for all KV caches together: 80 % of what a GPU has left, or a quarter of the memory there is."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0] * 0.8)
    return host_memory() // 4


def host_memory(bounds: Iterable[Path] = _BOUNDS) -> int:
    """Bytes of memory that this process may use: the machine's, or less where files of `bounds` say so."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in bounds:
        with suppress(OSError, ValueError):
            found.append(int(path.read_text()))
    return min(found)
