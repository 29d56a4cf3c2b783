"""The compiled gated delta rule: what plain torch computes, and the same bits however a prompt is cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kernel_cases import CPU, REFERENCE, dtypes, needs_kernels
from torch import Tensor

from headgate.engine.kernels.cpu.kernels import CpuKernels
from headgate.engine.kernels.interface import AttentionBatch
from headgate.engine.kernels.states import DeltaPasses, StepStates
from headgate.engine.models.delta import GatedDelta, PlainDeltaPasses
from headgate.engine.models.spec import DeltaSpec
from headgate.engine.quant.linear import DenseLinear

pytestmark = needs_kernels

# Full vectors of every width, and what is left of them; heads that share keys.
SPECS = (
    DeltaSpec(key_heads=1, value_heads=1, key_dim=16, value_dim=16, convolved=2),
    DeltaSpec(key_heads=2, value_heads=4, key_dim=32, value_dim=144, convolved=4),
    DeltaSpec(key_heads=2, value_heads=2, key_dim=48, value_dim=80, convolved=8),
)
SLOTS = 9


def make_layer(spec: DeltaSpec, draw: torch.Generator) -> GatedDelta:
    heads = spec.value_heads
    return GatedDelta(
        spec=spec,
        place=2,
        gates=DenseLinear(torch.zeros(2 * heads, 1)),
        convolution=torch.randn(spec.convolved, spec.channels, generator=draw),
        decay=-torch.rand(heads, generator=draw),
        decay_bias=torch.randn(heads, generator=draw),
        norm=torch.rand(spec.value_dim, generator=draw),
        norm_eps=1e-6,
    )


@dataclass
class Rows:
    """What a layer takes of some tokens."""

    mixed: Tensor
    gates: Tensor

    @classmethod
    def draw(cls, spec: DeltaSpec, count: int, dtype: torch.dtype, draw: torch.Generator) -> Rows:
        values = spec.value_heads * spec.value_dim
        mixed = torch.randn(count, spec.channels + values, generator=draw).to(dtype)
        return cls(mixed, torch.randn(count, 2 * spec.value_heads, generator=draw).to(dtype))

    def through(self, passes: DeltaPasses, layer: GatedDelta, begin: int, end: int) -> Tensor:
        return passes(layer, self.mixed[begin:end], self.gates[begin:end])


def pools_of(spec: DeltaSpec, draw: torch.Generator) -> list[Tensor]:
    """Of two layers."""
    return [torch.randn(SLOTS, *each.shape, generator=draw) for each in spec.state_shapes * 2]


def batch_of(
    counts: Sequence[int],
    contexts: Sequence[int],
    pools: Sequence[Tensor] | None,
    slots: Sequence[int] = (),
    saves: Sequence[Sequence[tuple[int, int]]] = (),
) -> AttentionBatch:
    states = None if pools is None else StepStates(pools, slots, saves or [()] * len(counts))
    return AttentionBatch(counts, contexts, [()] * len(counts), torch.empty(0, dtype=torch.int64), 16, states)


def native(spec: DeltaSpec, batch: AttentionBatch) -> DeltaPasses:
    passes = CpuKernels().delta_passes(spec, batch)
    assert passes is not None
    return passes


def near(got: Tensor, expected: Tensor) -> None:
    rtol, atol = (2**-7, 2e-3) if got.dtype == torch.bfloat16 else (1e-4, 1e-4)
    torch.testing.assert_close(got, expected, rtol=rtol, atol=atol)


@given(st.sampled_from(SPECS), dtypes, st.integers(0, 2**16))
def test_steps_are_those_of_plain_torch(spec: DeltaSpec, dtype: torch.dtype, seed: int) -> None:
    """Sequences that begin and that go on, of one token and of more than pass together, with states to be kept."""
    draw = torch.Generator().manual_seed(seed)
    layer, mine = make_layer(spec, draw), pools_of(spec, draw)
    plain = [pool.clone() for pool in mine]
    counts, contexts = [1, 37, 70, 1, 1, 5], [8, 37, 75, 1, 90, 5]
    saves: list[list[tuple[int, int]]] = [[], [(16, 6), (37, 7)], [], [], [(90, 8)], []]
    rows = Rows.draw(spec, sum(counts), dtype, draw)
    got, expected = (
        rows.through(passes, layer, 0, sum(counts))
        for passes in (
            native(spec, batch_of(counts, contexts, mine, [3, 0, 5, 1, 4, 2], saves)),
            PlainDeltaPasses(batch_of(counts, contexts, plain, [3, 0, 5, 1, 4, 2], saves), CPU),
        )
    )
    assert got.dtype == dtype
    near(got, expected)
    for a, b in zip(mine, plain, strict=True):
        near(a, b)
    assert all(torch.equal(a, b) for a, b in zip(mine[:2], plain[:2], strict=True))  # of another layer


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("spec", SPECS[1:])
def test_a_token_gets_the_same_bits_however_its_prompt_is_cut(spec: DeltaSpec, dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(0)
    layer, pools = make_layer(spec, draw), pools_of(spec, draw)
    rows, outcomes = Rows.draw(spec, 75, dtype, draw), []
    threads = torch.get_num_threads()
    try:
        for count, parts in ((1, [75]), (2, [75]), (1, [1, 33, 1, 40]), (2, [32, 32, 11]), (1, [1] * 75)):
            torch.set_num_threads(count)
            own = [pool.clone() for pool in pools]
            found = [
                rows.through(native(spec, batch_of([end - begin], [end], own, [4])), layer, begin, end)
                for begin, end in pairwise(accumulate(parts, initial=0))
            ]
            outcomes.append((torch.cat(found), *own))
    finally:
        torch.set_num_threads(threads)
    for other in outcomes[1:]:
        assert all(torch.equal(a, b) for a, b in zip(outcomes[0], other, strict=True))
    # Nor does it matter who is beside it, or whether the state is kept.
    beside = Rows(torch.cat([rows.mixed[:9], rows.mixed]), torch.cat([rows.gates[:9], rows.gates]))
    for each in (batch_of([9, 75], [9, 75], None), batch_of([9, 75], [9, 75], pools, [1, 2])):
        for _ in range(2):  # layers
            assert torch.equal(beside.through(native(spec, each), layer, 0, 84)[9:], outcomes[0][0])


def test_what_is_not_finite_stays_in_its_sequence() -> None:
    spec, draw = SPECS[1], torch.Generator().manual_seed(0)
    layer, pools = make_layer(spec, draw), pools_of(spec, draw)
    rows = Rows.draw(spec, 6, torch.float32, draw)
    rows.mixed[1] = float("nan")
    # Of these nothing is left of the state before.
    strong = replace(layer, decay=torch.full_like(layer.decay, -1e9))
    found = rows.through(native(spec, batch_of([3, 3], [5, 5], pools, [0, 1])), strong, 0, 6)
    assert found[0].isfinite().all()
    assert found[1:3].isnan().all()
    assert found[3:].isfinite().all()
    assert pools[3][1].isfinite().all()


def test_other_shapes_are_left_to_plain_torch() -> None:
    batch = batch_of([1], [1], None)
    for other in ({"key_dim": 24}, {"value_dim": 8}, {"convolved": 9}):
        assert CpuKernels().delta_passes(replace(SPECS[0], **other), batch) is None
    assert REFERENCE.delta_passes(SPECS[0], batch) is None


def test_what_does_not_fit_is_refused() -> None:
    spec, draw = SPECS[1], torch.Generator().manual_seed(0)
    layer, pools = make_layer(spec, draw), pools_of(spec, draw)
    rows = Rows.draw(spec, 4, torch.float32, draw)
    with pytest.raises(
        IndexError, match=r"span 0 of 4 tokens from row 0, from slot -1 to 9, does not fit 4 rows and 9"
    ):
        rows.through(native(spec, batch_of([4], [4], pools, [SLOTS])), layer, 0, 4)
    with pytest.raises(IndexError, match="does not fit 3 rows"):
        rows.through(native(spec, batch_of([4], [4], pools, [0])), layer, 0, 3)
    fits = native(spec, batch_of([4], [4], pools, [0]))
    with pytest.raises(RuntimeError, match=r"gates .* of the same type"):
        fits(layer, rows.mixed, rows.gates.bfloat16())
    with pytest.raises(RuntimeError, match="decay must be contiguous float32 of 4 elements"):
        fits(replace(layer, decay=layer.decay[:2]), rows.mixed, rows.gates)
