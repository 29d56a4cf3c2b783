"""Compiled products with int8 and bfloat16 weights against float64 and against exact sums."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import NAN, STATUS, check, dtypes, needs_kernels, randn

from headgate.engine.kernels.cpu.kernels import CpuKernels
from headgate.engine.kernels.cpu.packed import NativeBf16Linear
from headgate.engine.quant.linear import quantize_rows

pytestmark = needs_kernels

int8 = pytest.mark.skipif(not (STATUS.usable and torch.ops.headgate.int8_usable()), reason="this processor lacks AVX2")


@int8
@settings(max_examples=80)
@given(
    rows=st.integers(1, 67) | st.just(0),
    inputs=st.integers(1, 200) | st.sampled_from([64, 1024]),
    outputs=st.integers(1, 200) | st.sampled_from([64, 128]),
    dtype=dtypes,
    bias=st.booleans(),
    padded=st.booleans(),
    seed=st.integers(0, 99),
)
def test_int8_linear(
    rows: int, inputs: int, outputs: int, dtype: torch.dtype, bias: bool, padded: bool, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight, b = randn(generator, dtype, outputs, inputs), randn(generator, dtype, outputs) if bias else None
    x = randn(generator, dtype, rows, inputs)
    if padded:  # rows that do not follow each other, with garbage between them
        wide = torch.full((rows, inputs + 5), NAN, dtype=dtype)
        wide[:, :inputs] = x
        x = wide[:, :inputs]
    (wq, ws), (xq, xs) = quantize_rows(weight), quantize_rows(x)
    expected = (xq.double() @ wq.double().T) * xs.double() * ws.double().T
    if b is not None:
        expected += b.double()
    got = CpuKernels().linear(weight, b, "int8")(x)
    assert got.dtype == dtype
    check(got, expected)


@int8
def test_int8_linear_at_its_extremes() -> None:
    inputs = 4096
    weight = torch.ones(3, inputs)
    weight[1] = -1
    weight[2, ::2] = -1
    x = torch.stack((torch.ones(inputs), -torch.ones(inputs), torch.zeros(inputs)))
    # Every product is 127 * 127 or its negative: the largest sums there are.
    got = CpuKernels().linear(weight, None, "int8")(x)
    torch.testing.assert_close(got, x @ weight.T, rtol=1e-5, atol=0)


@int8
@pytest.mark.parametrize("exponent", [0, 60, -130])
def test_every_bfloat16_number_is_rounded_as_by_division(exponent: int) -> None:
    """Beside every largest one of its row, down to a millionth of it; many lie exactly between two whole numbers."""
    mantissas = 1 + torch.arange(128) / 128
    smaller = mantissas[:, None] * torch.exp2(torch.arange(-20.0, 0))
    x = torch.cat((mantissas[:, None], smaller.flatten().expand(128, -1)), 1) * 2.0**exponent
    rounded, scales = quantize_rows(x)
    # Of one weight each, an output is an input as it was rounded.
    got = CpuKernels().linear(torch.eye(x.shape[1]), None, "int8")(x)
    torch.testing.assert_close(got / scales, rounded.float(), rtol=1e-5, atol=0)


@int8
@pytest.mark.parametrize("bad", [NAN, float("inf"), -float("inf")])
@pytest.mark.parametrize("place", [0, 17, 99])
def test_int8_linear_gives_no_number_for_a_row_that_is_not_finite(bad: float, place: int) -> None:
    x = torch.ones(3, 100)
    x[1, place] = bad
    got = CpuKernels().linear(torch.ones(70, 100), None, "int8")(x)
    assert got[[0, 2]].eq(100).logical_or(got[[0, 2]].sub(100).abs() < 1e-3).all()
    assert not got[1].isfinite().any()


@int8
def test_int8_linear_refuses_what_does_not_fit() -> None:
    layer = CpuKernels().linear(torch.ones(70, 100), None, "int8")
    with pytest.raises(RuntimeError, match="x has 140 inputs and 70 outputs are wanted; the weights are for 128"):
        layer(torch.ones(2, 140))
    with pytest.raises(RuntimeError, match="float32 or bfloat16"):
        layer(torch.ones(2, 100, dtype=torch.float64))
    with pytest.raises(RuntimeError, match="weight must be float32 or bfloat16"):
        torch.ops.headgate.int8_pack(torch.ones(2, 2, dtype=torch.int8))


@settings(max_examples=60)
@given(
    rows=st.integers(0, 67),
    inputs=st.integers(1, 200) | st.sampled_from([64, 1024]),
    outputs=st.integers(1, 200) | st.sampled_from([64, 128]),
    bias=st.booleans(),
    seed=st.integers(0, 99),
)
def test_bf16_linear(rows: int, inputs: int, outputs: int, bias: bool, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = randn(generator, torch.bfloat16, outputs, inputs)
    b = randn(generator, torch.bfloat16, outputs) if bias else None
    x = randn(generator, torch.bfloat16, rows, inputs)
    expected = x.double() @ weight.double().T + (0 if b is None else b.double())
    # Sums are in float32: their error goes with the sum of the products' magnitudes, not with the result.
    size = x.double().abs() @ weight.double().abs().T
    layer = NativeBf16Linear(weight, b)
    got = layer(x)
    assert ((got.double() - expected).abs() <= 2**-8 * expected.abs() + 2**-18 * size).all()
    for row in range(0, rows, 9):  # and a row's result is its own
        assert torch.equal(layer(x[row : row + 1]), got[row : row + 1])


def test_bf16_linear_refuses_what_does_not_fit() -> None:
    layer = NativeBf16Linear(torch.ones(70, 100, dtype=torch.bfloat16))
    with pytest.raises(RuntimeError, match="x has 140 inputs and 70 outputs are wanted; the weights are for 128"):
        layer(torch.ones(2, 140, dtype=torch.bfloat16))
    with pytest.raises(RuntimeError, match="must be bfloat16"):
        layer(torch.ones(2, 100))


@pytest.mark.parametrize("bad", [NAN, float("inf")])
def test_bf16_linear_keeps_what_is_not_finite_in_its_row(bad: float) -> None:
    x = torch.ones(20, 100, dtype=torch.bfloat16)
    x[3, 99] = bad
    got = NativeBf16Linear(torch.ones(70, 100, dtype=torch.bfloat16))(x)
    assert not got[3].isfinite().any()
    assert got[:3].eq(100).all()
    assert got[4:].eq(100).all()
