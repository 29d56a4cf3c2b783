"""Triton's operations on rows and heads against the reference in float64, in its interpreter."""

from __future__ import annotations

import pytest
import torch
from kernel_cases import NAN, REFERENCE, randn
from triton_cases import in_the_interpreter, right_fp8, triton_kernels

from headgate.engine.kernels.interface import HeadNorms, KVLayer

pytestmark = in_the_interpreter

DTYPES = [torch.float32, torch.float16]


def near(got: torch.Tensor, expected: torch.Tensor) -> None:
    """A sum in float32, rounded once."""
    rtol, atol = (2**-10, 1e-6) if got.dtype == torch.float16 else (1e-5, 2e-6)
    torch.testing.assert_close(got.double(), expected.double(), rtol=rtol, atol=atol, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("tokens", "hidden", "half"), [(5, 1500, 12), (1, 8, 1), (0, 8, 4)])
def test_tokens_bring_their_embeddings_and_angles(tokens: int, hidden: int, half: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(tokens)
    embedding, angles = randn(generator, dtype, 30, hidden), torch.randn(2, 90, half, generator=generator)
    ids, positions = (torch.randint(most, (tokens,), generator=generator) for most in (30, 90))
    got = triton_kernels().enter(ids, positions, embedding, (angles[0], angles[1]))
    for one, expected in zip(got, (embedding[ids], angles[0][positions], angles[1][positions]), strict=True):
        assert one.dtype == expected.dtype
        assert torch.equal(one, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "width"), [(3, 40), (2, 1), (5, 257), (0, 8)])
def test_norms_and_activation(rows: int, width: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(rows)
    x, residual = (randn(generator, dtype, rows, width) for _ in range(2))
    weight = randn(generator, dtype, width)
    kernels = triton_kernels()
    near(kernels.rms_norm(x, weight, 1e-6), REFERENCE.rms_norm(x.double(), weight.double(), 1e-6))
    total = x + residual
    normed, kept = kernels.add_rms_norm(x.clone(), residual.clone(), weight, 1e-6)
    assert torch.equal(kept, total)
    near(normed, REFERENCE.rms_norm(total.double(), weight.double(), 1e-6))
    gate_up = randn(generator, dtype, rows, 2 * width) * 20
    near(kernels.swiglu(gate_up), REFERENCE.swiglu(gate_up.double()))
    near(kernels.geglu(gate_up), REFERENCE.geglu(gate_up.double()))


def test_more_columns_than_a_program_gates() -> None:
    gate_up = torch.randn(2, 2 * 1030, generator=torch.Generator().manual_seed(0))
    near(triton_kernels().swiglu(gate_up), REFERENCE.swiglu(gate_up.double()))


def test_rows_that_do_not_lie_side_by_side() -> None:
    wide = torch.randn(4, 3, 50, generator=torch.Generator().manual_seed(0))
    x, weight = wide[..., 7:31], torch.ones(24)
    near(triton_kernels().rms_norm(x, weight, 1e-6), REFERENCE.rms_norm(x.double(), weight.double(), 1e-6))


@pytest.mark.parametrize("bad", [NAN, float("inf")])
def test_what_is_not_finite_stays_visible(bad: float) -> None:
    kernels = triton_kernels()
    x = torch.ones(3, 40)
    x[1, 7] = bad
    ones = torch.ones(40)
    for got, expected in (
        (kernels.rms_norm(x, ones, 1e-6), REFERENCE.rms_norm(x, ones, 1e-6)),
        (kernels.add_rms_norm(x.clone(), x.clone(), ones, 1e-6)[1], x + x),
        (kernels.swiglu(x), REFERENCE.swiglu(x)),
        (kernels.geglu(x), REFERENCE.geglu(x)),
    ):
        torch.testing.assert_close(got, expected, equal_nan=True, rtol=1e-5, atol=1e-5)


def projected(
    dtype: torch.dtype, tokens: int, heads: int, kv_heads: int, dim: int, *, normed: bool
) -> tuple[list[torch.Tensor], HeadNorms | None, torch.Tensor]:
    """Queries, keys and values as parts of one projection, the norms of their heads, angles."""
    generator = torch.Generator().manual_seed(dim)
    fused = randn(generator, dtype, tokens, (heads + 2 * kv_heads) * dim)
    parts = fused.split([heads * dim, kv_heads * dim, kv_heads * dim], dim=-1)
    norms = HeadNorms(randn(generator, dtype, dim), randn(generator, dtype, dim), 1e-5) if normed else None
    return [t.unflatten(1, (-1, dim)) for t in parts], norms, torch.rand(tokens, dim // 2, generator=generator) * 7


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(3, 1, 10), (4, 2, 32)])
@pytest.mark.parametrize("normed", [True, False])
def test_heads_are_normed_turned_and_kept(
    heads: int, kv_heads: int, dim: int, dtype: torch.dtype, *, normed: bool
) -> None:
    parts, norms, angles = projected(dtype, 5, heads, kv_heads, dim, normed=normed)
    layers = [KVLayer(*torch.zeros(2, 12, kv_heads, dim, dtype=kept)) for kept in (dtype, torch.float64)]
    slots = torch.tensor([7, 0, 3, 11, 4])
    got = triton_kernels().rotate_and_write(*parts, norms, angles.cos(), angles.sin(), layers[0], slots)
    if norms is not None:
        norms = HeadNorms(norms.query.double(), norms.key.double(), norms.eps)
    exact = [t.double() for t in parts]
    expected = REFERENCE.rotate_and_write(*exact, norms, angles.cos(), angles.sin(), layers[1], slots)
    near(got, expected)
    near(layers[0].keys, layers[1].keys)
    assert torch.equal(layers[0].values.double(), layers[1].values)


@pytest.mark.usefixtures(right_fp8.__name__)
@pytest.mark.parametrize("kept", [torch.int8, torch.float8_e4m3fn], ids=["int8", "fp8"])
def test_rounded_keys_and_values_are_those_of_the_reference(kept: torch.dtype) -> None:
    parts, _, angles = projected(torch.float32, 6, 2, 2, 24, normed=False)
    parts[1][2, 0] = 0.0
    parts[2][3, 1, 5] = NAN
    layers = [KVLayer(*torch.zeros(2, 9, 2, 24).to(kept), *torch.zeros(2, 9, 2)) for _ in range(2)]
    slots = torch.tensor([7, 0, 3, 8, 4, 1])
    for kernels, layer in zip((triton_kernels(), REFERENCE), layers, strict=True):
        kernels.rotate_and_write(*parts, None, angles.cos(), angles.sin(), layer, slots)
    ours, theirs = layers
    assert ours.value_scales is not None
    assert ours.value_scales[8, 1].isinf()
    sound = torch.ones(9, 2, dtype=torch.bool)
    sound[8, 1] = False
    for got, expected in ((ours.keys, theirs.keys), (ours.values, theirs.values)):
        # A quotient within an ulp of a tie may fall to either side, which are a bit apart.
        bits, wanted_bits = got.view(torch.int8), expected.view(torch.int8)
        assert (bits.int() - wanted_bits.int())[sound].abs().max() <= 1
        assert (bits != wanted_bits)[sound].sum() <= 1
    for scale, wanted in ((ours.key_scales, theirs.key_scales), (ours.value_scales, theirs.value_scales)):
        assert scale is not None
        assert wanted is not None
        torch.testing.assert_close(scale[sound], wanted[sound])
