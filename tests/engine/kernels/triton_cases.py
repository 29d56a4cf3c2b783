"""What the tests of the Triton kernels share: where they can run, and the kernels under test."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from headgate.engine.kernels.triton.kernels import TritonKernels

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
in_the_interpreter = pytest.mark.skipif(
    "TRITON_INTERPRET" not in os.environ or importlib.util.find_spec("triton") is None,
    reason="test_triton.py runs this in a process of its own: the interpreter is chosen when Triton is imported",
)


def triton_kernels() -> TritonKernels:
    """The kernels; importing them decides how they run in this process."""
    from headgate.engine.kernels.triton.kernels import TritonKernels

    return TritonKernels()
