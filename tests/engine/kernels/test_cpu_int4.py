"""The compiled 4-bit layers: exactly the int8 layer of the same values, on every instruction set and for any rows."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from headgate.engine.kernels.cpu.kernels import CpuKernels, native_status
from headgate.engine.kernels.cpu.packed import NativeInt4Linear, pack_int4
from headgate.engine.quant.int4 import Thinned, thin
from headgate.engine.quant.linear import Linear, PackedWeight, quantize_rows

STATUS = native_status()
pytestmark = pytest.mark.skipif(
    not (STATUS.usable and torch.ops.headgate.int4_vectors()), reason=f"4-bit operators: {STATUS.why}, without AVX2"
)
NAN = float("nan")


def layer_of(weight: Tensor, bias: Tensor | None = None) -> Linear:
    return CpuKernels().linear(weight, bias, "int4")


def unpacked(weight: PackedWeight, outputs: int, inputs: int) -> Thinned:
    """The codes, steps and centres of a packed weight, read as int4.h lays them out."""
    blocks = weight.packed.view(weight.packed.shape[0], -1, 576)[:, : -(-inputs // 32)]
    pairs = blocks[..., :64].unflatten(-1, (32, 2)).transpose(1, 2).flatten(0, 1)[:outputs]
    # [panel, group, half, t, output, i] holds the codes of inputs 8 t + i and 8 t + 4 + i.
    both = blocks[..., 64:].unflatten(-1, (2, 4, 16, 4))
    codes = torch.stack((both & 15, both >> 4), dim=-2)
    codes = codes.permute(0, 2, 4, 1, 3, 5, 6).flatten(3).flatten(0, 2)[:outputs]
    return Thinned(codes, pairs[..., 0], pairs[..., 1].contiguous().view(torch.int8), weight.scales[:outputs])


def packed(thinned: Thinned) -> tuple[Tensor, Tensor]:
    """The other way round, for whole panels: the packed form and the shifts."""
    codes = thinned.codes.unflatten(0, (-1, 2, 16)).unflatten(-1, (-1, 4, 2, 4)).permute(0, 3, 1, 4, 2, 6, 5)
    pairs = torch.stack((thinned.steps, thinned.centres.view(torch.uint8)), dim=-1)
    heads = pairs.unflatten(0, (-1, 32)).transpose(1, 2).flatten(2)
    blocks = torch.cat((heads, (codes[..., 0] | codes[..., 1] << 4).flatten(2)), dim=-1)
    return blocks.contiguous(), 128 * thinned.expand().sum(dim=1, dtype=torch.int32)


def error(thinned: Thinned, weight: Tensor, importance: Tensor) -> Tensor:
    values = thinned.expand()[:, : weight.shape[1]].double() * thinned.scales.double().unsqueeze(1)
    return ((values - weight.double()).square() * importance).sum()


@settings(max_examples=60, deadline=None)
@given(
    outputs=st.integers(1, 70),
    inputs=st.integers(1, 130),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    heavy=st.booleans(),
    weighed=st.booleans(),
    seed=st.integers(0, 99),
)
def test_search_finds_what_the_reference_finds(
    outputs: int, inputs: int, dtype: torch.dtype, heavy: bool, weighed: bool, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(outputs, inputs, generator=generator)
    weight = (weight**3 if heavy else weight).to(dtype)
    importance = torch.rand(inputs, generator=generator) + 0.01 if weighed else None
    layer = pack_int4(weight, importance)
    got, reference = unpacked(layer, outputs, inputs), thin(weight, importance)
    assert torch.equal(got.scales, reference.scales)
    assert got.codes.shape == reference.codes.shape
    assert got.codes.max() <= 15
    assert got.steps.min() >= 1
    assert got.steps.max() <= 17
    assert torch.equal(layer.shift[:outputs], 128 * got.expand().sum(dim=1, dtype=torch.int32))
    # Candidates may tie, and sums are ordered differently: the codes may differ, the error may not.
    counts = torch.ones(inputs) if importance is None else importance
    torch.testing.assert_close(error(got, weight, counts), error(reference, weight, counts), rtol=1e-4, atol=0)


@settings(max_examples=80, deadline=None)
@given(
    rows=st.integers(0, 40),
    inputs=st.integers(1, 200) | st.sampled_from([64, 1024]),
    outputs=st.integers(1, 200) | st.sampled_from([64, 128]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    bias=st.booleans(),
    padded=st.booleans(),
    seed=st.integers(0, 99),
)
def test_layer_is_exact_in_its_integers(
    rows: int, inputs: int, outputs: int, dtype: torch.dtype, bias: bool, padded: bool, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(outputs, inputs, generator=generator).to(dtype)
    b = torch.randn(outputs, generator=generator).to(dtype) if bias else None
    x = torch.randn(rows, inputs, generator=generator).to(dtype)
    if padded:  # rows that do not follow each other, with garbage between them
        wide = torch.full((rows, inputs + 5), NAN, dtype=dtype)
        wide[:, :inputs] = x
        x = wide[:, :inputs]
    thinned, (xq, xs) = unpacked(pack_int4(weight), outputs, inputs), quantize_rows(x)
    expected = (xq.double() @ thinned.expand()[:, :inputs].double().T) * xs.double() * thinned.scales.double()
    if b is not None:
        expected += b.double()
    got = layer_of(weight, b)(x)
    assert got.dtype == dtype
    rtol, atol = (2**-8, 1e-5) if dtype == torch.bfloat16 else (1e-5, 2e-6)
    torch.testing.assert_close(got.double(), expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [False, True])
def test_neighbours_change_no_bit(dtype: torch.dtype, bias: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    b = torch.randn(150, generator=generator).to(dtype) if bias else None
    layer = layer_of(torch.randn(150, 333, generator=generator).to(dtype), b)
    x = torch.randn(200, 333, generator=generator).to(dtype)
    together = layer(x)
    for size in (1, 2, 3, 4, 5, 9, 31, 64):
        assert torch.equal(torch.cat([layer(part) for part in x.split(size)]), together)


def test_at_its_extremes() -> None:
    """Codes, steps and centres that make every weight -128 or 127, and activations of +-127: the largest sums."""
    inputs, outputs = 4096, 32
    codes = torch.full((outputs, inputs), 15, dtype=torch.uint8)
    codes[1] = 0
    codes[2, ::2] = 0
    steps = torch.full((outputs, inputs // 32), 17, dtype=torch.uint8)
    centres = torch.full((outputs, inputs // 32), 8, dtype=torch.int8)
    thinned = Thinned(codes, steps, centres, torch.ones(outputs))
    values = thinned.expand()
    assert sorted(set(values.flatten().tolist())) == [-128, 127]
    blocks, shift = packed(thinned)
    x = torch.ones(30, inputs)
    x[1] = -1
    x[2, ::2] = -1
    for rows in (x, x[:3]):
        got = torch.ops.headgate.int4_linear(rows, blocks, thinned.scales, shift, None, outputs)
        torch.testing.assert_close(got, rows @ values.float().T, rtol=1e-6, atol=0)


@pytest.mark.parametrize("rows", [3, 40])
@pytest.mark.parametrize("bad", [NAN, float("inf")])
def test_gives_no_number_for_a_row_that_is_not_finite(bad: float, rows: int) -> None:
    x = torch.ones(rows, 100)
    x[1, 17] = bad
    got = layer_of(torch.ones(70, 100))(x)
    assert not got[1].isfinite().any()
    assert (got[[0, 2]] - 100).abs().max() < 0.05


def test_bytes_read() -> None:
    # 4.5 bits per weight, and the scales.
    assert layer_of(torch.ones(128, 64)).nbytes == 128 * 64 * 9 // 16 + 128 * 4
    assert layer_of(torch.ones(128, 64), torch.ones(128)).nbytes == 128 * 64 * 9 // 16 + 2 * 128 * 4
    assert isinstance(CpuKernels().linear(torch.ones(2, 3), None, "int4"), NativeInt4Linear)


def test_refuses_what_does_not_fit() -> None:
    layer = layer_of(torch.ones(70, 100))
    with pytest.raises(RuntimeError, match="x has 130 inputs and 70 outputs are wanted; the weights are for 128"):
        layer(torch.ones(2, 130))
    with pytest.raises(RuntimeError, match="x must be float32 or bfloat16"):
        layer(torch.ones(2, 100, dtype=torch.float64))
    with pytest.raises(RuntimeError, match="weight must be float32 or bfloat16"):
        torch.ops.headgate.int4_pack(torch.ones(2, 2, dtype=torch.float64), None)
    with pytest.raises(RuntimeError, match=r"importance must be float32 \[30\]"):
        torch.ops.headgate.int4_pack(torch.ones(2, 30), torch.ones(2))
