"""Experts in MXFP4 against the weights that they stand for, in float64, and bit for bit against these as they are."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import needs_kernels
from test_experts import double, in_mxfp4, make, shapes, tokens
from torch import Tensor

from headgate.engine.kernels.cpu.kernels import CpuKernels
from headgate.engine.kernels.mixture import MixtureWeights, Mxfp4Expert
from headgate.engine.quant.mxfp4 import Mxfp4Weight

pytestmark = needs_kernels


@settings(max_examples=30, deadline=None)
@given(
    shape=shapes,
    groups=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    count=st.integers(0, 67),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_experts_in_four_bits(shape: dict[str, int], groups: tuple[int, int], count: int, dtype: torch.dtype) -> None:
    hidden, width = (32 * each for each in groups)
    made = make(**{**shape, "hidden": hidden, "width": width}, limit=7.0, dtype=dtype)  # type: ignore[arg-type]
    packed, weights = in_mxfp4(made, shape["seed"])
    x = tokens(weights, count)
    mixture = CpuKernels().mxfp4_mixture(weights, packed)
    expected = double(weights, x)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-2
    assert (mixture(x).double() - expected).norm() <= tolerance * expected.norm() + 1e-9
    # Nothing is rounded but what plain experts round: they give the same bits.
    assert torch.equal(mixture(x), CpuKernels().mixture(weights, "native")(x))
    whole = 3 * hidden * -(-width // 32) * 32
    assert mixture.expert_nbytes < whole * 17 // 32 + 4 * (2 * width + hidden + 64) + 4096 // shape["count"]


def biases(weights: MixtureWeights) -> list[Tensor]:
    given = weights.router_bias, weights.gate_up_bias, weights.down_bias
    return [bias.double() for bias in given if bias is not None]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", [1, 2, 100, 127, 160])
def test_all_codes_with_scales_of_all_sizes(scale: int, dtype: torch.dtype) -> None:
    """All 16 codes at each place of a group, in the second product; gates and ups are biases alone."""
    codes = torch.arange(32) % 16
    rows = torch.stack([codes.roll(shift) for shift in range(32)])
    blocks = (rows[:, ::2] | rows[:, 1::2] << 4).to(torch.uint8)[:, None, :]
    weight = Mxfp4Weight(blocks, torch.full((32, 1), scale, dtype=torch.uint8))
    zeros = Mxfp4Weight(torch.zeros(64, 1, 16, dtype=torch.uint8), torch.full((64, 1), 127, dtype=torch.uint8))
    made = make(32, 32, 8, 1, limit=7.0, dtype=dtype)
    packed = [Mxfp4Expert(zeros, weight)] * 8
    plain, (router_bias, gate_up_bias, down_bias) = weight.expand(torch.float64), biases(made)
    for count in (1, 3, 8, 40):
        x = tokens(made, count)
        got = CpuKernels().mxfp4_mixture(made, packed)(x).double()
        assert got.isfinite().all()
        chosen = (x.double() @ made.router.double().T + router_bias).argmax(-1)
        gate, up = gate_up_bias[chosen].chunk(2, dim=-1)
        gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
        hidden = ((up + 1) * gate * (1.702 * gate).sigmoid()).to(dtype).double()
        expected = hidden @ plain.T + down_bias[chosen]
        torch.testing.assert_close(got, expected, rtol=2**-7, atol=2**-7 * float(plain.abs().max() + 1))
