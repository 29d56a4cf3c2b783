"""The device that an engine computes on."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch


def open_device(name: str) -> torch.device:
    """The device of a setting.

    Raises:
        ValueError: naming what would be accepted.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"device must be auto, cpu, cuda or cuda:N, got {name!r}")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device is {name!r}, but torch sees no CUDA device here; use auto or cpu")
    if device.type == "cuda" and (device.index or 0) >= (seen := torch.cuda.device_count()):
        raise ValueError(f"device is {name!r}, but torch sees {seen} CUDA devices here; use cuda:0 to cuda:{seen - 1}")
    return device


def computing_on(device: torch.device) -> AbstractContextManager[object]:
    """What a thread launches meanwhile goes to the device.

    Triton, graphs and streams take the thread's own device, which is the first GPU, wherever their tensors are.
    """
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
