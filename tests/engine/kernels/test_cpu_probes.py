"""What a model makes of prompts: compiled and by plain torch, against float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import NAN, REFERENCE, STATUS, dtypes, needs_kernels, randn

from headgate.engine.kernels.cpu.kernels import CpuKernels
from headgate.engine.kernels.interface import Kernels, KVLayer


def every_kind() -> list[Kernels]:
    return [REFERENCE, CpuKernels()] if STATUS.usable else [REFERENCE]


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(0, 40),
    width=st.integers(5, 300) | st.sampled_from([4096, 5003]),
    count=st.integers(1, 5),
    dtype=dtypes,
    spread=st.sampled_from([0.1, 3.0, 40.0]),
    seed=st.integers(0, 99),
)
def test_the_likeliest_chances_and_the_entropy(
    rows: int, width: int, count: int, dtype: torch.dtype, spread: float, seed: int
) -> None:
    logits = randn(torch.Generator().manual_seed(seed), dtype, rows, width) * spread
    exact = logits.double().numpy()
    shifted = exact - exact.max(-1, keepdims=True) if rows else exact
    logs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    expected = np.hstack([-np.sort(-logs, -1)[:, :count], -(np.exp(logs) * logs).sum(-1, keepdims=True)])
    for kernels in every_kind():
        told = kernels.forecast(logits, count)
        assert told.dtype == torch.float32
        assert told.shape == (rows, count + 1)
        np.testing.assert_allclose(told.numpy(), expected, atol=2e-4, rtol=1e-5)


@pytest.mark.parametrize("broken", [NAN, math.inf])
def test_logits_without_a_distribution_forecast_nothing(broken: float) -> None:
    logits = torch.zeros(3, 200)
    logits[1, 77] = broken
    for kernels in every_kind():
        finite = kernels.forecast(logits, 3).isfinite().all(-1)
        assert finite.tolist() == [True, False, True]


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.integers(1, 70), min_size=1, max_size=20),
    size=st.sampled_from([1, 4, 16]),
    heads=st.integers(1, 3),
    dim=st.sampled_from([2, 8, 64]),
    kept=dtypes | st.just(torch.int8),
    seed=st.integers(0, 99),
)
def test_the_outline_is_the_last_value_and_the_mean(
    counts: list[int], size: int, heads: int, dim: int, kept: torch.dtype, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    needed = [-(-count // size) + 1 for count in counts]  # the last block is not reached
    blocks = torch.randperm(sum(needed), generator=generator).tolist()
    tables = [[blocks.pop() for _ in range(number)] for number in needed]
    shape = (sum(needed) * size, heads, dim)
    if kept == torch.int8:
        values = torch.randint(-127, 128, shape, dtype=kept, generator=generator)
        scales = torch.rand(shape[:2], generator=generator)
        layer, exact = KVLayer(values, values, scales, scales), values.double() * scales.double().unsqueeze(-1)
    else:
        values = randn(generator, kept, *shape)
        layer, exact = KVLayer(values, values), values.double()
    expected = []
    for count, table in zip(counts, tables, strict=True):
        own = torch.stack([exact[table[p // size] * size + p % size] for p in range(count)]).flatten(1)
        expected.append(torch.cat([own[-1], own.mean(0)]))
    for kernels in every_kind():
        told = kernels.outline(layer, tables, counts, size)
        assert told.dtype == torch.float32
        torch.testing.assert_close(told.double(), torch.stack(expected), atol=1e-4, rtol=1e-5)


@needs_kernels
@pytest.mark.parametrize(("tables", "count"), [([[8]], 3), ([[-1]], 3), ([[0]], 5), ([[0]], 0)])
def test_places_outside_the_cache_are_refused(tables: list[list[int]], count: int) -> None:
    values = torch.zeros(8 * 4, 1, 2)
    with pytest.raises(IndexError):
        CpuKernels().outline(KVLayer(values, values), tables, [count], 4)
