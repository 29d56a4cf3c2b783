"""Triton's weight-only linear layers against float64, in its interpreter."""

from __future__ import annotations

import pytest
import torch
from triton_cases import in_the_interpreter, triton_kernels

from headgate.engine.kernels.checks.inputs import rounded
from headgate.engine.quant.linear import WeightFormat

pytestmark = in_the_interpreter


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("fmt", ["int8", "int4"])
@pytest.mark.parametrize(
    ("tokens", "inputs", "outputs", "biased"), [(1, 70, 37, True), (5, 300, 16, False), (19, 64, 65, True)]
)
def test_only_the_weights_are_rounded(
    tokens: int, inputs: int, outputs: int, fmt: WeightFormat, dtype: torch.dtype, *, biased: bool
) -> None:
    generator = torch.Generator().manual_seed(tokens)
    weight = (torch.randn(outputs, inputs, generator=generator) * inputs**-0.5).to(dtype)
    bias = torch.randn(outputs, generator=generator).to(dtype) if biased else None
    x = torch.randn(tokens, inputs, generator=generator).to(dtype)
    layer = triton_kernels().linear(weight, bias, fmt)
    expected = x.double() @ rounded(weight, fmt).T + (bias.double() if bias is not None else 0.0)
    tolerance = 1e-5 if dtype == torch.float32 else 2e-3
    torch.testing.assert_close(layer(x).double(), expected, rtol=tolerance, atol=tolerance)
    # 32 codes take 16 bytes, their step and centre one each.
    stored = inputs if fmt == "int8" else -(-inputs // 32) * 18
    assert layer.nbytes == outputs * (stored + 4) + (bias.nbytes if bias is not None else 0)


def test_no_tokens() -> None:
    assert triton_kernels().linear(torch.ones(8, 16), None, "int8")(torch.zeros(0, 16)).shape == (0, 8)
