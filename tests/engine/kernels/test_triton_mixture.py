"""Triton's mixture of experts against the reference in float64, in its interpreter."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from test_experts import make, tokens
from triton_cases import in_the_interpreter, triton_kernels

from headgate.engine.kernels.mixture import ExpertWeights, MixtureWeights, ReferenceMixture
from headgate.engine.quant.linear import DenseLinear

pytestmark = in_the_interpreter


def exact(weights: MixtureWeights, x: torch.Tensor) -> torch.Tensor:
    def doubled(expert: ExpertWeights) -> ExpertWeights:
        return ExpertWeights(expert.gate_up.double(), expert.down.double())

    wide = replace(
        weights,
        router=weights.router.double(),
        experts=[doubled(expert) for expert in weights.experts],
        shared=doubled(weights.shared) if weights.shared is not None else None,
        shared_gate=weights.shared_gate.double() if weights.shared_gate is not None else None,
    )
    return ReferenceMixture(wide, DenseLinear)(x.double())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    ("count", "hidden", "width", "experts", "per_token", "shared", "normalize"),
    [
        (1, 40, 24, 8, 3, 0, True),
        (4, 70, 33, 6, 8 - 2, 20, False),
        (13, 64, 32, 5, 3, 0, False),
        (40, 48, 70, 4, 2, 16, True),
    ],
)
def test_tokens_pass_their_experts(
    count: int,
    hidden: int,
    width: int,
    experts: int,
    per_token: int,
    shared: int,
    dtype: torch.dtype,
    *,
    normalize: bool,
) -> None:
    weights = make(hidden, width, experts, per_token, normalize=normalize, shared=shared, dtype=dtype)
    x = tokens(weights, count)
    got = triton_kernels().mixture(weights, "native")(x)
    assert got.dtype == dtype
    tolerance = 1e-4 if dtype == torch.float32 else 1e-2
    torch.testing.assert_close(got.double(), exact(weights, x), rtol=tolerance, atol=tolerance)


def test_what_is_not_finite_stays_in_its_row() -> None:
    weights = make(32, 16, 8, 2)
    mixture = triton_kernels().mixture(weights, "native")
    for count in (5, 40):
        x = tokens(weights, count)
        sound = mixture(x)
        x[3, 7] = float("nan")
        got = mixture(x)
        assert got[3].isnan().all()
        others = torch.arange(count) != 3
        torch.testing.assert_close(got[others], sound[others])


def test_bytes() -> None:
    weights = make(32, 16, 8, 2, shared=12)
    mixture = triton_kernels().mixture(weights, "native")
    reference = ReferenceMixture(weights, DenseLinear)
    assert (mixture.nbytes, mixture.expert_nbytes) == (reference.nbytes, reference.expert_nbytes)
    assert mixture(torch.zeros(0, 32)).shape == (0, 32)
