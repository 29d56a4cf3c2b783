"""What the tests of the compiled kernels share: how near a result must be, and sequences in a paged cache."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from headgate.engine.kernels.cpu.kernels import CpuKernels, native_status
from headgate.engine.kernels.interface import AttentionBatch, KVLayer
from headgate.engine.kernels.reference import ReferenceKernels

STATUS = native_status()
needs_kernels = pytest.mark.skipif(not STATUS.usable, reason=f"native kernels: {STATUS.why}")

CPU = torch.device("cpu")
NAN = float("nan")
REFERENCE = ReferenceKernels()
dtypes = st.sampled_from([torch.float32, torch.bfloat16])


def check(got: Tensor, expected: Tensor) -> None:
    """A sum in float32, rounded once; float64 knows what it should be."""
    rtol, atol = (2**-8, 1e-5) if got.dtype == torch.bfloat16 else (1e-5, 2e-6)
    torch.testing.assert_close(got.double(), expected.double(), rtol=rtol, atol=atol, equal_nan=True)


def randn(generator: torch.Generator, dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator).to(dtype)


@dataclass
class Step:
    """Sequences in a cache whose blocks lie in random order and whose other slots hold NaN."""

    batch: AttentionBatch
    q: Tensor
    layer: KVLayer
    seen: Tensor
    """[slots]: whether any query of the step sees the slot."""
    sinks: Tensor | None = None

    def slot(self, sequence: int, position: int) -> int:
        size = self.batch.block_size
        return self.batch.tables[sequence][position // size] * size + position % size


def make_step(
    spans: list[tuple[int, int]],
    dtype: torch.dtype,
    *,
    kv_heads: int,
    group: int,
    dim: int,
    block_size: int,
    window: int | None,
    sinks: bool = False,
    seed: int = 0,
) -> Step:
    generator = torch.Generator().manual_seed(seed)
    needed = [-(-stop // block_size) for _, stop in spans]
    order = torch.randperm(sum(needed) + 2, generator=generator).tolist()
    # One block more than the context needs, as after a cancelled draft.
    tables = [[order.pop() for _ in range(count)] + [0] for count in needed]
    slots = (sum(needed) + 2) * block_size
    keys, values = (randn(generator, dtype, slots, kv_heads, dim) for _ in range(2))
    batch = AttentionBatch(
        counts=[stop - start for start, stop in spans],
        contexts=[stop for _, stop in spans],
        tables=tables,
        slots=torch.zeros(sum(stop - start for start, stop in spans), dtype=torch.int64),
        block_size=block_size,
    )
    q = randn(generator, dtype, sum(batch.counts), kv_heads * group, dim)
    step = Step(batch, q, KVLayer(keys, values), torch.zeros(slots, dtype=torch.bool))
    for i, (start, stop) in enumerate(spans):
        first = 0 if window is None else max(0, start - window + 1)
        step.seen[[step.slot(i, p) for p in range(first, stop)]] = True
    keys[~step.seen] = NAN
    values[~step.seen] = NAN
    if sinks:
        step.sinks = torch.randn(kv_heads * group, generator=generator) * 4
    return step


def seeing_each_other(step: Step, whole: int) -> Step:
    """The same step, in whose sequences `whole` rows, one behind the other, see each other."""
    limits = [
        min(context, context - count + (row // whole + 1) * whole)
        for count, context in zip(step.batch.counts, step.batch.contexts, strict=True)
        for row in range(count)
    ]
    return replace(step, batch=replace(step.batch, limits=torch.tensor(limits, dtype=torch.int32)))


def attend(step: Step, window: int | None) -> Tensor:
    kernels = CpuKernels()
    return kernels.paged_attention(step.q, step.layer, kernels.plan(step.batch, CPU), window, step.sinks)


def expected_attention(step: Step, window: int | None) -> Tensor:
    hidden = ~step.seen[:, None, None]
    layer = KVLayer(*(t.double().masked_fill(hidden, 0.0) for t in (step.layer.keys, step.layer.values)))
    return REFERENCE.paged_attention(step.q.double(), layer, REFERENCE.plan(step.batch, CPU), window, step.sinks)


def check_attention(step: Step, window: int | None) -> None:
    """bfloat16 weights are off by half a unit each, and so is their sum: 2^-8 of the values' weighted sizes.

    Values that were int8 are rounded to bfloat16 too.
    """
    got, layer, parts = attend(step, window), step.layer, 1.0
    if layer.key_scales is not None and layer.value_scales is not None:
        layer = KVLayer(
            layer.keys.double() * layer.key_scales.double().unsqueeze(-1),
            layer.values.double() * layer.value_scales.double().unsqueeze(-1),
        )
        parts = 1.5
    expected = expected_attention(replace(step, layer=layer), window)
    if got.dtype == torch.float32:
        return check(got, expected)
    sizes = replace(step, layer=KVLayer(layer.keys, layer.values.abs()))
    room = parts * 2**-8 * expected_attention(sizes, window) + 2**-8 * expected.abs() + 1e-5
    assert bool(((got.double() - expected).abs() <= room).all())
    return None
