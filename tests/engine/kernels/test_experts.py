"""Mixtures of experts: the compiled operator against plain torch, and plain torch against the formula."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from headgate.engine.kernels.cpu.experts import NativeMixture
from headgate.engine.kernels.cpu.kernels import CpuKernels, native_status
from headgate.engine.kernels.mixture import ExpertWeights, Mixture, MixtureWeights, Mxfp4Expert, ReferenceMixture
from headgate.engine.kernels.reference import ReferenceKernels
from headgate.engine.quant.linear import DenseLinear, Int8Linear, WeightFormat, quantize_rows
from headgate.engine.quant.mxfp4 import Mxfp4Weight

STATUS = native_status()
native = pytest.mark.skipif(not STATUS.usable, reason=f"native kernels: {STATUS.why}")
INT8 = STATUS.usable and bool(torch.ops.headgate.int8_usable())
INT4 = STATUS.usable and bool(torch.ops.headgate.int4_vectors())
int8 = pytest.mark.skipif(not INT8, reason="the int8 kernels want AVX2")
int4 = pytest.mark.skipif(not INT4, reason="the int4 kernels want AVX2")
FORMATS = ["native", pytest.param("int8", marks=int8), pytest.param("int4", marks=int4)]


def make(
    hidden: int,
    width: int,
    count: int,
    per_token: int,
    *,
    normalize: bool = True,
    shared: int = 0,
    limit: float | None = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> MixtureWeights:
    """Weights of a size that keeps activations near 1, and a router whose choices are far from ties.

    With a `limit` there are biases, too.
    """
    generator = torch.Generator().manual_seed(seed)

    def randn(*shape: int, scale: float) -> Tensor:
        return (torch.randn(*shape, generator=generator) * scale).to(dtype)

    def expert(wide: int) -> ExpertWeights:
        return ExpertWeights(randn(2 * wide, hidden, scale=hidden**-0.5), randn(hidden, wide, scale=2 * wide**-0.5))

    return MixtureWeights(
        router=randn(count, hidden, scale=4 * hidden**-0.5),
        experts=[expert(width) for _ in range(count)],
        per_token=per_token,
        normalize=normalize,
        shared=expert(shared) if shared else None,
        shared_gate=randn(1, hidden, scale=hidden**-0.5) if shared else None,
        router_bias=randn(count, scale=1.0) if limit else None,
        gate_up_bias=randn(count, 2 * width, scale=1.0) if limit else None,
        down_bias=randn(count, hidden, scale=1.0) if limit else None,
        limit=limit,
    )


def in_mxfp4(weights: MixtureWeights, seed: int = 0) -> tuple[list[Mxfp4Expert], MixtureWeights]:
    """Experts of the same sizes with codes of all kinds, and the layer with the weights that they stand for."""
    generator = torch.Generator().manual_seed(seed)

    def draw(like: Tensor) -> Mxfp4Weight:
        outputs, groups = like.shape[0], like.shape[1] // 32
        blocks = torch.randint(0, 256, (outputs, groups, 16), dtype=torch.uint8, generator=generator)
        scales = torch.randint(119, 123, (outputs, groups), dtype=torch.uint8, generator=generator)
        scales[torch.rand(outputs, groups, generator=generator) < 0.1] = 0
        return Mxfp4Weight(blocks, scales)

    packed = [Mxfp4Expert(draw(expert.gate_up), draw(expert.down)) for expert in weights.experts]
    dtype = weights.router.dtype
    plain = [ExpertWeights(each.gate_up.expand(dtype), each.down.expand(dtype)) for each in packed]
    return packed, replace(weights, experts=plain)


def tokens(weights: MixtureWeights, count: int, seed: int = 1) -> Tensor:
    hidden = weights.router.shape[1]
    x = torch.randn(count, hidden, generator=torch.Generator().manual_seed(seed))
    return x.to(weights.router.dtype)


def double(weights: MixtureWeights, x: Tensor) -> Tensor:
    """The formula, token by token, in float64."""
    out = torch.zeros(x.shape, dtype=torch.float64)
    for t, token in enumerate(x.double()):
        logits = weights.router.double() @ token
        probabilities = (logits if weights.router_bias is None else logits + weights.router_bias.double()).softmax(0)
        chosen = probabilities.topk(weights.per_token)
        total = chosen.values.sum() if weights.normalize else 1.0
        experts = list(weights.experts)
        for probability, e in zip(chosen.values, chosen.indices.tolist(), strict=True):
            out[t] += (
                probability
                / total
                * (mlp(experts[e], token) if weights.limit is None else clamped_mlp(weights, experts[e], e, token))
            )
        if weights.shared is not None and weights.shared_gate is not None:
            out[t] += (weights.shared_gate.double() @ token).sigmoid() * mlp(weights.shared, token)
    return out


def mlp(expert: ExpertWeights, token: Tensor) -> Tensor:
    gate, up = (expert.gate_up.double() @ token).chunk(2)
    return expert.down.double() @ (gate * gate.sigmoid() * up)


def clamped_mlp(weights: MixtureWeights, expert: ExpertWeights, number: int, token: Tensor) -> Tensor:
    """gpt-oss's."""
    assert weights.gate_up_bias is not None
    assert weights.down_bias is not None
    assert weights.limit is not None
    gate, up = (expert.gate_up.double() @ token + weights.gate_up_bias[number].double()).chunk(2)
    gate, up = gate.clamp(max=weights.limit), up.clamp(-weights.limit, weights.limit)
    return expert.down.double() @ ((up + 1) * gate * (1.702 * gate).sigmoid()) + weights.down_bias[number].double()


