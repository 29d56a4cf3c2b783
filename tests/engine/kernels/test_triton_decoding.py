"""Triton's steps on rows against plain torch's, in its interpreter."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from kernel_cases import CPU, randn
from row_cases import BLOCK_SIZE, rows_of
from triton_cases import in_the_interpreter, triton_kernels

from headgate.engine.kernels.device_rows import POSITION, PROMPTED, TOKEN, RowState
from headgate.engine.kernels.interface import AttentionBatch, KVLayer
from headgate.engine.kernels.reference import ReferenceKernels
from headgate.engine.kernels.reference_rows import ReferenceRows
from headgate.engine.sampling.noise import row_key, stream_key

pytestmark = in_the_interpreter

PLAIN = (0.0, 1.0, 0.0, 1.0, 0.0, 0.0)
FREQUENT = (0.0, 1.0, 0.0, 1.0, 0.0, 0.5)


def copy(state: RowState) -> RowState:
    return replace(state, numbers=state.numbers.clone(), counts=state.counts.clone())


def test_a_step_begins_with_what_its_rows_hold() -> None:
    state = rows_of([(PLAIN, 0)] * 5, 50, 0)
    state.numbers[0, POSITION] = 0
    order = torch.tensor([3, 0, 5, 4, 5])
    got, expected = triton_kernels().rows().begin(state, order), ReferenceRows().begin(state, order)
    for name in ("tokens", "positions", "slots", "keys"):
        assert torch.equal(getattr(got, name), getattr(expected, name)), name
    # The spare row's block.
    assert got.slots[2] == got.slots[4] == state.tables[5, 0] * BLOCK_SIZE


@pytest.mark.parametrize("seed", [0, 7, -1, 2**63 + 5])
def test_draws_have_the_keys_of_the_sampler(seed: int) -> None:
    state = rows_of([(PLAIN, 0)], 50, 0)
    stream = stream_key(seed, 1)
    state.numbers[0, :3] = torch.tensor([4, 122, stream - (stream >> 63 << 64)])
    for rows in (triton_kernels().rows(), ReferenceRows()):
        assert tuple(rows.begin(state, torch.tensor([0])).keys[0].tolist()) == row_key(seed, 1, 123)


def test_rows_go_on_and_the_last_does_not() -> None:
    state = rows_of([(PLAIN, 0), (FREQUENT, 0), (FREQUENT, 0)], 50, 0)
    order, chosen = torch.tensor([2, 3, 1, 0, 3]), torch.tensor([7, 9, -1, 3, -1])
    got, expected = copy(state), copy(state)
    triton_kernels().rows().advance(got, order, chosen)
    ReferenceRows().advance(expected, order, chosen)
    assert torch.equal(got.numbers, expected.numbers)
    assert torch.equal(got.counts[1:], expected.counts[1:])
    assert got.numbers[:, TOKEN].tolist() == [3, 0, 7, 0]
    assert (got.numbers[:, POSITION] - state.numbers[:, POSITION]).tolist() == [1, 1, 1, 0]
    assert got.counts[2, 7] == state.counts[2, 7] + 1
    assert got.counts[2, 7] % PROMPTED <= 4


@pytest.mark.parametrize("window", [None, 50])
@pytest.mark.parametrize("programs", [1, 256])
def test_attention_is_that_of_a_step_whose_geometry_the_host_knows(
    window: int | None, programs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headgate.engine.kernels.triton import plan

    monkeypatch.setattr(plan, "_PROGRAMS", programs)
    state = rows_of([(PLAIN, 0)] * 4, 50, 3)
    state.numbers[:4, POSITION] = torch.tensor([319, 0, 127, 200])
    order = torch.tensor([2, 0, 3, 1, 4])
    generator = torch.Generator().manual_seed(0)
    slots = (int(state.tables.max()) + 1) * BLOCK_SIZE
    layer = KVLayer(*(randn(generator, torch.float32, slots, 2, 16) for _ in range(2)))
    q = randn(generator, torch.float32, len(order), 4, 16)
    contexts = (state.numbers[order, POSITION] + 1).tolist()
    tables = [state.tables[row].tolist() for row in order.tolist()]
    batch = AttentionBatch([1] * len(order), contexts, tables, torch.zeros(0, dtype=torch.int64), BLOCK_SIZE)
    kernels, reference = triton_kernels(), ReferenceKernels()
    got = kernels.paged_attention(q, layer, kernels.rows().begin(state, order).plan, window)
    assert torch.equal(got, kernels.paged_attention(q, layer, kernels.plan(batch, CPU), window))
    plain = reference.paged_attention(q, layer, reference.rows().begin(state, order).plan, window)
    torch.testing.assert_close(plain, reference.paged_attention(q, layer, reference.plan(batch, CPU), window))
    torch.testing.assert_close(got, plain, rtol=1e-4, atol=1e-5)
