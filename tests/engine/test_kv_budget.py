"""How much memory keys and values get where nobody says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from headgate.engine.assembling.largest_step import largest_step
from headgate.engine.kernels.device_rows import RowState
from headgate.engine.kernels.reference import ReferenceKernels
from headgate.engine.kv.budget import host_memory, kv_budget, measured_budget
from headgate.engine.models.loader import load_decoder
from headgate.engine.scheduling.limits import Limits

GIB = 2**30


def test_a_container_has_the_memory_that_it_is_bounded_to(tmp_path: Path) -> None:
    (bound := tmp_path / "memory.max").write_text(f"{GIB}\n")
    assert host_memory([bound, tmp_path / "absent"]) == GIB


def test_without_a_bound_the_machine_has_what_it_has(tmp_path: Path) -> None:
    (unbounded := tmp_path / "memory.max").write_text("max\n")
    (version_1 := tmp_path / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert host_memory([unbounded, version_1]) == host_memory([])


def test_keys_and_values_get_a_quarter_of_it() -> None:
    def never() -> None:
        raise AssertionError("on the CPU no step is tried")

    assert kv_budget(torch.device("cpu"), [never]) == host_memory() // 4


class Gpu:
    """A device whose steps take what they say."""

    def __init__(self, free: int) -> None:
        self._free = free

    def peak(self, work: Callable[[], object]) -> int:
        taken = work()
        assert isinstance(taken, int)
        return taken

    def free(self) -> int:
        return self._free


@pytest.mark.parametrize(
    ("free", "steps", "budget"),
    [(100, (), 80), (100, (5,), 80), (100, (20, 50, 3), 45), (9, (50,), 0)],
)
def test_a_gpu_keeps_room_for_the_largest_step_of_any_model(free: int, steps: tuple[int, ...], budget: int) -> None:
    works = [lambda taken=taken: taken for taken in steps]  # type: ignore[misc]
    assert measured_budget(Gpu(free), works) == budget


def test_rows_on_the_device_are_set_aside_and_counted_to_the_byte() -> None:
    assert measured_budget(Gpu(200), [lambda: 20], 100) == 72
    assert measured_budget(Gpu(50), [], 100) == 0
    state = RowState.empty(7, 5, 320, 16, 0, torch.device("cpu"))
    parts = (state.numbers, state.choices, state.tables, state.counts, state.bias_tokens, state.bias_values)
    assert RowState.nbytes(7, 5, 320) == sum(part.nbytes for part in parts)


@pytest.mark.parametrize(("tokens", "running", "rows"), [(40, 7, 7), (10_000, 64, 64)])
def test_the_largest_step_fills_its_tokens_and_rows(
    tiny_checkpoint: Path, tokens: int, running: int, rows: int
) -> None:
    decoder = load_decoder(tiny_checkpoint, ReferenceKernels()).decoder
    limits = Limits(tokens, running, 0.5, 0, 64, 0.1)
    for kept in (decoder.dtype, torch.int8):
        assert largest_step(decoder, limits, 16, kept).shape == (rows, decoder.spec.vocab_size)
