"""Weights and activations in fp8: how they round, and that what stacks is the same as its parts."""

from __future__ import annotations

import pytest
import torch

from headgate.engine.quant.fp8 import E4M3, Fp8Weight, round_activations


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(shape[0]))


@pytest.mark.parametrize("blocks", [False, True])
def test_weights_are_near_and_their_largest_exact(*, blocks: bool) -> None:
    weight = randn(200, 300) * torch.logspace(-3, 3, 200)[:, None]
    weight[150] = 0.0
    kept = Fp8Weight.of(weight, blocks=blocks)
    assert kept.values.dtype == E4M3
    assert kept.scales.shape == ((2, 3) if blocks else (200,))
    expanded = kept.expand(torch.float32)
    if blocks:
        for rows in (slice(0, 128), slice(128, 200)):
            for columns in (slice(0, 128), slice(128, 256), slice(256, 300)):
                part, got = weight[rows, columns], expanded[rows, columns]
                torch.testing.assert_close(got.abs().max(), part.abs().max())
                # Three bits of fraction, and steps of 2 ** -9 of fp8's smallest binade.
                assert ((got - part).abs() <= part.abs() / 16 + part.abs().max() / 448 / 2**10 * 1.01).all()
    else:
        torch.testing.assert_close(expanded.abs().amax(1), weight.abs().amax(1))
        most = weight.abs().amax(1, keepdim=True)
        assert ((expanded - weight).abs() <= weight.abs() / 16 + most / 448 / 2**10 * 1.01).all()
    assert not expanded[150].any()


def test_layers_stack_where_blocks_stay_whole() -> None:
    parts = [Fp8Weight.of(randn(outputs, 140), blocks=True) for outputs in (256, 128, 70)]
    whole = Fp8Weight.stacked(parts)
    assert whole is not None
    assert torch.equal(whole.expand(torch.float32), torch.cat([part.expand(torch.float32) for part in parts]))
    assert Fp8Weight.stacked(parts[::-1]) is None
    rows = [Fp8Weight.of(randn(outputs, 140), blocks=False) for outputs in (70, 5)]
    stacked = Fp8Weight.stacked(rows)
    assert stacked is not None
    assert torch.equal(stacked.expand(torch.float32), torch.cat([part.expand(torch.float32) for part in rows]))
    assert Fp8Weight.stacked([parts[0], rows[0]]) is None


def test_outputs_change_places_within_their_blocks() -> None:
    weight = randn(256, 140)
    swapped = torch.arange(256).view(4, 2, 32).flip(1).flatten()
    for blocks in (False, True):
        kept = Fp8Weight.of(weight, blocks=blocks)
        moved = kept.reordered(swapped)
        assert moved is not None
        assert torch.equal(moved.expand(torch.float32), kept.expand(torch.float32)[swapped])
    assert Fp8Weight.of(weight, blocks=True).reordered(torch.arange(256).flip(0)) is None


@pytest.mark.parametrize("blocks", [False, True])
def test_activations_keep_what_is_not_finite(*, blocks: bool) -> None:
    x = randn(5, 150)
    x[1] = 0.0
    values, scales = round_activations(x, blocks=blocks)
    assert scales.shape == (5, 2 if blocks else 1)
    spread = scales.repeat_interleave(128, 1)[:, :150] if blocks else scales
    got = values.float() * spread
    assert (got - x).norm() < 0.04 * x.norm()
    for bad in (float("nan"), float("inf")):
        x[3, 7] = bad
        values, scales = round_activations(x, blocks=blocks)
        assert not (values.float()[3] * scales[3, 0])[7].isfinite()
        assert values[:3].float().isfinite().all()