def int8_exact(weights: MixtureWeights, width: int, x: Tensor) -> Tensor:
    """What int8 layers make of `weights` (no shared expert), with every sum in float64."""
    out = torch.zeros(x.shape, dtype=torch.float64)
    experts = list(weights.experts)
    probabilities = (x.double() @ weights.router.double().T).softmax(-1)
    for t in range(x.shape[0]):
        chosen = probabilities[t].topk(weights.per_token)
        total = chosen.values.sum() if weights.normalize else 1.0
        for probability, e in zip(chosen.values, chosen.indices.tolist(), strict=True):
            gate, up = product(experts[e].gate_up, x[t : t + 1]).split(width, dim=1)
            hidden = (gate * gate.sigmoid() * up).to(x.dtype)
            out[t] += probability / total * product(experts[e].down, hidden)[0]
    return out


def product(weight: Tensor, x: Tensor) -> Tensor:
    (w, w_scale), (q, q_scale) = quantize_rows(weight), quantize_rows(x)
    return q.double() @ w.double().T * q_scale.double() * w_scale.double().T


def difference(got: Tensor, expected: Tensor, weights: MixtureWeights) -> float:
    """Relative to the expected outputs, or to the layer's usual ones where those happen to be near zero."""
    usual = ReferenceMixture(weights, DenseLinear)(tokens(weights, 64, seed=2)).double().square().mean()
    size = max(float(expected.norm()), float((usual * expected.numel()).sqrt()))
    return float((got - expected).norm()) / max(size, 1e-9)


shapes = st.fixed_dictionaries(
    {
        "hidden": st.integers(1, 200) | st.sampled_from([64, 256]),
        "width": st.integers(1, 150) | st.sampled_from([32, 192]),
        "count": st.integers(8, 12),
        "per_token": st.integers(1, 8),
        "normalize": st.booleans(),
        "seed": st.integers(0, 99),
    }
)


@settings(max_examples=25, deadline=None)
@given(shape=shapes, count=st.integers(0, 12), shared=st.sampled_from([0, 1, 40, 64]), limit=st.sampled_from([None, 2]))
def test_reference_is_the_formula(shape: dict[str, int], count: int, shared: int, limit: float | None) -> None:
    weights = make(**shape, shared=shared, limit=limit)  # type: ignore[arg-type]
    x = tokens(weights, count)
    got = ReferenceMixture(weights, DenseLinear)(x)
    torch.testing.assert_close(got.double(), double(weights, x), rtol=1e-4, atol=1e-4)


