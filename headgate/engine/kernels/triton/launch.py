"""What a device can do for a launch: how much shared memory a program may have, and whether launches overlap.

From Hopper on a launch may begin before the one before it has ended (programmatic dependent launch).

A kernel says at once that the next one may begin, which then waits only where it needs what comes before: it reads its
weights, and comes to its place on the device, while the one before still computes. Whoever reads or writes anything
that launches before it write or read must have waited; since all do, what is ready for one was ready for all before.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
from triton.runtime import driver
from triton.runtime.jit import JITFunction


@triton.jit
def begin(pdl: tl.constexpr) -> None:
    """Let the next launch begin as soon as there is room."""
    if pdl:
        gdc_launch_dependents()


@triton.jit
def wait(pdl: tl.constexpr) -> None:
    """Until all that was launched before has ended, and can be read."""
    if pdl:
        gdc_wait()


def overlapping() -> dict[str, Any]:
    """Keywords of a launch of a kernel with the parameter `pdl`, by what the device can do."""
    if not isinstance(begin, JITFunction):
        return {"pdl": False}  # interpreted
    active: Any = driver.active
    return _OVERLAPPING if _can(active, active.get_current_device()) else _PLAIN


def shared_memory() -> int:
    """Bytes that a program may have."""
    if not isinstance(begin, JITFunction):
        return 1 << 30  # interpreted
    active: Any = driver.active
    return _most_shared(active, active.get_current_device())


_PLAIN: dict[str, Any] = {"pdl": False}
_OVERLAPPING: dict[str, Any] = {"pdl": True, "launch_pdl": True}


@cache
def _can(active: Any, device: int) -> bool:  # noqa: ARG001
    target = active.get_current_target()
    return target.backend == "cuda" and int(target.arch) >= 90


@cache
def _most_shared(active: Any, device: int) -> int:
    return int(active.utils.get_device_properties(device)["max_shared_mem"])
