"""What the tests of the Triton kernels share: where they can run, and the kernels under test."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

if TYPE_CHECKING:
    from headgate.engine.kernels.triton.kernels import TritonKernels

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
in_the_interpreter = pytest.mark.skipif(
    "TRITON_INTERPRET" not in os.environ or importlib.util.find_spec("triton") is None,
    reason="test_interpreter.py runs this in a process of its own: the interpreter is chosen when Triton is imported",
)


@pytest.fixture
def right_fp8(monkeypatch: pytest.MonkeyPatch) -> None:
    """Conversions to and from fp8 as GPUs and torch make them: the interpreter's own round wrongly."""
    from triton import language
    from triton.runtime import interpreter

    theirs = interpreter._convert_float

    def convert(given: Any, before: Any, after: Any, rounding: Any) -> Any:
        if after == language.float8e4nv:
            numbers = torch.from_numpy(theirs(given, before, language.float32, None).view(np.float32))
            return numbers.to(torch.float8_e4m3fn).view(torch.uint8).numpy()
        if before == language.float8e4nv:
            numbers = torch.from_numpy(np.ascontiguousarray(given).view(np.uint8)).view(torch.float8_e4m3fn).float()
            return theirs(numbers.numpy(), language.float32, after, rounding)
        return theirs(given, before, after, rounding)

    monkeypatch.setattr(interpreter, "_convert_float", convert)


def patch_once_a_launch() -> None:
    """Device functions are called in a launch that has already put numpy's operations where Triton's were.

    The interpreter looks through all of the language again at each of these calls, which took half of its time.
    """
    from triton import language
    from triton.runtime import interpreter

    theirs, patched = interpreter._patch_lang, set[int]()
    languages = {id(language), id(language.core)}

    def patch(kernel: Any) -> Any:
        named = languages & {id(value) for value in kernel.__globals__.values()}
        if named <= patched:
            return None  # a device function's is never asked to take it back
        scope = theirs(kernel)
        restore = scope.restore

        def restored() -> None:
            patched.clear()
            restore()

        scope.restore = restored
        patched.update(named)
        return scope

    interpreter._patch_lang = patch


def look_up_once() -> None:
    """Of a type the numpy dtype is looked up once, and sums of indices are not made again in 64 bits.

    The interpreter does both at each operation, in a fifth of its time. No index here comes near to 32 bits.
    """
    from triton.runtime import interpreter

    theirs, found = interpreter._get_np_dtype, dict[str, Any]()

    def numpy_dtype(kind: Any) -> Any:
        name = str(kind.scalar)
        if name not in found:
            found[name] = theirs(kind.scalar)
        return found[name]

    interpreter._get_np_dtype = numpy_dtype
    interpreter.interpreter_builder.options = interpreter.InterpreterOptions(sanitize_overflow=False)


if "TRITON_INTERPRET" in os.environ and importlib.util.find_spec("triton") is not None:
    patch_once_a_launch()
    look_up_once()


def triton_kernels() -> TritonKernels:
    """The kernels; importing them decides how they run in this process."""
    from headgate.engine.kernels.triton.kernels import TritonKernels

    return TritonKernels(fp8=True)
