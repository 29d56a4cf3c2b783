"""The tier in host memory: rows that records are in, and through which those on disk come and go."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headgate.engine.kv.memory import HostMemory
from headgate.engine.kv.order import Order

_CHUNK = 1 << 28  # bytes


def host_rows(rows: int, nbytes: int, *, pinned: bool) -> list[Tensor]:
    """Each uint8 [nbytes]: `pinned`, which a GPU copies from and to by itself, or memory that is taken as it is used.

    Raises:
        RuntimeError: the system pins no such memory.
    """
    if not pinned:
        return list(HostMemory().zeros(rows * nbytes).view(rows, nbytes))
    # torch pins the next power of two of bytes, which of tens of gigabytes may be twice as many.
    at_a_time = max(1, _CHUNK // nbytes)
    sizes = [min(at_a_time, rows - start) for start in range(0, rows, at_a_time)]
    return [row for size in sizes for row in torch.empty(size, nbytes, dtype=torch.uint8, pin_memory=True)]


class Shelf:
    """Rows of host memory with the records in them, by identity. Any thread may call it.

    A row that somebody uses is given to nobody else. When all are taken the one goes that `Order` says.
    """

    def __init__(self, memory: Iterable[Tensor]) -> None:
        """`memory`: of each row, uint8 [bytes of a record]."""
        self.memory: Sequence[Tensor] = list(memory)
        self.rows: Sequence[NDArray[np.uint8]] = [row.numpy() for row in self.memory]
        """The same memory."""
        self._lock = threading.Lock()
        self._order = Order()
        self._row_of: dict[bytes, int] = {}
        self._name_of: dict[int, bytes] = {}
        self._users = [0] * len(self.memory)
        self._free = list(reversed(range(len(self.memory))))

    def __len__(self) -> int:
        """Records."""
        return len(self._row_of)

    @property
    def nbytes(self) -> int:
        """Of all rows."""
        return sum(row.nbytes for row in self.memory[:1]) * len(self.memory)

    def holds(self, identity: bytes) -> bool:
        """Whether the record is there now."""
        return identity in self._row_of

    def take(self) -> int | None:
        """A row for a record, in use from then on; None where all are."""
        with self._lock:
            if self._free:
                row = self._free.pop()
            elif (gone := self._order.pop()) is not None:
                row = self._row_of.pop(gone)
                del self._name_of[row]
            else:
                return None
            self._users[row] = 1
            return row

    def name(self, row: int, identity: bytes, parent: bytes) -> None:
        """What is in a row that was taken. Where the record is in another one already, this one stays nameless."""
        with self._lock:
            if identity in self._row_of:
                return
            self._row_of[identity], self._name_of[row] = row, identity
            self._order.add(identity, parent)
            self._order.hold(identity)

    def use(self, identity: bytes) -> int | None:
        """The row of a record, in use from then on."""
        with self._lock:
            row = self._row_of.get(identity)
            if row is not None:
                self._users[row] += 1
                self._order.touch(identity)
                self._order.hold(identity)
            return row

    def done(self, row: int) -> None:
        """Whoever took the row or used its record does so no more."""
        with self._lock:
            self._users[row] -= 1
            name = self._name_of.get(row)
            if name is not None:
                self._order.let_go(name)
            elif not self._users[row]:
                self._free.append(row)

    def named(self, row: int) -> bytes | None:
        """Whose record is in a row that is in use; None where it was forgotten."""
        return self._name_of.get(row)

    def forget(self, identity: bytes) -> None:
        """The record is not to be found any more."""
        with self._lock:
            row = self._row_of.pop(identity, None)
            if row is None:
                return
            del self._name_of[row]
            self._order.remove(identity)
            if not self._users[row]:
                self._free.append(row)
