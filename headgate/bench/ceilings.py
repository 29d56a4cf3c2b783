"""What this machine can do at most, measured on the spot: every figure is printed as a share of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

# Larger than any last-level cache, so that reads come from memory.
_READ_BYTES = 1 << 29
_GEMM = 2048
_ENOUGH_S = 2.0
"""After so many seconds nothing is timed again: products without instructions of their own take seconds each."""


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


def _measure(device: torch.device, rounds: int) -> Ceilings:
    source = torch.ones(_READ_BYTES // 4, dtype=torch.float32, device=device)
    read_s = _best(source.sum, device, rounds)
    flops = {}
    for dtype in (torch.float32, torch.bfloat16):
        a = torch.randn(_GEMM, _GEMM, device=device).to(dtype)
        b = torch.randn(_GEMM, _GEMM, device=device).to(dtype)
        flops[str(dtype).removeprefix("torch.")] = 2 * _GEMM**3 / _best(partial(torch.matmul, a, b), device, rounds)
    a = torch.randint(-127, 128, (_GEMM, _GEMM), device=device, dtype=torch.int8)
    b = torch.randint(-127, 128, (_GEMM, _GEMM), device=device, dtype=torch.int8)
    flops["int8"] = 2 * _GEMM**3 / min(_best(product, device, rounds) for product in _int8_products(a, b))
    return Ceilings(device_name(device), torch.get_num_threads(), _READ_BYTES / read_s, flops)


def _int8_products(a: Tensor, b: Tensor) -> Iterator[Callable[[], object]]:
    yield partial(torch._int_mm, a, b)
    ops = torch.ops.onednn
    if a.device.type == "cpu" and hasattr(ops, "qlinear_pointwise"):
        packed, ones = ops.qlinear_prepack(b, None), torch.ones(_GEMM)
        zeros = torch.zeros(_GEMM, dtype=torch.int32)
        x = a.view(torch.uint8)
        yield partial(
            ops.qlinear_pointwise, x, 1.0, 128, packed, ones, zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )


def _best(work: Callable[[], object], device: torch.device, rounds: int) -> float:
    best, begun = float("inf"), time.perf_counter()
    for _ in range(rounds + 1):  # the first warms up and is as good as any other if it wins
        if time.perf_counter() - begun > _ENOUGH_S:
            break
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
