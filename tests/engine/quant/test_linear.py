"""int8 linear layers against float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.engine.quant.linear import DenseLinear, Int8Linear, linear, quantize_rows


@settings(max_examples=40, deadline=None)
@given(
    tokens=st.integers(1, 9),
    inputs=st.integers(1, 70),
    outputs=st.integers(1, 40),
    bias=st.booleans(),
    seed=st.integers(0, 99),
)
def test_int8_product_is_exact_in_its_integers(tokens: int, inputs: int, outputs: int, bias: bool, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(outputs, inputs, generator=generator)
    x = torch.randn(tokens, inputs, generator=generator)
    b = torch.randn(outputs, generator=generator) if bias else None
    (wq, ws), (xq, xs) = quantize_rows(weight), quantize_rows(x)
    expected = (xq.double() @ wq.double().T) * xs.double() * ws.double().T
    if b is not None:
        expected += b.double()
    y = Int8Linear(weight, b)(x)
    assert y.dtype == x.dtype
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-5)


def test_pairs_of_products_that_leave_16_bits_are_exact_in_any_row() -> None:
    weight = torch.zeros(40, 64)
    weight[:, 0] = 1.0
    # What is largest for the first row is small for the others.
    weight[0, 1:] = -38 / 127
    weight[7, 2:4] = -1.0
    weight[9, 6:8] = 1.0
    x = torch.stack((torch.ones(64), -torch.ones(64)))
    # Rounding the activations and the scales is all that is between these and the exact sums.
    torch.testing.assert_close(Int8Linear(weight)(x), x @ weight.T, rtol=1e-5, atol=1e-5)


def test_int8_is_close_to_the_layer_it_replaces() -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(256, 512, generator=generator)
    x = torch.randn(16, 512, generator=generator).bfloat16()
    exact = x.double() @ weight.double().T
    y = linear(weight.bfloat16(), None, "int8")(x)
    assert y.dtype == torch.bfloat16
    assert (y.double() - exact).norm() / exact.norm() < 0.015


def test_quantisation_of_zeros_and_extremes() -> None:
    quantized, scale = quantize_rows(torch.tensor([[0.0, 0.0], [-2.0, 1.0], [1e-30, -1e-30]]))
    assert quantized.tolist() == [[0, 0], [-127, 64], [127, -127]]
    assert scale[0].item() == 1.0
    assert torch.isfinite(scale).all()


@pytest.mark.parametrize(("fmt", "expected"), [("native", 6 * 4 * 4 + 6 * 4), ("int8", 6 * 4 + 6 * 4 + 6 * 4)])
def test_bytes_read(fmt: str, expected: int) -> None:
    assert linear(torch.ones(6, 4), torch.ones(6), fmt).nbytes == expected
    assert isinstance(linear(torch.ones(6, 4), None, "native"), DenseLinear)
