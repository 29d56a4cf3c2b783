"""4-bit codes: what they stand for, how near they come, and that layers of them compute exactly that."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from headgate.engine.quant.int4 import GROUP, Thinned, importance_behind, thin
from headgate.engine.quant.linear import Int8Linear, linear, quantize_rows


def values_of(thinned: Thinned, inputs: int) -> Tensor:
    return thinned.expand()[:, :inputs].double() * thinned.scales.double().unsqueeze(1)


def nearest_of_sixteen(weight: Tensor) -> Tensor:
    """What plain rounding makes of each group: sixteen values from its least to its largest, in floating point."""
    groups = weight.double().view(weight.shape[0], -1, GROUP)
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    step = (high - low) / 15
    return (((groups - low) / step).round() * step + low).flatten(1)


@settings(max_examples=60, deadline=None)
@given(
    outputs=st.integers(1, 20),
    inputs=st.integers(1, 100),
    spread=st.sampled_from([1e-20, 0.02, 1.0, 1e20]),
    heavy=st.booleans(),
    offset=st.sampled_from([0.0, -1.0, 5.0]),
    seed=st.integers(0, 999),
)
def test_codes_and_what_they_stand_for(
    outputs: int, inputs: int, spread: float, heavy: bool, offset: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(outputs, inputs, generator=generator) + offset
    weight = (weight**3 if heavy else weight) * spread
    thinned = thin(weight)
    groups = -(-inputs // GROUP)
    assert thinned.codes.shape == (outputs, groups * GROUP)
    assert thinned.codes.max() <= 15
    assert thinned.steps.min() >= 1
    assert thinned.steps.max() <= 17
    # Every code of every group stands for an int8, whether it occurs or not.
    for code in (-8, 7):
        reached = thinned.steps.int() * code + thinned.centres.int()
        assert reached.min() >= -128
        assert reached.max() <= 127
    # No value is further off than half a step and the few that the search may cut from a group's ends.
    off = (values_of(thinned, inputs) - weight.double()).abs() / thinned.scales.double().unsqueeze(1)
    steps = thinned.steps.repeat_interleave(GROUP, dim=1)[:, :inputs]
    assert (off <= 2 * steps.double() + 1).all()


@pytest.mark.parametrize("heavy", [False, True])
def test_search_beats_plain_rounding_with_float_scales(heavy: bool) -> None:
    weight = torch.randn(256, 512, generator=torch.Generator().manual_seed(1))
    if heavy:
        weight = weight * torch.linspace(0.2, 3, 512)[torch.randperm(512, generator=torch.Generator().manual_seed(2))]
    searched = (values_of(thin(weight), 512) - weight).norm()
    assert searched < 0.97 * (nearest_of_sixteen(weight) - weight).norm()


def test_zeros_and_what_is_not_finite() -> None:
    weight = torch.zeros(3, 40)
    weight[1, 7] = 2.0
    weight[2, 7] = float("nan")
    thinned = thin(weight)
    assert (values_of(thinned, 40)[:2] - weight[:2]).abs().max() < 0.02
    assert values_of(thinned, 40)[0].eq(0).all()
    assert not values_of(thinned, 40)[2].isfinite().any()


def test_padding_means_nothing() -> None:
    weight = torch.randn(5, GROUP + 3, generator=torch.Generator().manual_seed(3))
    x = torch.randn(2, GROUP + 3, generator=torch.Generator().manual_seed(4))
    exact = x.double() @ values_of(thin(weight), GROUP + 3).T
    assert (linear(weight, None, "int4")(x).double() - exact).norm() / exact.norm() < 0.02


@settings(max_examples=40, deadline=None)
@given(
    tokens=st.integers(1, 9),
    inputs=st.integers(1, 70),
    outputs=st.integers(1, 40),
    bias=st.booleans(),
    seed=st.integers(0, 99),
)
def test_layer_is_the_int8_layer_of_its_values(tokens: int, inputs: int, outputs: int, bias: bool, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(outputs, inputs, generator=generator)
    x = torch.randn(tokens, inputs, generator=generator)
    b = torch.randn(outputs, generator=generator) if bias else None
    thinned, (xq, xs) = thin(weight), quantize_rows(x)
    expected = (xq.double() @ thinned.expand()[:, :inputs].double().T) * xs.double() * thinned.scales.double()
    if b is not None:
        expected += b.double()
    layer = linear(weight, b, "int4")
    assert layer.nbytes == Int8Linear(weight, b).nbytes
    torch.testing.assert_close(layer(x).double(), expected, rtol=1e-5, atol=1e-5)


def test_int4_is_close_to_the_layer_it_replaces() -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(256, 512, generator=generator)
    x = torch.randn(16, 512, generator=generator).bfloat16()
    exact = x.double() @ weight.double().T
    y = linear(weight.bfloat16(), None, "int4")(x)
    assert y.dtype == torch.bfloat16
    assert (y.double() - exact).norm() / exact.norm() < 0.08


def test_importance_lowers_the_error_behind_a_norm() -> None:
    generator = torch.Generator().manual_seed(5)
    weight, norm = torch.randn(64, 256, generator=generator), torch.rand(256, generator=generator) * 3
    x = torch.randn(500, 256, generator=generator).double() * norm.double()
    off = [(x @ (values_of(t, 256) - weight).T).norm() for t in (thin(weight), thin(weight, importance_behind(norm)))]
    assert off[1] < 0.95 * off[0]
    even = thin(weight, importance_behind(torch.full((256,), 0.3)))
    torch.testing.assert_close(values_of(even, 256), values_of(thin(weight), 256))
    assert importance_behind(torch.zeros(8)).min() > 0
