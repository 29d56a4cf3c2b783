"""Which kernels a device gets."""

from __future__ import annotations

import importlib.util
import os
import shutil
from dataclasses import dataclass
from typing import Literal

import torch

from headgate.engine.kernels.cpu.kernels import CpuKernels, native_status
from headgate.engine.kernels.device_rows import RowKernels
from headgate.engine.kernels.interface import Kernels
from headgate.engine.kernels.reference import ReferenceKernels

KernelSet = Literal["auto", "reference", "triton"]
_PROVEN = 9, 0
"""Compute capability of the GPUs that the Triton kernels were run on."""
_LEAST = 8, 0
"""What they need: before it came bfloat16."""


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """Kernels, whether they are our own compiled ones, and why.

    `untried`: the GPU, if they were never run on such a one, and nobody asked for them: they are to be tried first.
    """

    kernels: Kernels
    native: bool
    why: str
    untried: str = ""


def choose_kernels(wanted: KernelSet, device: torch.device) -> KernelChoice:
    """The fastest kernels that `device` can have here, or those that are wanted.

    Raises:
        ValueError: those of Triton are wanted where they cannot run.
    """
    if wanted == "reference":
        return KernelChoice(ReferenceKernels(), False, "plain torch, by the setting kernels: reference")
    if wanted == "triton":
        return _triton(device, asked=True)
    if device.type == "cuda":
        lacking = _lacking(device)
        if lacking:
            return KernelChoice(ReferenceKernels(), False, f"plain torch; {lacking}")
        return _triton(device, asked=False)
    if device.type != "cpu":
        return KernelChoice(ReferenceKernels(), False, f"plain torch on {device.type}")
    status = native_status()
    if not status.usable:
        return KernelChoice(ReferenceKernels(), False, f"plain torch; {status.why}")
    return KernelChoice(CpuKernels(), True, status.why)


def row_kernels(chosen: KernelChoice, wanted: bool | None, device: torch.device) -> RowKernels | None:
    """How these kernels decode with all that a step takes on the device; None where they are not to.

    Raises:
        ValueError: they are `wanted` to, and cannot.
    """
    if wanted is False or (wanted is None and not (device.type == "cuda" and chosen.native)):
        return None
    rows = chosen.kernels.rows()
    if rows is None and wanted:
        raise ValueError("decode_ahead is true, which the compiled kernels of the CPU do not know; use null or false")
    return rows


def _lacking(device: torch.device) -> str:
    """Why the kernels of Triton are not taken unasked; empty if they are."""
    if not torch.cuda.is_available():
        return "torch sees no CUDA device"
    if importlib.util.find_spec("triton") is None:
        return "the package triton is not installed"
    # As Triton looks for it: CC names the one, or there is one of these.
    if not any(shutil.which(name) for name in ([os.environ["CC"]] if os.environ.get("CC") else ["gcc", "clang"])):
        return "Triton needs a C compiler, and there is no gcc or clang here, nor what CC names"
    found = torch.cuda.get_device_capability(device)
    if found < _LEAST:
        return (
            f"Triton's kernels need compute capability {_LEAST[0]}.{_LEAST[1]}, and this GPU has {found[0]}.{found[1]}"
        )
    return ""


def _triton(device: torch.device, *, asked: bool) -> KernelChoice:
    """`asked`: whether somebody wants these: then nothing else is taken that may be faster, and none is tried first."""
    if device.type != "cuda":
        raise ValueError(f"kernels is 'triton', which runs on CUDA devices, but the device is {device}; use auto")
    if importlib.util.find_spec("triton") is None:
        raise ValueError("kernels is 'triton', but the package triton is not installed; install it, or use auto")
    # Triton takes a second to import and half a gigabyte on disk: nobody else should need it.
    from headgate.engine.kernels.triton.flashinfer import PromptAttention, installed
    from headgate.engine.kernels.triton.kernels import TritonKernels

    # What takes fp8 (e4m3) came with the GPUs of 8.9.
    fp8 = torch.cuda.is_available() and torch.cuda.get_device_capability(device) >= (8, 9)
    library = None if asked else installed()
    prompts = None if library is None else PromptAttention(library)
    why = "Triton" if library is None else f"Triton; FlashInfer {library.__version__} is tried for long prompts"
    untried = ""
    if not asked and (capability := torch.cuda.get_device_capability(device)) != _PROVEN:
        untried = f"{torch.cuda.get_device_name(device)}, of compute capability {capability[0]}.{capability[1]}"
    return KernelChoice(TritonKernels(fp8=fp8, prompts=prompts), True, why, untried)
