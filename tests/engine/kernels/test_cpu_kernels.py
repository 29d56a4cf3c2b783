"""Compiled operators on rows against the reference in float64; and all compiled ones as other processors run them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import CPU, NAN, REFERENCE, STATUS, attend, check, dtypes, make_step, needs_kernels, randn

from headgate.engine.kernels.choice import choose_kernels
from headgate.engine.kernels.cpu.kernels import CpuKernels
from headgate.engine.kernels.interface import KVLayer

pytestmark = needs_kernels

widths = st.integers(1, 300) | st.sampled_from([16, 64, 256, 1024])


@settings(max_examples=60, deadline=None)
@given(rows=st.integers(0, 40), width=widths, dtype=dtypes, seed=st.integers(0, 99))
def test_norms_and_activation(rows: int, width: int, dtype: torch.dtype, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    kernels = CpuKernels()
    x, residual = (randn(generator, dtype, rows, width) for _ in range(2))
    weight = randn(generator, dtype, width)
    check(kernels.rms_norm(x, weight, 1e-6), REFERENCE.rms_norm(x.double(), weight.double(), 1e-6))
    total = x + residual
    normed, kept = kernels.add_rms_norm(x.clone(), residual.clone(), weight, 1e-6)
    assert torch.equal(kept, total)
    check(normed, REFERENCE.rms_norm(total.double(), weight.double(), 1e-6))
    gate_up = randn(generator, dtype, rows, 2 * width) * 30
    check(kernels.swiglu(gate_up), REFERENCE.swiglu(gate_up.double()))
    check(kernels.geglu(gate_up), REFERENCE.geglu(gate_up.double()))


@settings(max_examples=60, deadline=None)
@given(
    tokens=st.integers(0, 40),
    heads=st.integers(1, 5),
    half=st.integers(1, 128),
    dtype=dtypes,
    block=st.sampled_from([1, 4, 16]),
    seed=st.integers(0, 99),
)
def test_views_of_a_fused_projection(
    tokens: int, heads: int, half: int, dtype: torch.dtype, block: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    kernels = CpuKernels()
    dim = 2 * half
    fused = randn(generator, dtype, tokens, 3 * heads * dim)
    q, k, v = (t.reshape(-1, heads, dim) for t in fused.split(heads * dim, dim=-1))
    weight = randn(generator, dtype, dim)
    check(kernels.rms_norm(q, weight, 1e-5), REFERENCE.rms_norm(q.double(), weight.double(), 1e-5))
    angles = torch.rand(tokens, half, generator=generator) * 7
    # The reference rotates in float32: the angles are the same, what is left is one rounding.
    check(kernels.rope(q, angles.cos(), angles.sin()), REFERENCE.rope(q.float(), angles.cos(), angles.sin()))
    slots = torch.randperm((tokens + 3) * block, generator=generator)[:tokens]
    layers = [KVLayer(*torch.zeros(2, (tokens + 3) * block, heads, dim, dtype=dtype)) for _ in range(2)]
    kernels.write_kv(layers[0], k, v, slots)
    REFERENCE.write_kv(layers[1], k, v, slots)
    assert torch.equal(layers[0].keys, layers[1].keys)
    assert torch.equal(layers[0].values, layers[1].values)


@pytest.mark.parametrize("bad", [NAN, float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_not_finite_stays_visible(bad: float, dtype: torch.dtype) -> None:
    kernels = CpuKernels()
    x = torch.ones(3, 40, dtype=dtype)
    x[1, 7] = bad
    ones = torch.ones(40, dtype=dtype)
    for got, expected in (
        (kernels.rms_norm(x, ones, 1e-6), REFERENCE.rms_norm(x, ones, 1e-6)),
        (kernels.add_rms_norm(x.clone(), x.clone(), ones, 1e-6)[1], x + x),
        (kernels.swiglu(x), REFERENCE.swiglu(x)),
        (kernels.geglu(x), REFERENCE.geglu(x)),
        (kernels.swiglu(x.roll(20, 1)), REFERENCE.swiglu(x.roll(20, 1))),
        (kernels.rope(x[:, None], *torch.ones(2, 3, 20)), REFERENCE.rope(x[:, None], *torch.ones(2, 3, 20))),
    ):
        torch.testing.assert_close(got, expected, equal_nan=True, rtol=1e-2, atol=1e-2)


def test_rows_are_shared_between_threads() -> None:
    generator = torch.Generator().manual_seed(3)
    kernels = CpuKernels()
    x, weight = torch.randn(300, 512, generator=generator), torch.randn(512, generator=generator)
    step = make_step([(400, 460)] * 6, torch.float32, kv_heads=2, group=2, dim=32, block_size=16, window=None)
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results.append((kernels.rms_norm(x, weight, 1e-6), kernels.swiglu(x), attend(step, None)))
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_choice_of_kernels() -> None:
    assert choose_kernels("auto", CPU).native
    assert not choose_kernels("reference", CPU).native
    assert not choose_kernels("auto", torch.device("cuda")).native


@pytest.mark.skipif("HEADGATE_VECTORS" not in os.environ, reason="this is the run with all instructions")
def test_fewer_instructions_are_used() -> None:
    assert "AMX" not in STATUS.why
    assert os.environ["HEADGATE_VECTORS"] == "avx512" or "AVX-512" not in STATUS.why
    assert os.environ["HEADGATE_VECTORS"] != "baseline" or "128-bit" in STATUS.why


@pytest.mark.skipif("HEADGATE_VECTORS" in os.environ, reason="this is the run with fewer instructions")
@pytest.mark.parametrize("vectors", ["avx512", "avx2", "baseline"])
def test_other_processors_compute_the_same(vectors: str) -> None:
    kinds = ("kernels", "attention", "linear", "int4", "mxfp4", "delta")
    files = [str(Path(__file__).with_name(f"test_cpu_{kind}.py")) for kind in kinds]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-p", "no:randomly", *files],
        env={**os.environ, "HEADGATE_VECTORS": vectors, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
