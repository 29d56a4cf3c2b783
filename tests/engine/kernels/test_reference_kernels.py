"""The reference operations against loops in float64: they are the oracle of every other kernel."""

from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.engine.kernels.interface import AttentionBatch, KVLayer
from headgate.engine.kernels.reference import ReferenceKernels

CPU = torch.device("cpu")
sequences = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 9)).map(lambda p: (p[0], p[0] + p[1])), min_size=1, max_size=6
)


@settings(max_examples=60, deadline=None)
@given(
    spans=sequences,
    block_size=st.sampled_from([1, 4, 16]),
    heads=st.sampled_from([(1, 1), (4, 2), (6, 1)]),
    window=st.none() | st.integers(1, 20),
    whole=st.none() | st.integers(1, 6),
    seed=st.integers(0, 999),
)
def test_paged_attention(
    spans: list[tuple[int, int]],
    block_size: int,
    heads: tuple[int, int],
    window: int | None,
    whole: int | None,
    seed: int,
) -> None:
    """`whole`: so many rows, one behind the other, see each other."""
    generator = torch.Generator().manual_seed(seed)
    q_heads, kv_heads = heads
    dim = 8
    needed = [-(-stop // block_size) for _, stop in spans]
    order = torch.randperm(sum(needed), generator=generator).tolist()
    tables = [[order.pop() for _ in range(count)] for count in needed]
    slots_total = sum(needed) * block_size
    layer = KVLayer(*(torch.randn(slots_total, kv_heads, dim, generator=generator) for _ in range(2)))

    def slot(sequence: int, position: int) -> int:
        return tables[sequence][position // block_size] * block_size + position % block_size

    def limit(start: int, position: int, stop: int) -> int:
        return position + 1 if whole is None else min(stop, start + ((position - start) // whole + 1) * whole)

    q = torch.randn(sum(stop - start for start, stop in spans), q_heads, dim, generator=generator)
    limits = torch.tensor([limit(start, p, stop) for start, stop in spans for p in range(start, stop)])
    batch = AttentionBatch(
        counts=[stop - start for start, stop in spans],
        contexts=[stop for _, stop in spans],
        tables=tables,
        slots=torch.tensor([slot(i, p) for i, (start, stop) in enumerate(spans) for p in range(start, stop)]),
        block_size=block_size,
        limits=None if whole is None else limits.int(),
    )
    kernels = ReferenceKernels()
    out = kernels.paged_attention(q, layer, kernels.plan(batch, CPU), window)

    row = 0
    for i, (start, stop) in enumerate(spans):
        for position in range(start, stop):
            first = 0 if window is None else max(0, position - window + 1)
            seen = [slot(i, p) for p in range(first, limit(start, position, stop))]
            for head in range(q_heads):
                kv_head = head // (q_heads // kv_heads)
                keys, values = layer.keys[seen, kv_head].double(), layer.values[seen, kv_head].double()
                weights = (keys @ q[row, head].double() / math.sqrt(dim)).softmax(0)
                torch.testing.assert_close(out[row, head].double(), weights @ values, atol=1e-5, rtol=1e-5)
            row += 1


def test_int8_keys_and_values_are_within_half_a_step() -> None:
    generator = torch.Generator().manual_seed(0)
    keys, values = torch.randn(2, 5, 3, 40, generator=generator)
    layer = KVLayer(*torch.zeros(2, 8, 3, 40, dtype=torch.int8), *torch.zeros(2, 8, 3))
    slots = torch.tensor([7, 0, 3, 4, 1])
    ReferenceKernels().write_kv(layer, keys, values, slots)
    assert layer.key_scales is not None
    assert layer.value_scales is not None
    for given_, kept, scales in ((keys, layer.keys, layer.key_scales), (values, layer.values, layer.value_scales)):
        torch.testing.assert_close(scales[slots], given_.abs().amax(-1) / 127)
        error = (kept[slots] * scales[slots].unsqueeze(-1) - given_).abs()
        assert (error <= scales[slots].unsqueeze(-1) * 0.5001).all()


def test_norm_and_rotation() -> None:
    generator = torch.Generator().manual_seed(0)
    kernels = ReferenceKernels()
    x, residual = torch.randn(3, 8, generator=generator), torch.randn(3, 8, generator=generator)
    weight = torch.randn(8, generator=generator)
    total = (x + residual).double()
    normed = total / (total.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * weight.double()
    got, kept = kernels.add_rms_norm(x.clone(), residual.clone(), weight, 1e-6)
    torch.testing.assert_close(got.double(), normed, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(kept, x + residual)
    # A rotation by an angle, pair by pair: pair i is (i, i + dim / 2).
    head = torch.randn(3, 2, 8, generator=generator)
    angles = torch.rand(3, 4, generator=generator) * 6
    turned = kernels.rope(head, angles.cos(), angles.sin())
    for t in range(3):
        for i in range(4):
            pair = torch.complex(head[t, :, i].double(), head[t, :, i + 4].double())
            expected = pair * torch.polar(torch.ones(1).double(), angles[t, i].double())
            torch.testing.assert_close(turned[t, :, i].double(), expected.real, atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(turned[t, :, i + 4].double(), expected.imag, atol=1e-5, rtol=1e-5)


def test_written_keys_are_found_at_their_slots() -> None:
    layer = KVLayer(torch.zeros(6, 1, 2), torch.zeros(6, 1, 2))
    keys, values = torch.ones(2, 1, 2), torch.full((2, 1, 2), 2.0)
    ReferenceKernels().write_kv(layer, keys, values, torch.tensor([4, 1]))
    assert layer.keys[:, 0, 0].tolist() == [0, 1, 0, 0, 1, 0]
    assert layer.values[:, 0, 0].tolist() == [0, 2, 0, 0, 2, 0]
