"""Triton's attention over the paged cache against the reference in float64, in its interpreter."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from kernel_cases import CPU, NAN, Step, expected_attention, make_step, seeing_each_other
from triton_cases import in_the_interpreter, right_fp8, triton_kernels

from headgate.engine.kernels.interface import KVLayer

pytestmark = in_the_interpreter

DECODING = [(0, 1), (40, 41), (127, 128), (300, 301), (599, 600)]
MIXED = [(16, 17), (0, 37), (400, 402), (5, 150), (128, 140)]


def attend(step: Step, window: int | None) -> torch.Tensor:
    kernels = triton_kernels()
    return kernels.paged_attention(step.q, step.layer, kernels.plan(step.batch, CPU), window, step.sinks)


def near(got: torch.Tensor, expected: torch.Tensor) -> None:
    """float16 rounds the weights and the result, once each."""
    rtol, atol = (2**-9, 2**-9) if got.dtype == torch.float16 else (1e-4, 1e-5)
    torch.testing.assert_close(got.double(), expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize(
    ("spans", "kv_heads", "group", "dim", "block_size", "window", "dtype"),
    [
        (DECODING, 2, 2, 32, 16, None, torch.float16),
        (DECODING, 1, 3, 24, 4, 50, torch.float32),
        (MIXED, 2, 4, 16, 16, None, torch.float32),
        (MIXED, 1, 1, 40, 8, 33, torch.float16),
        (MIXED, 1, 20, 16, 1, None, torch.float32),
        ([(0, 130)], 1, 2, 256, 16, 129, torch.float32),
    ],
)
def test_queries_see_their_sequence_and_nothing_else(
    spans: list[tuple[int, int]],
    kv_heads: int,
    group: int,
    dim: int,
    block_size: int,
    window: int | None,
    dtype: torch.dtype,
) -> None:
    step = make_step(spans, dtype, kv_heads=kv_heads, group=group, dim=dim, block_size=block_size, window=window)
    near(attend(step, window), expected_attention(step, window))


@pytest.mark.parametrize("sinks", [False, True])
def test_rows_may_see_each_other(sinks: bool) -> None:
    step = make_step(MIXED, torch.float32, kv_heads=2, group=2, dim=16, block_size=16, window=33, sinks=sinks)
    alone = attend(step, 33)
    assert torch.equal(attend(seeing_each_other(step, 1), 33), alone)
    step = seeing_each_other(step, 20)
    for kept in (step.layer.keys, step.layer.values):
        kept[~step.seen] = 0.0  # plain torch, which attends to those who do, lets a NaN of unseen values in
    together = attend(step, 33)
    near(together, expected_attention(step, 33))
    counts = step.batch.counts
    for number, (one, other) in enumerate(zip(together.split(counts), alone.split(counts), strict=True)):
        assert torch.equal(one, other) == (counts[number] == 1), "whoever sees no later keys gets what he always gets"


@pytest.mark.parametrize(("spans", "group", "window"), [(DECODING, 2, None), (DECODING[:3], 3, 50), (MIXED[:3], 3, 33)])
def test_sinks_take_their_share(spans: list[tuple[int, int]], group: int, window: int | None) -> None:
    step = make_step(spans, torch.float32, kv_heads=2, group=group, dim=16, block_size=16, window=window, sinks=True)
    assert step.sinks is not None
    step.sinks[:2] = torch.tensor([300.0, -300.0])
    got = attend(step, window)
    near(got, expected_attention(step, window))
    assert not got[:, 0].any()


@pytest.mark.usefixtures(right_fp8.__name__)
@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn], ids=["int8", "fp8"])
@pytest.mark.parametrize("spans", [DECODING, MIXED])
def test_rounded_keys_and_values(spans: list[tuple[int, int]], dtype: torch.dtype) -> None:
    step = make_step(spans, torch.float32, kv_heads=2, group=2, dim=16, block_size=16, window=None)
    generator = torch.Generator().manual_seed(1)
    slots = step.seen.numel()
    keys, values = torch.randint(-127, 128, (2, slots, 2, 16), generator=generator).to(dtype)
    scales = torch.rand(2, slots, 2, generator=generator) / 50
    scales[:, ~step.seen] = NAN
    kept = KVLayer(keys, values, *scales)
    real = KVLayer(keys.double() * scales[0].double()[..., None], values.double() * scales[1].double()[..., None])
    near(attend(replace(step, layer=kept), None), expected_attention(replace(step, layer=real), None))


def test_neighbours_change_nothing() -> None:
    step = make_step(DECODING, torch.float32, kv_heads=2, group=2, dim=16, block_size=16, window=None)
    together = attend(step, None)
    for i in range(len(DECODING)):
        batch = replace(
            step.batch, counts=step.batch.counts[i : i + 1], contexts=step.batch.contexts[i : i + 1],
            tables=step.batch.tables[i : i + 1],
        )  # fmt: skip
        assert torch.equal(attend(replace(step, batch=batch, q=step.q[i : i + 1]), None), together[i : i + 1])


def test_what_is_not_finite_stays_visible() -> None:
    step = make_step(DECODING, torch.float32, kv_heads=1, group=2, dim=16, block_size=16, window=None)
    step.layer.keys[step.slot(4, 500)] = NAN
    got = attend(step, None)
    assert got[4].isnan().all()
    assert got[:4].isfinite().all()
