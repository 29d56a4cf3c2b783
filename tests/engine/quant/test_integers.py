"""Packed integers stand for what their formats say, in every layout and shape."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from packed_checkpoints import Integers, awq, compressed, gptq, in_bytes

from headgate.engine.errors import CheckpointError
from headgate.engine.quant.integers import IntegerWeight, Layout


@st.composite
def integers(draw: st.DrawFn, layout: Layout) -> tuple[Integers, int]:
    """Any codes, zeros and scales of such a layout, and the length of a group where they follow each other."""
    outputs, inputs = draw(st.integers(1, 20)), draw(st.integers(1, 70))
    outputs = outputs * 8 if layout == "awq" else outputs
    bits = {"awq": 4, "bytes": 8}.get(layout) or draw(st.sampled_from([4, 8]))
    run = draw(st.integers(1, inputs))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    count = -(-inputs // run)
    groups = np.arange(inputs) // run
    if layout == "gptq" and draw(st.booleans()):
        groups = generator.permutation(groups)
    codes = generator.integers(0, 2**bits, (outputs, inputs))
    zeros = generator.integers(0, 2**bits, (outputs, count))
    dtype = draw(st.sampled_from([torch.float16, torch.bfloat16, torch.float32]))
    scales = torch.from_numpy(generator.normal(size=(outputs, count))).to(dtype)
    return Integers(bits, codes, zeros, scales, groups), run


def tensors_of(weight: Integers, layout: Layout, form: str) -> tuple[Any, ...]:
    """Codes, scales, zeros, groups and whether zeros are short."""
    if layout == "gptq":
        named = gptq(weight, version=1 if form == "short" else 2)
        return named["qweight"], named["scales"], named["qzeros"], named["g_idx"], form == "short"
    if layout == "awq":
        named = awq(weight)
        return named["qweight"], named["scales"], named["qzeros"], None, False
    if layout == "packed":
        named = compressed(weight, zeros="bytes" if form == "short" else "words")
        return named["weight_packed"], named["weight_scale"], named["weight_zero_point"], None, False
    named = in_bytes(weight, zeros=True)
    return named["weight"], named["weight_scale"], named["weight_zero_point"], None, False


@pytest.mark.parametrize("layout", get_args(Layout))
@pytest.mark.parametrize("form", ["short", "full"])
@given(data=st.data())
@settings(max_examples=25)
def test_every_number_is_the_one_that_was_packed(layout: Layout, form: str, data: st.DataObject) -> None:
    weight, run = data.draw(integers(layout))
    codes, scales, zeros, groups, short = tensors_of(weight, layout, form)
    shape = (weight.codes.shape[0], weight.codes.shape[1])
    kept = IntegerWeight("a weight", shape, weight.bits, layout, codes, scales, zeros, short, groups, run)
    assert torch.equal(kept.to(torch.device("cpu")).expand(torch.float32), weight.weight())
    assert torch.equal(kept.expand(torch.bfloat16), weight.weight().bfloat16())


@pytest.mark.parametrize("layout", ["packed", "bytes"])
def test_without_zeros_they_are_in_the_middle(layout: Layout) -> None:
    codes = np.arange(256).reshape(2, 128)
    weight = Integers(8, codes, np.full((2, 1), 128), torch.tensor([[0.5], [0.0]]), np.zeros(128, int))
    found, scales, _, _, _ = tensors_of(weight, layout, "full")
    kept = IntegerWeight("a weight", (2, 128), 8, layout, found, scales, None, False, None, 128)
    assert torch.equal(kept.expand(torch.float32), weight.weight())
    # A scale of zero is one of a group of zeros.
    assert not kept.expand(torch.float32)[1].any()


def test_a_matrix_of_many_parts() -> None:
    """Larger than what is expanded at a time."""
    generator = np.random.default_rng(0)
    shape = (40, 1 << 16)
    weight = Integers(
        4,
        generator.integers(0, 16, shape),
        generator.integers(0, 16, (40, 2)),
        torch.rand(40, 2),
        np.arange(1 << 16) // (1 << 15),
    )
    for layout, form in (("gptq", "short"), ("awq", ""), ("packed", "")):
        codes, scales, zeros, groups, short = tensors_of(weight, layout, form)  # type: ignore[arg-type]
        kept = IntegerWeight("a weight", shape, 4, layout, codes, scales, zeros, short, groups, 1 << 15)  # type: ignore[arg-type]
        assert torch.equal(kept.expand(torch.float32), weight.weight())


def test_what_cannot_be_meant_is_refused() -> None:
    weight = Integers(4, np.ones((8, 32), int), np.ones((8, 2), int), torch.ones(8, 2), np.arange(32) // 16)
    codes, scales, zeros, groups, _ = tensors_of(weight, "gptq", "full")
    for damage, message in (
        ({"scales": scales.clone().fill_(float("nan"))}, "a weight: a scale is no finite number"),
        ({"scales": scales.clone().fill_(float("inf"))}, "a weight: a scale is no finite number"),
        ({"groups": groups + 1}, "a weight: g_idx names the group 2; there are those from 0 to 1"),
        ({"groups": groups - 1}, "a weight: g_idx names the group -1; there are those from 0 to 1"),
    ):
        parts = {"codes": codes, "scales": scales, "zeros": zeros, "groups": groups} | damage
        kept = IntegerWeight("a weight", (8, 32), 4, "gptq", short=False, run=16, **parts)
        with pytest.raises(CheckpointError, match=message):
            kept.expand(torch.float32)
