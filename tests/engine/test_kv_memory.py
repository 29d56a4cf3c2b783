"""How keys and values lie in the host's memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from headgate.engine.kernels.reference import ReferenceKernels
from headgate.engine.kv.memory import HUGE_PAGE, HostMemory
from headgate.engine.kv.store import KVStore
from headgate.engine.models.loader import load_decoder


def resident_bytes() -> int:
    """Of this process."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096


@pytest.mark.parametrize(("count", "alignment"), [(100, 64), (HUGE_PAGE - 1, 64), (3 * HUGE_PAGE, HUGE_PAGE)])
def test_memory_is_zero_and_starts_at_a_line_or_a_huge_page(count: int, alignment: int) -> None:
    zeros = HostMemory().zeros(count)
    assert zeros.shape == (count,)
    assert not zeros.any()
    assert zeros.data_ptr() % alignment == 0


def test_little_that_is_written_takes_little() -> None:
    memory = HostMemory()
    tensors = [memory.zeros(4 * HUGE_PAGE) for _ in range(32)]
    before = resident_bytes()
    for tensor in tensors:
        tensor[:5000] = 1
    assert resident_bytes() - before < 16 * HUGE_PAGE


def test_what_was_written_stays_when_more_is(tiny_checkpoint: Path) -> None:
    decoder = load_decoder(tiny_checkpoint, ReferenceKernels()).decoder
    spec = decoder.spec
    in_huge_page = HUGE_PAGE // (16 * spec.kv_heads * spec.head_dim * decoder.dtype.itemsize)
    store = KVStore(spec, in_huge_page + 2, 16, decoder.dtype, torch.device("cpu"))
    tensors = [tensor for layer in store.layers for tensor in (layer.keys, layer.values)]
    store.use([0, in_huge_page - 1])
    places = [tensor.data_ptr() for tensor in tensors]
    for number, tensor in enumerate(tensors):
        tensor[:77] = number + 1
    for _ in range(2):
        store.use([3, in_huge_page])
    for number, tensor in enumerate(tensors):
        assert tensor.data_ptr() == places[number]
        assert (tensor[:77] == number + 1).all()
        assert not tensor[77:].any()


def test_released_memory_is_given_back(tiny_checkpoint: Path) -> None:
    decoder = load_decoder(tiny_checkpoint, ReferenceKernels()).decoder
    store = KVStore(decoder.spec, 10_000, 16, decoder.dtype, torch.device("cpu"))
    before = resident_bytes()
    for layer in store.layers:
        layer.keys.fill_(1)
    size = store.nbytes // 2
    assert resident_bytes() - before > size * 0.9
    del layer
    store.release()
    assert resident_bytes() - before < size * 0.1
