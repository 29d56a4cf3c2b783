"""What this machine can do at most, measured on the spot: every figure is printed as a share of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import torch

# Larger than any last-level cache, so that reads come from memory.
_READ_BYTES = 1 << 29
_GEMM = 2048
_SMALL = 256
_LONGEST_S = 2.0
"""A product that would take longer is measured at `_SMALL`: of a type without instructions one takes a minute."""


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Bytes per second read from memory, and operations per second of a 2048-cubed matrix product by dtype.

    The int8 product is the best of torch's: int8 times int8. Without VNNI or AMX the fastest of them is not exact, and
    still says what the processor can do.
    """

    device: str
    threads: int
    read_bytes_s: float
    flops: dict[str, float]

    def peak(self, dtype: str) -> float:
        """Operations per second in `dtype`; of the fastest one where that was not measured."""
        return self.flops.get(dtype, max(self.flops.values()))


def measure(device: torch.device, rounds: int = 5) -> Ceilings:
    """Best of `rounds`, since whatever else runs on the machine can only lower a figure.

    Measured in a thread of its own, which takes its OpenMP workers along when it ends; see Engine.load.
    """
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_measure, device, rounds).result()


def gpu_ceilings(
    device: torch.device, time: Callable[[Callable[[], object]], float], copied: int = 1 << 32, edge: int = 8192
) -> Ceilings:
    """Bytes per second of a copy of `copied` bytes, read and written, and a bfloat16 product of `edge` cubed.

    `time` gives the median seconds of a call, with cold caches.
    """
    source = torch.ones(copied // 2, dtype=torch.bfloat16, device=device)
    target = torch.empty_like(source)
    rate = 2 * copied / time(partial(target.copy_, source))
    a, b = (torch.randn(edge, edge, device=device).bfloat16() for _ in range(2))
    return Ceilings(device_name(device), 0, rate, {"bfloat16": 2 * edge**3 / time(partial(torch.matmul, a, b))})


def _measure(device: torch.device, rounds: int) -> Ceilings:
    source = torch.ones(_READ_BYTES // 4, dtype=torch.float32, device=device)
    read_s = _best(source.sum, device, rounds)
    flops = {
        str(dtype).removeprefix("torch."): _rate(partial(_float_product, dtype, device), device, rounds)
        for dtype in (torch.float32, torch.bfloat16)
    }
    flops["int8"] = _rate(partial(_int8_product, device), device, rounds)
    if device.type == "cpu" and hasattr(torch.ops.onednn, "qlinear_pointwise"):
        flops["int8"] = max(flops["int8"], _rate(_onednn_product, device, rounds))
    return Ceilings(device_name(device), torch.get_num_threads(), _READ_BYTES / read_s, flops)


def _rate(made: Callable[[int], Callable[[], object]], device: torch.device, rounds: int) -> float:
    """Operations per second of what `made` gives for a product of so many rows, columns and terms."""
    small = 2 * _SMALL**3 / _best(made(_SMALL), device, 1)
    if 2 * _GEMM**3 / small > _LONGEST_S:
        return small
    return 2 * _GEMM**3 / _best(made(_GEMM), device, rounds)


def _float_product(dtype: torch.dtype, device: torch.device, size: int) -> Callable[[], object]:
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    return partial(torch.matmul, a, b)


def _int8_product(device: torch.device, size: int) -> Callable[[], object]:
    a, b = (torch.randint(-127, 128, (size, size), device=device, dtype=torch.int8) for _ in range(2))
    return partial(torch._int_mm, a, b)


def _onednn_product(size: int) -> Callable[[], object]:
    a, b = (torch.randint(-127, 128, (size, size), dtype=torch.int8) for _ in range(2))
    ops = torch.ops.onednn
    packed, ones, zeros = ops.qlinear_prepack(b, None), torch.ones(size), torch.zeros(size, dtype=torch.int32)
    scales: tuple[object, ...] = (a.view(torch.uint8), 1.0, 128, packed, ones, zeros, None)
    return partial(ops.qlinear_pointwise, *scales, 1.0, 0, torch.float32, "none", [], "")


def _best(work: Callable[[], object], device: torch.device, rounds: int) -> float:
    best = float("inf")
    for _ in range(rounds + 1):  # the first warms up and is as good as any other if it wins
        started = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - started)
    return best


def device_name(device: torch.device) -> str:
    """What the device calls itself."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    except OSError:
        return "CPU"
    return f"{names[0]}, {len(names)} cores" if names else "CPU"
