"""Blocks as records: the keys and values of a block in all layers, one after the other in one stretch of bytes.

The pool has them layer by layer, as attention reads them. A copy of many small pieces is slow over a bus and as a file;
so they are gathered where they lie, and what travels is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headgate.engine.kv.shelf import Shelf
from headgate.engine.kv.store import KVStore
from headgate.engine.sampling.upload import upload


class BlockRecords(Protocol):
    """The blocks of a store."""

    def save(self, blocks: Sequence[int], shelf: Shelf, rows: Sequence[int]) -> Callable[[], None]:
        """Copy blocks to rows; on the step thread, before a step that may overwrite them.

        What is returned waits, on any thread, until they are there.
        """
        ...

    def open(self, blocks: Sequence[int]) -> Callable[[], None]:
        """Blocks that `load` will write to, which were just taken; on the step thread.

        What is returned is to be called on the thread that loads, before it does.
        """
        ...

    def load(self, shelf: Shelf, rows: Sequence[int], blocks: Sequence[int]) -> None:
        """Copy rows to blocks that nobody else reads or writes; they are there when it returns."""
        ...


def block_records(store: KVStore, device: torch.device) -> BlockRecords:
    """Of a store on `device`."""
    return DeviceRecords(store, device) if device.type == "cuda" else HostRecords(store)


def _parts(store: KVStore) -> list[Tensor]:
    """Each tensor of each layer as uint8 [blocks, bytes of a block]."""
    return [tensor.view(store.blocks, -1).view(torch.uint8) for tensor in store.tensors if tensor.numel()]


class HostRecords:
    """Implements BlockRecords in the memory of the host. Without torch, whose threads are those of the step."""

    def __init__(self, store: KVStore) -> None:
        self._use = store.use
        self._parts: list[NDArray[np.uint8]] = [part.numpy() for part in _parts(store)]

    def save(self, blocks: Sequence[int], shelf: Shelf, rows: Sequence[int]) -> Callable[[], None]:
        """See BlockRecords."""
        for block, row in zip(blocks, rows, strict=True):
            record, at = shelf.rows[row], 0
            for part in self._parts:
                piece = part[block]
                record[at : at + len(piece)] = piece
                at += len(piece)
        return _nothing

    def open(self, blocks: Sequence[int]) -> Callable[[], None]:
        """See BlockRecords."""
        self._use(blocks)
        return _nothing

    def load(self, shelf: Shelf, rows: Sequence[int], blocks: Sequence[int]) -> None:
        """See BlockRecords."""
        for block, row in zip(blocks, rows, strict=True):
            record, at = shelf.rows[row], 0
            for part in self._parts:
                piece = part[block]
                piece[:] = record[at : at + len(piece)]
                at += len(piece)


class Side:
    """A stream beside the step's, on which records travel in the order in which they were sent."""

    def __init__(self, device: torch.device) -> None:
        self._on = device.type == "cuda"
        self._stream: Any = torch.cuda.Stream(device) if self._on else None  # type: ignore[no-untyped-call]

    def mark(self) -> Callable[[], None]:
        """What is returned has this stream wait for all that the calling thread has launched on its own by now."""
        if not self._on:
            return _nothing
        there: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        there.record()
        return lambda: self._stream.wait_event(there)

    def run(self, work: Callable[[], Sequence[Tensor]]) -> Callable[[], None]:
        """Launch work here, which tells what it reads of other streams. What is returned waits for it."""
        if not self._on:
            work()
            return _nothing
        with torch.cuda.stream(self._stream):
            for tensor in work():
                tensor.record_stream(self._stream)
            done: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
            done.record()
        wait: Callable[[], None] = done.synchronize
        return wait


class DeviceRecords:
    """Implements BlockRecords on a GPU: blocks are packed there, and one copy for each goes over the bus.

    Packing runs on the step's stream, behind all that wrote to the blocks and before what will overwrite them. Copies,
    and what is loaded, run beside it.
    """

    def __init__(self, store: KVStore, device: torch.device) -> None:
        self._device = device
        self._parts = _parts(store)
        self._side = Side(device)

    def save(self, blocks: Sequence[int], shelf: Shelf, rows: Sequence[int]) -> Callable[[], None]:
        """See BlockRecords."""
        if not blocks:
            return _nothing
        which = upload(blocks, torch.int64, self._device)
        packed = torch.cat([part.index_select(0, which) for part in self._parts], dim=1)
        self._side.mark()()

        def send() -> Sequence[Tensor]:
            for row, record in zip(rows, packed, strict=True):
                shelf.memory[row].copy_(record, non_blocking=True)
            return (packed,)

        return self._side.run(send)

    def open(self, blocks: Sequence[int]) -> Callable[[], None]:  # noqa: ARG002
        """See BlockRecords: steps that were launched before may still write to the blocks."""
        return self._side.mark()

    def load(self, shelf: Shelf, rows: Sequence[int], blocks: Sequence[int]) -> None:
        """See BlockRecords."""

        def fetch() -> Sequence[Tensor]:
            with torch.inference_mode():
                which = upload(blocks, torch.int64, self._device)
                packed = torch.stack([shelf.memory[row].to(self._device, non_blocking=True) for row in rows])
                at = 0
                for part in self._parts:
                    part.index_copy_(0, which, packed[:, at : at + part.shape[1]])
                    at += part.shape[1]
            return ()

        self._side.run(fetch)()


def _nothing() -> None:
    """There is nothing to wait for."""
