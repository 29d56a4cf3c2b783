"""Compiles what a launch of Triton kernels would run on a named GPU, without one: to machine code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

SHARED = {80: 163 << 10, 89: 99 << 10, 90: 227 << 10}
"""Bytes of shared memory that a program may have, by compute capability (CUDA C++ Programming Guide, table 30)."""


class _Absent:
    """As much of a driver as choosing what to compile takes."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self.utils = self

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {"max_shared_mem": SHARED[device]}

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> int:
        # What was compiled is kept by device: targets must not share one.
        return int(self._target.arch)

    def get_current_stream(self, device: int) -> int:
        return device


@contextmanager
def compiling(capability: int, cache: Path) -> Iterator[list[Any]]:
    """Launches compile for the compute capability and add what came of it to the list; none runs.

    Tensors may lie anywhere: of a pointer only its alignment counts. Not in the interpreter.
    """
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    compiled: list[Any] = []
    run = JITFunction.run

    def only_compile(kernel: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> None:  # noqa: ARG001
        compiled.append(run(kernel, *arguments, grid=grid, warmup=True, **options))

    with pytest.MonkeyPatch.context() as patch:
        # What a launch would have written is read on the way to the next one.
        patch.setattr(torch, "empty_like", torch.zeros_like)
        patch.setenv("TRITON_CACHE_DIR", str(cache))
        patch.setattr(driver, "_active", _Absent(GPUTarget("cuda", capability, 32)))
        patch.setattr(JITFunction, "run", only_compile)
        yield compiled
