"""`headgate bench gpu`: what it does, in order of worth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from headgate.bench.ceilings import Ceilings, gpu_ceilings
from headgate.bench.checkpoints import write_random, write_without_weights
from headgate.bench.engine.workloads import Workload, decode
from headgate.bench.gpu.adapters import adapters_checked
from headgate.bench.gpu.engine import engine_speed, workloads
from headgate.bench.gpu.flashinfer import prompt_attention
from headgate.bench.gpu.floor import floor_speed
from headgate.bench.gpu.http import http_speed
from headgate.bench.gpu.parity import parity
from headgate.bench.gpu.prompts import first_tokens
from headgate.bench.gpu.sleep import start_and_sleep
from headgate.bench.gpu.stages import Stage, StageFailed
from headgate.bench.random_tensors import LLAMA_3_8B, QWEN3_30B_A3B, RandomTensors
from headgate.engine.kernels.checks.fp8 import fp8_checks
from headgate.engine.kernels.checks.inputs import Draw, Sizes
from headgate.engine.kernels.checks.line import Line
from headgate.engine.kernels.checks.operations import kernel_checks
from headgate.engine.kernels.checks.rows import row_checks
from headgate.engine.kernels.choice import choose_kernels
from headgate.engine.settings import EngineSettings

_ENGINE = EngineSettings(
    device="cuda", kernels="triton", decode_ahead=True, prefix_cache=False, max_running=256, max_step_tokens=8192,
    kv_bytes=32 << 30,
)  # fmt: skip
"""Memory for nearly all of 256 sequences of Qwen3-0.6B at once, and few enough for a GPU of 48 GB."""

_CROWD = Workload("128 after 1024", ((1024, 64),) * 128)


def stages(scratch: Path) -> Iterator[Stage]:
    """What is most worth knowing first. All of them use the same folder `scratch`."""
    device = torch.device("cuda")

    @cache
    def ceilings() -> Ceilings:
        return gpu_ceilings(device, median_seconds)

    def engine(shape: str) -> Iterator[Line]:
        folder = write_random(shape, scratch)
        return engine_speed(folder, _ENGINE, ceilings(), workloads(), profiled=(decode(1),))

    def start() -> Iterator[Line]:
        settings = replace(_ENGINE, max_running=8, kv_bytes=8 << 30)
        return start_and_sleep(write_random("qwen3-0.6b", scratch), settings, lambda: torch.cuda.mem_get_info()[0])

    def adapters() -> Iterator[Line]:
        settings = replace(_ENGINE, max_running=32, kv_bytes=8 << 30)
        return adapters_checked(write_random("qwen3-0.6b", scratch), settings, scratch, 32, 128)

    def prompts() -> Iterator[Line]:
        settings = replace(_ENGINE, max_running=8, kv_bytes=8 << 30)
        return first_tokens(write_random("qwen3-0.6b", scratch), settings)

    def mixed_prompts() -> Iterator[Line]:
        settings = replace(_ENGINE, max_running=8, kv_bytes=8 << 30)
        folder = write_without_weights("qwen3-30b-a3b", QWEN3_30B_A3B, scratch)
        return first_tokens(folder, settings, partial(RandomTensors, device=device, fp8=True))

    def http() -> Iterator[Line]:
        settings = replace(_ENGINE, max_running=512, kv_bytes=60 << 30)
        free = torch.cuda.mem_get_info()[0]
        return http_speed(write_random("qwen3-0.6b", scratch), settings, scratch, free=free)

    def floor() -> Iterator[Line]:
        # Last a quarter of the script: transformers is the slower one.
        *_, script = workloads(sequences=64)
        work = *(decode(batch) for batch in (1, 32, 128)), script
        return floor_speed(write_random("qwen3-0.6b", scratch), "cuda", work)

    def speed(shape: str) -> Stage:
        return Stage(f"speed of the engine, {shape}", 30, partial(engine, shape))

    def large(name: str, config: Mapping[str, Any], work: Sequence[Workload], *, fp8: bool) -> Iterator[Line]:
        settings = replace(_ENGINE, max_running=128, kv_bytes=16 << 30)
        folder = write_without_weights(name, config, scratch)
        tensors = partial(RandomTensors, device=device, fp8=fp8)
        yield from engine_speed(folder, settings, ceilings(), work, tensors, profiled=(decode(1),))

    def heavy(name: str, config: Mapping[str, Any], work: Sequence[Workload], *, fp8: bool) -> Stage:
        kind = "fp8" if fp8 else "bfloat16"
        return Stage(f"speed of the engine, {name}, {kind}", 25, partial(large, name, config, work, fp8=fp8))

    yield Stage("ceilings", 20, lambda: _ceilings(ceilings()))
    yield Stage("kernels, bfloat16", 50, partial(_checked, device, torch.bfloat16))
    yield Stage("steps on rows", 30, partial(_rows_checked, device))
    yield Stage("parity", 60, partial(parity, "triton", "cuda"))
    yield speed("qwen3-0.6b")
    yield Stage("start and sleep", 30, start)
    yield Stage("first tokens, qwen3-0.6b", 30, prompts)
    yield Stage("adapters", 30, adapters)
    yield Stage("fp8 layers", 30, partial(_fp8_checked, device))
    yield heavy("llama-3-8b", LLAMA_3_8B, (decode(32), decode(1)), fp8=True)
    yield heavy("qwen3-30b-a3b", QWEN3_30B_A3B, (_CROWD, decode(1)), fp8=True)
    yield Stage("first tokens, qwen3-30b-a3b, fp8", 50, mixed_prompts)
    yield Stage("through HTTP", 75, http)
    yield heavy("llama-3-8b", LLAMA_3_8B, (Workload("prompt of 8192", ((8192, 1),)), decode(1)), fp8=False)
    yield Stage("FlashInfer", 40, partial(_flashinfer, device))
    yield Stage("floor: continuous batching of transformers, qwen3-0.6b", 20, floor)
    yield speed("qwen3-moe")
    yield Stage("kernels, float32", 40, partial(_checked, device, torch.float32))


def _ceilings(found: Ceilings) -> Iterator[Line]:
    figures = {"bytes_s": found.read_bytes_s, "bfloat16_flops": found.peak("bfloat16")}
    yield Line("copy", f"{found.read_bytes_s / 1e12:.2f} TB/s", figures)
    yield Line("bfloat16 product", f"{found.peak('bfloat16') / 1e12:.0f} TFLOP/s")


def _flashinfer(device: torch.device) -> Iterator[Line]:
    chosen = choose_kernels("auto", device)
    if "FlashInfer" not in chosen.why:
        raise StageFailed("not run: the package flashinfer is not installed here")
    models = {"Llama-3-8B": (32, 8, 32), "Qwen3-0.6B": (16, 8, 28), "Qwen3-30B-A3B": (32, 4, 48)}
    steps = {
        "prompt of 2048": [(0, 2048)],
        "prompt of 8192": [(0, 8192)],
        "4 prompts of 2048 beside 64 decoded after 700": [*[(0, 2048)] * 4, *[(700, 701)] * 64],
    }
    ours = choose_kernels("triton", device).kernels
    with torch.inference_mode():
        draw = Draw(device, torch.bfloat16)
        yield from prompt_attention(draw, chosen.kernels, ours, models, steps, median_seconds)


def _rows_checked(device: torch.device) -> Iterator[Line]:
    kernels = choose_kernels("triton", device).kernels.rows()
    assert kernels is not None
    with torch.inference_mode():
        for dtype in (torch.bfloat16, torch.float32):
            for line in row_checks(kernels, Draw(device, dtype)):
                yield replace(line, name=f"{line.name}, {str(dtype).removeprefix('torch.')}")


def _checked(device: torch.device, dtype: torch.dtype) -> Iterator[Line]:
    with torch.inference_mode():
        yield from kernel_checks(choose_kernels("triton", device).kernels, device, dtype, Sizes())


def _fp8_checked(device: torch.device) -> Iterator[Line]:
    with torch.inference_mode():
        yield from fp8_checks(choose_kernels("triton", device).kernels, Draw(device, torch.bfloat16), Sizes())


def median_seconds(call: Callable[[], object]) -> float:
    """Of a call on the GPU, by its events, with the second-level cache emptied before each."""
    from triton.testing import do_bench

    return float(do_bench(call, return_mode="median")) / 1e3
