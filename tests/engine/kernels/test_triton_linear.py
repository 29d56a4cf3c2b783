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


@pytest.mark.parametrize("fmt", ["int8", "int4"])
@pytest.mark.parametrize("tokens", [7, 40])
def test_inputs_of_few_tiles_are_shared_out(tokens: int, fmt: WeightFormat, monkeypatch: pytest.MonkeyPatch) -> None:
    from headgate.engine.kernels.triton import linear

    parts: list[int] = []
    monkeypatch.setattr(linear, "_parts", lambda *given, _of=linear._parts: parts.append(_of(*given)) or parts[-1])
    generator = torch.Generator().manual_seed(tokens)
    weight = torch.randn(40, 2100, generator=generator) / 46
    bias = torch.randn(40, generator=generator)
    layer = triton_kernels().linear(weight, bias, fmt)
    for _ in range(2):  # the second time finds what the first one left
        x = torch.randn(tokens, 2100, generator=generator)
        torch.testing.assert_close(layer(x).double(), x.double() @ rounded(weight, fmt).T + bias, rtol=1e-4, atol=1e-4)
    assert min(parts) >= 2


@pytest.mark.parametrize(
    ("tiles", "runs", "warps", "parts"),
    [(128, 112, 2, 8), (192, 32, 2, 4), (64, 112, 4, 8), (448, 32, 4, 1), (2, 9, 2, 2), (1, 3, 4, 1)],
)
def test_as_many_programs_as_run_together(tiles: int, runs: int, warps: int, parts: int) -> None:
    from headgate.engine.kernels.triton.linear import _parts

    assert _parts(tiles, runs, warps) == parts


def test_no_tokens() -> None:
    assert triton_kernels().linear(torch.ones(8, 16), None, "int8")(torch.zeros(0, 16)).shape == (0, 8)
