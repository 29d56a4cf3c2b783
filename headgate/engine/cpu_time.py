"""How many threads the processor time suffices for that a container may use."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import torch

_GROUP = Path("/sys/fs/cgroup")
"""Of the control group that a container's processes see as theirs."""


def bounded_threads(group: Path = _GROUP) -> int | None:
    """Threads for operators on the CPU where nobody says; None where torch's own choice is right.

    Torch counts processors. A group may have the time of fewer: once its threads have used that up, all of them stand
    still until the period of some 100 ms ends, whoever serves requests included. So there are no more of them than can
    run all the time, and one at least.
    """
    processors = _processors(group)
    if processors is None or processors >= torch.get_num_threads():
        return None
    return max(1, int(processors))


def _processors(group: Path) -> float | None:
    """How many a group has the time of; None where it has no bound. Control groups of version 2, then of 1."""
    with suppress(OSError, ValueError):
        quota, period = (group / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    with suppress(OSError, ValueError):
        quota_us, period_us = (int((group / "cpu" / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
        return None if quota_us <= 0 else quota_us / period_us
    return None
