"""Which kernels a device gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from headgate.engine.kernels.cpu.kernels import CpuKernels, native_status
from headgate.engine.kernels.interface import Kernels
from headgate.engine.kernels.reference import ReferenceKernels

KernelSet = Literal["auto", "reference"]


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """Kernels, whether they are our own compiled ones, and why."""

    kernels: Kernels
    native: bool
    why: str


def choose_kernels(wanted: KernelSet, device: torch.device) -> KernelChoice:
    """The fastest kernels that work on `device` here, or plain torch if that is wanted."""
    if wanted == "reference":
        return KernelChoice(ReferenceKernels(), False, "plain torch, by the setting kernels: reference")
    if device.type != "cpu":
        return KernelChoice(ReferenceKernels(), False, f"plain torch on {device.type}")
    status = native_status()
    if not status.usable:
        return KernelChoice(ReferenceKernels(), False, f"plain torch; {status.why}")
    return KernelChoice(CpuKernels(), True, status.why)
