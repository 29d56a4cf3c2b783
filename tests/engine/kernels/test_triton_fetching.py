"""Which weights are asked for while a token is attended, in Triton's interpreter: nothing else may change by it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kernel_cases import randn
from row_cases import BLOCK_SIZE, rows_of
from test_experts import make
from triton_cases import in_the_interpreter, triton_kernels

from headgate.engine.kernels.interface import KVLayer, Mlp
from headgate.engine.kernels.reference import ReferenceKernels

pytestmark = in_the_interpreter

REFERENCE = ReferenceKernels()
CHUNK = 4096
PLAIN = (0.0, 1.0, 0.0, 1.0, 0.0, 0.0)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The addresses of all chunks that are asked for. The instruction that does so has no interpreter."""
    from headgate.engine.kernels.triton import fetching

    found: list[int] = []

    def ask(address: Any, wanted: Any) -> None:
        found.extend(address.handle.data[wanted.handle.data.astype(bool)].tolist())

    monkeypatch.setattr(fetching, "ask", ask)
    return found


def attended(then: object, rows: int, fetches: int) -> torch.Tensor:
    """What attention of so many sequences' tokens gives."""
    generator, kernels = torch.Generator().manual_seed(1), triton_kernels()
    state = rows_of([(PLAIN, 0)] * rows, 50, 3)
    state.numbers[:rows, 1] = torch.arange(rows) * 37 + 20
    slots = (int(state.tables.max()) + 1) * BLOCK_SIZE
    layer = KVLayer(*(randn(generator, torch.float32, slots, 2, 16) for _ in range(2)))
    q, k, v, angles = (randn(generator, torch.float32, rows, *shape) for shape in ((4, 16), (2, 16), (2, 16), (8,)))
    step = kernels.rows().begin(state, torch.arange(rows), fetches)
    return kernels.attend(q, k, v, None, angles.cos(), angles.sin(), layer, step.slots, step.plan, None, then)


@pytest.mark.parametrize(("rows", "fetches", "first", "second"), [(1, 1 << 30, 48, 24), (3, 50 * CHUNK, 48, 2)])
def test_the_gates_then_the_downs_of_a_layer_are_asked_for(
    rows: int, fetches: int, first: int, second: int, asked: list[int]
) -> None:
    kernels = triton_kernels()
    gate_up, down = torch.zeros(768, 64), torch.zeros(64, 385)  # 48 chunks, and 24 with some bytes left
    mlp = Mlp(kernels.linear(gate_up, None, "native"), kernels.linear(down, None, "native"))
    assert torch.equal(attended(mlp, rows, fetches), attended(mlp, rows, 0))
    wanted = [gate_up.data_ptr() + CHUNK * n for n in range(first)]
    wanted += [down.data_ptr() + CHUNK * n for n in range(second)]
    assert sorted(asked) == sorted(wanted)


def test_weights_that_begin_anywhere_are_not_asked_for(asked: list[int]) -> None:
    kernels, room = triton_kernels(), torch.zeros(64 * 64 + 1)
    odd = kernels.linear(room[1:].view(64, 64), None, "native")
    even = kernels.linear(room[:-1].view(64, 64), None, "native")
    for mlp in (Mlp(odd, even), Mlp(even, odd)):
        attended(mlp, 1, 1 << 30)
    assert not asked


@pytest.mark.parametrize("count", [4, 12])
def test_a_router_guesses_what_the_next_layer_chooses(count: int, asked: list[int]) -> None:
    kernels = triton_kernels()
    weights = [make(64, 64, count, 2, dtype=torch.float32, seed=seed) for seed in range(3)]
    mixtures = [kernels.mixture(each, "native") for each in weights]
    generator = torch.Generator().manual_seed(0)
    norms = [randn(generator, torch.float32, 64) for _ in weights]
    kernels.connect(list(zip(norms, mixtures, strict=True)))
    x, residual = (randn(generator, torch.float32, 1, 64) for _ in range(2))
    attended(mixtures[0], 1, 1 << 30)
    assert not asked  # nobody guesses what the first one chooses
    for number in range(2):
        plain = REFERENCE.mixture(weights[number], "native")
        expected, _ = REFERENCE.add_rms_norm(x, residual, norms[number], 1e-6)
        normed, _ = kernels.add_rms_norm(x, residual.clone(), norms[number], 1e-6, mixtures[number])
        torch.testing.assert_close(mixtures[number](normed), plain(expected), rtol=1e-4, atol=1e-4)
        asked.clear()
        following = mixtures[number + 1]
        with_guess = attended(following, 1, 2 * 11 * CHUNK)
        assert torch.equal(with_guess, attended(following, 1, 0))
        guessed, _ = REFERENCE.add_rms_norm(x, residual, norms[number + 1], 1e-6)
        likeliest = (guessed.float() @ weights[number + 1].router.float().T).topk(2).indices[0].tolist()
        fetched = following.fetched
        assert fetched is not None
        first, second = fetched.first, fetched.second
        # Of each expert 8 chunks of gates and ups, then the first 3 of 4 of downs.
        wanted = [first[expert].data_ptr() + CHUNK * n for expert in likeliest for n in range(8)]
        wanted += [second[expert].data_ptr() + CHUNK * n for expert in likeliest for n in range(3)]
        assert sorted(asked) == sorted(wanted)


def test_what_came_normed_leaves_the_guess_alone(asked: list[int]) -> None:
    kernels, weights = triton_kernels(), make(64, 64, 4, 2, dtype=torch.float32)
    before, after = (kernels.mixture(weights, "native") for _ in range(2))
    kernels.connect([(torch.ones(64), before), (torch.ones(64), after)])
    x = torch.linspace(-1, 1, 128).view(2, 64)
    plain = REFERENCE.mixture(weights, "native")
    torch.testing.assert_close(before(x), plain(x), rtol=1e-4, atol=1e-4)
    fetched = after.fetched
    assert fetched is not None
    assert fetched.logits is not None
    assert not fetched.logits.any()
    assert not asked


@pytest.mark.parametrize(("count", "shared"), [(4, 16), (6, 0)])
def test_no_guess_with_a_shared_expert_or_with_experts_in_broken_runs(count: int, shared: int) -> None:
    kernels = triton_kernels()
    weights = make(64, 64, count, 2, shared=shared, dtype=torch.float32)
    mixtures = [kernels.mixture(weights, "native") for _ in range(2)]
    kernels.connect([(torch.ones(64), each) for each in mixtures])
    assert [each.fetched for each in mixtures] == [None, None]
