"""Triton's steps on rows against plain torch's, in its interpreter."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from kernel_cases import CPU, randn
from row_cases import BLOCK_SIZE, rows_of
from triton_cases import in_the_interpreter, right_fp8, triton_kernels

from headgate.engine.kernels.checks.inputs import expanded, rounded_layer
from headgate.engine.kernels.device_rows import POSITION, PROMPTED, TOKEN, RowState
from headgate.engine.kernels.interface import AttentionBatch, HeadNorms, KVLayer
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
    logprobs, (told, wanted) = torch.tensor([-0.5, -1.0, float("nan"), -2.25, 0.0]), torch.ones(2, 2, 5).double()
    triton_kernels().rows().advance(got, order, chosen, logprobs, told)
    ReferenceRows().advance(expected, order, chosen, logprobs, wanted)
    torch.testing.assert_close(told, torch.stack([chosen.double(), logprobs.double()]), rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(wanted, told, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(got.numbers, expected.numbers)
    assert torch.equal(got.counts[1:], expected.counts[1:])
    assert got.numbers[:, TOKEN].tolist() == [3, 0, 7, 0]
    assert (got.numbers[:, POSITION] - state.numbers[:, POSITION]).tolist() == [1, 1, 1, 0]
    assert got.counts[2, 7] == state.counts[2, 7] + 1
    assert got.counts[2, 7] % PROMPTED <= 4


CACHES = {"whole": None, "int8": torch.int8, "fp8": torch.float8_e4m3fn}


@pytest.mark.parametrize(
    ("cache", "programs", "window", "group", "dim", "normed", "sinks"),
    [
        ("whole", 256, None, 2, 24, True, False),
        ("whole", 1, None, 1, 16, False, True),
        ("whole", 256, 50, 8, 32, True, True),
        ("whole", 1, 50, 2, 16, True, False),
        ("int8", 256, None, 2, 16, True, True),
        ("fp8", 256, None, 2, 16, True, False),
        ("fp8", 1, 50, 8, 24, False, False),
    ],
)
@pytest.mark.usefixtures(right_fp8.__name__)
def test_a_step_of_tokens_is_attended_in_one_launch_as_in_two(
    cache: str,
    programs: int,
    window: int | None,
    group: int,
    dim: int,
    *,
    normed: bool,
    sinks: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from headgate.engine.kernels.triton import attention

    monkeypatch.setattr(attention, "_PROGRAMS", programs)
    state = rows_of([(PLAIN, 0)] * 4, 50, 3)
    state.numbers[:4, POSITION] = torch.tensor([319, 0, 127, 200])
    order = torch.tensor([2, 0, 3, 1])
    generator = torch.Generator().manual_seed(1)

    def draw(*shape: int) -> torch.Tensor:
        return randn(generator, torch.float32, *shape)

    slots = (int(state.tables.max()) + 1) * BLOCK_SIZE
    layer = KVLayer(draw(slots, 2, dim), draw(slots, 2, dim))
    kind = CACHES[cache]
    if kind is not None:
        low = rounded_layer(kind, slots, 2, dim, device=CPU)
        ReferenceKernels().write_kv(low, layer.keys, layer.values, torch.arange(slots))
        layer = low
    # As a layer has them: parts of one projection.
    q, k, v = (
        t.unflatten(1, (-1, dim)) for t in draw(4, (group + 2) * 2 * dim).split([group * 2 * dim, 2 * dim, 2 * dim], 1)
    )
    norms = HeadNorms(draw(dim), draw(dim), 1e-6) if normed else None
    angles = draw(4, dim // 2)
    scores = draw(2 * group) * 3 if sinks else None
    found = []
    for kernels in (triton_kernels(), ReferenceKernels()):
        mine = KVLayer(
            *(
                None if t is None else t.clone()
                for t in (layer.keys, layer.values, layer.key_scales, layer.value_scales)
            )
        )
        step = kernels.rows().begin(state, order)
        turns = angles.cos(), angles.sin()
        out = kernels.attend(q, k, v, norms, *turns, mine, step.slots, step.plan, window, sinks=scores)
        found.append((out, expanded(mine)))
    (got, kept), (expected, reference) = found
    # fp8 has three bits of fraction: where two ways are a bit apart, a number may be rounded to its neighbour.
    near = {"rtol": 1e-4, "atol": 1e-5} if kind is None else {"rtol": 0.02, "atol": 0.05}
    torch.testing.assert_close(got, expected, **near)
    for mine, theirs in zip(kept, reference, strict=True):
        torch.testing.assert_close(mine, theirs, **near)


def test_no_part_is_expected_by_the_next_layer() -> None:
    state = rows_of([(PLAIN, 0)] * 2, 50, 3)
    state.numbers[:2, POSITION] = torch.tensor([319, 3])
    kernels, slots = triton_kernels(), (int(state.tables.max()) + 1) * BLOCK_SIZE
    step = kernels.rows().begin(state, torch.tensor([0, 1]))
    layer = KVLayer(torch.zeros(slots, 2, 16), torch.zeros(slots, 2, 16))
    q, k, angles = torch.zeros(2, 4, 16), torch.zeros(2, 2, 16), torch.zeros(2, 8)
    for _ in range(2):
        kernels.attend(q, k, k, None, angles, angles, layer, step.slots, step.plan, None)
        assert not step.plan.arrivals.any()


@pytest.mark.parametrize("window", [None, 50])
@pytest.mark.parametrize("programs", [1, 256])
def test_attention_is_that_of_a_step_whose_geometry_the_host_knows(
    window: int | None, programs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headgate.engine.kernels.triton import attention

    monkeypatch.setattr(attention, "_PROGRAMS", programs)
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
    torch.testing.assert_close(got, kernels.paged_attention(q, layer, kernels.plan(batch, CPU), window))
    plain = reference.paged_attention(q, layer, reference.rows().begin(state, order).plan, window)
    torch.testing.assert_close(plain, reference.paged_attention(q, layer, reference.plan(batch, CPU), window))
    torch.testing.assert_close(got, plain, rtol=1e-4, atol=1e-5)