@native
@settings(max_examples=60, deadline=None)
@given(
    shape=shapes,
    count=st.integers(0, 67),
    shared=st.sampled_from([0, 0, 1, 40, 300]),
    limit=st.sampled_from([None, 2.0]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_floating_point(
    shape: dict[str, int], count: int, shared: int, limit: float | None, dtype: torch.dtype
) -> None:
    shared = 0 if limit else shared
    weights = make(**shape, shared=shared, limit=limit, dtype=dtype)  # type: ignore[arg-type]
    x = tokens(weights, count)
    mixture = CpuKernels().mixture(weights, "native")
    # Sums in float32; the activation and the result are rounded to the dtype.
    tolerance = 1e-4 if dtype == torch.float32 else 3e-2
    torch.testing.assert_close(mixture(x).double(), double(weights, x), rtol=tolerance, atol=tolerance)


@int8
@pytest.mark.parametrize("fmt", ["int8", pytest.param("int4", marks=int4)])
def test_rounded_experts_have_biases_and_clamped_gates(fmt: WeightFormat) -> None:
    weights = make(128, 40, 8, 3, limit=1.5)
    x = tokens(weights, 33)
    expected = double(weights, x)
    got = CpuKernels().mixture(weights, fmt)(x).double()
    assert (got - expected).norm() / expected.norm() < {"int8": 0.02, "int4": 0.15}[fmt]


@int8
@settings(max_examples=60, deadline=None)
@given(shape=shapes, count=st.integers(0, 67), dtype=st.sampled_from([torch.float32, torch.bfloat16]))
def test_int8(shape: dict[str, int], count: int, dtype: torch.dtype) -> None:
    weights = make(**shape, dtype=dtype)  # type: ignore[arg-type]
    x = tokens(weights, count)
    got = CpuKernels().mixture(weights, "int8")(x).double()
    expected = int8_exact(weights, shape["width"], x)
    # The sums are exact. The activation in between may round to the neighbouring of its 255 values, or the dtype's.
    assert difference(got, expected, weights) < (4e-3 if dtype == torch.float32 else 8e-3)


@native
@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize(("hidden", "width", "count"), [(4100, 40, 130), (70, 900, 300)])
def test_more_than_the_cache_holds(fmt: str, hidden: int, width: int, count: int) -> None:
    weights = make(hidden, width, 5, 3)
    x = tokens(weights, count)
    got = CpuKernels().mixture(weights, fmt)(x).double()  # type: ignore[arg-type]
    expected = ReferenceMixture(weights, DenseLinear)(x).double()
    assert (got - expected).norm() / expected.norm() < {"native": 1e-5, "int8": 0.03, "int4": 0.2}[fmt]


@int4
@settings(max_examples=60, deadline=None)
@given(shape=shapes, count=st.integers(0, 67), dtype=st.sampled_from([torch.float32, torch.bfloat16]))
def test_int4(shape: dict[str, int], count: int, dtype: torch.dtype) -> None:
    weights = make(**shape, dtype=dtype)  # type: ignore[arg-type]
    x = tokens(weights, count)
    got = CpuKernels().mixture(weights, "int4")(x).double()
    # The layers it is made of, with a parity test of their own; what they round in between differs at most.
    expected = ReferenceMixture(weights, lambda weight: CpuKernels().linear(weight, None, "int4"))(x).double()
    assert difference(got, expected, weights) < (4e-3 if dtype == torch.float32 else 1.2e-2)


@int8
@pytest.mark.parametrize("shared", [0, 24, 50])
def test_int8_is_close_to_the_weights_it_was_made_of(shared: int) -> None:
    weights = make(128, 24, 8, 3, shared=shared)
    x = tokens(weights, 33)
    got = CpuKernels().mixture(weights, "int8")(x).double()
    expected = double(weights, x)
    assert (got - expected).norm() / expected.norm() < 0.02
    reference = ReferenceMixture(weights, Int8Linear)(x).double()
    assert (reference - expected).norm() / expected.norm() < 0.02


@native
@pytest.mark.parametrize("fmt", [*FORMATS, "mxfp4"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_token_does_not_depend_on_its_neighbours(fmt: str, dtype: torch.dtype) -> None:
    if fmt == "mxfp4":
        packed, weights = in_mxfp4(make(96, 160, 8, 3, limit=7.0, dtype=dtype))
        mixture: Mixture = CpuKernels().mxfp4_mixture(weights, packed)
    else:
        weights = make(96, 80, 8, 3, shared=100, dtype=dtype)
        mixture = CpuKernels().mixture(weights, fmt)  # type: ignore[arg-type]
    x = tokens(weights, 70)
    together = mixture(x)
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            for begin, end in ((0, 1), (1, 3), (3, 20), (20, 69), (69, 70), (0, 70)):
                assert torch.equal(mixture(x[begin:end]), together[begin:end])
    finally:
        torch.set_num_threads(threads)


@native
@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_in_its_row(fmt: str, bad: float) -> None:
    weights = make(64, 32, 8, 2)
    mixture = CpuKernels().mixture(weights, fmt)  # type: ignore[arg-type]
    x = tokens(weights, 9)
    sound = mixture(x)
    x[4, 7] = bad
    got = mixture(x)
    assert not got[4].isfinite().any()
    assert torch.equal(got[torch.arange(9) != 4], sound[torch.arange(9) != 4])


@native
def test_experts_nobody_chose_are_not_read() -> None:
    weights = make(64, 32, 8, 2)
    x = tokens(weights, 5)
    chosen = (x @ weights.router.T).topk(2).indices.unique().tolist()
    idle = [e for e in range(8) if e not in chosen]
    assert idle
    poisoned = [
        ExpertWeights(e.gate_up * float("nan"), e.down * float("nan")) if i in idle else e
        for i, e in enumerate(weights.experts)
    ]
    other = MixtureWeights(weights.router, poisoned, 2, normalize=True)
    assert torch.equal(CpuKernels().mixture(other, "native")(x), CpuKernels().mixture(weights, "native")(x))


@native
def test_choice_of_the_layer() -> None:
    weights = make(64, 32, 8, 2)
    assert isinstance(CpuKernels().mixture(weights, "native"), NativeMixture)
    assert isinstance(CpuKernels().mixture(weights, "int8"), NativeMixture) == INT8
    assert isinstance(CpuKernels().mixture(weights, "int4"), NativeMixture) == INT4
    assert isinstance(ReferenceKernels().mixture(weights, "native"), ReferenceMixture)


@pytest.mark.parametrize("kernels", [ReferenceKernels(), pytest.param(None, marks=native)])
def test_bytes(kernels: ReferenceKernels | None) -> None:
    weights = make(64, 32, 8, 2)
    mixture = (kernels or CpuKernels()).mixture(weights, "native")
    assert mixture.expert_nbytes == 3 * 64 * 32 * 4
    assert mixture.nbytes >= 8 * mixture.expert_nbytes + 8 * 64 * 4


@native
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden": 31}, "router"),
        ({"router": torch.zeros(1, 1, 64, 32, 1).double()}, "float32"),
        ({"per_token": 9}, "1 to 8"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(change: dict[str, object], message: str) -> None:
    packed = torch.zeros(8, 2, 64, 32, 1)
    arguments: dict[str, object] = {
        "router": torch.zeros(1, 1, 64, 32, 1),
        "gate_up": packed,
        "gate_up_scales": None,
        "gate_up_shift": None,
        "down": torch.zeros(8, 2, 32, 32, 1),
        "down_scales": None,
        "down_shift": None,
        "count": 8,
        "shared": 0,
        "hidden": 64,
        "width": 32,
        "per_token": 2,
        "normalize": True,
        "router_bias": None,
        "gate_up_bias": None,
        "down_bias": None,
        "limit": 0.0,
    }
    experts = torch.classes.headgate.Experts(*arguments.values())
    for x in (torch.zeros(3, 63), torch.zeros(3, 64).double(), torch.zeros(64)):
        with pytest.raises(RuntimeError, match="x must be"):
            experts.forward(x)
    with pytest.raises(RuntimeError, match=message):
        torch.classes.headgate.Experts(*{**arguments, **change}.values())
