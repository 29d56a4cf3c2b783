"""Triton's mixture of experts against the reference in float64, in its interpreter."""

from __future__ import annotations

import pytest
import torch
from test_experts import double, in_mxfp4, make, tokens
from triton_cases import in_the_interpreter, triton_kernels

from headgate.engine.kernels.checks.inputs import in_float64
from headgate.engine.kernels.mixture import MixtureWeights, ReferenceMixture
from headgate.engine.quant.linear import DenseLinear, WeightFormat

pytestmark = in_the_interpreter


def exact(weights: MixtureWeights, x: torch.Tensor, fmt: WeightFormat = "native") -> torch.Tensor:
    return ReferenceMixture(in_float64(weights, fmt), DenseLinear)(x.double())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    ("count", "hidden", "width", "experts", "per_token", "shared", "normalize"),
    [
        (1, 40, 24, 8, 3, 0, True),
        (2, 70, 33, 6, 8 - 2, 20, False),
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


@pytest.mark.parametrize("fmt", ["int8", "int4"])
@pytest.mark.parametrize(("count", "shared"), [(3, 20), (24, 0)])
def test_rounded_experts(count: int, shared: int, fmt: WeightFormat) -> None:
    weights = make(72, 40, 5, 2, shared=shared)
    x = tokens(weights, count)
    mixture = triton_kernels().mixture(weights, fmt)
    torch.testing.assert_close(mixture(x).double(), exact(weights, x, fmt), rtol=1e-4, atol=1e-4)
    # 80 outputs of 72 inputs and 72 of 40, with a scale each; four bits come in groups of 32 inputs, 18 bytes each.
    per_expert = 80 * (72 + 4) + 72 * (40 + 4) if fmt == "int8" else 80 * (3 * 18 + 4) + 72 * (2 * 18 + 4)
    assert mixture.expert_nbytes == per_expert


@pytest.mark.parametrize(
    ("count", "hidden", "width", "experts", "dtype"),
    [
        (1, 96, 64, 5, torch.float32),
        (2, 352, 32, 3, torch.float16),
        (24, 64, 96, 4, torch.float32),
        (24, 64, 96, 4, torch.float16),
    ],
)
def test_experts_in_mxfp4(count: int, hidden: int, width: int, experts: int, dtype: torch.dtype) -> None:
    made = make(hidden, width, experts, 3, limit=2.0, dtype=dtype)
    packed, weights = in_mxfp4(made)
    x = tokens(weights, count)
    mixture = triton_kernels().mxfp4_mixture(weights, packed)
    tolerance = 1e-4 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(mixture(x).double(), double(weights, x), rtol=tolerance, atol=tolerance)
    assert mixture.expert_nbytes == 3 * hidden * width * 17 // 32


@pytest.mark.parametrize("count", [1, 24])
def test_plain_experts_with_biases_and_clamped_gates(count: int) -> None:
    weights = make(40, 24, 5, 2, limit=1.5)
    x = tokens(weights, count)
    mixture = triton_kernels().mixture(weights, "native")
    torch.testing.assert_close(mixture(x).double(), double(weights, x), rtol=1e-4, atol=1e-4)
    assert mixture.nbytes == ReferenceMixture(weights, DenseLinear).nbytes


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
