"""Low-rank adapters as rows of a batch: whose each row of a step is, and a linear layer that adds what is theirs.

y = W x + scale * B A x (Hu et al. 2021, "LoRA"), W the same for all rows, A and B those of the row's adapter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headgate.engine.quant.linear import Linear
from headgate.engine.sampling.upload import upload

_GATHERED = 4
"""Times that a row's factors are moved where they are gathered, as against being read in place."""
RUN = 64
"""Outputs whose ranks are looked up together."""

Rows = slice | Tensor
"""Of a step: those that follow each other, or int64 [rows]."""
_Numbers = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


class Owners:
    """The adapters of a set of rows: as the host placed them, else by numbers on the device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.numbers: Tensor | None = None
        """int64 [rows], 0 for none, of steps that lie on the device."""
        self.each: Tensor | None = None
        """bool [rows, adapters, 1]: whether it is the row's, with `numbers`."""
        self.place(np.zeros(0, dtype=np.int64))

    def place(self, numbers: _Numbers) -> None:
        """By the host, of the next step."""
        self._placed = numbers
        self._groups: Seq[tuple[int, Rows]] | None = None
        self._told: Tensor | None = None

    @property
    def groups(self) -> Seq[tuple[int, Rows]]:
        """Of what was placed: each adapter with its rows."""
        if self._groups is None:
            placed = self._placed
            found = ((int(number), np.flatnonzero(placed == number)) for number in np.unique(placed) if number)
            self._groups = [(number, self._rows(places)) for number, places in found]
        return self._groups

    @property
    def told(self) -> Tensor:
        """`numbers`, or on the device what was placed."""
        if self.numbers is not None:
            return self.numbers
        if self._told is None:
            self._told = upload(self._placed, torch.int64, self._device)
        return self._told

    def _rows(self, places: _Numbers) -> Rows:
        first, last = int(places[0]), int(places[-1])
        if last - first + 1 == len(places):
            return slice(first, last + 1)
        return upload(places, torch.int64, self._device)


class AdapterRows:
    """The adapters of the rows of the step that is computed. One thread at a time.

    Attributes:
        count: how many adapters there are.
        every: of all rows.
        wanted: of those that go on after the last attention.
    """

    def __init__(self, count: int, device: torch.device) -> None:
        """Of so many adapters, whose numbers are 1 to `count`."""
        self.count = count
        self.every, self.wanted = Owners(device), Owners(device)
        self._each = torch.arange(1, count + 1, device=device)

    def place(self, adapters: Seq[int], counts: Seq[int], wanted: Seq[int]) -> None:
        """Of the next step's sequences: their adapters, how many rows each has, and which rows go on at the end."""
        numbers = np.repeat(np.asarray(adapters), np.asarray(counts))
        self.every.place(numbers)
        self.wanted.place(numbers[np.asarray(wanted, dtype=np.int64)])

    @contextmanager
    def on_device(self, numbers: Tensor) -> Iterator[None]:
        """For steps of one row per sequence, int64 [rows], which nobody looks at here: they may be recorded."""
        each = (numbers.unsqueeze(1) == self._each).unsqueeze(2)
        for owners in (self.every, self.wanted):
            owners.numbers, owners.each = numbers, each
        try:
            yield
        finally:
            for owners in (self.every, self.wanted):
                owners.numbers = owners.each = None


@dataclass(frozen=True, slots=True)
class Stack:
    """The factors of all adapters of a layer, filled up with zeros to one rank; at 0 those of none.

    Attributes:
        down: [adapters + 1, rank, inputs].
        up: [adapters + 1, rank, outputs], the scale in it.
        spans: int32 [adapters + 1, runs + 1, 2]: from which rank of `up` on, and before which one, there is something
            but zeros; of all outputs, then of each RUN of them. They are as few as those of one stacked layer.
    """

    down: Tensor
    up: Tensor
    spans: Tensor

    @classmethod
    def of(cls, down: Tensor, up: Tensor) -> Stack:
        """With their spans."""
        return cls(down, up, spans_of(up))

    def add(self, y: Tensor, x: Tensor, owners: Owners) -> None:
        """Add what is of each row's adapter to y [rows, outputs], from x [rows, inputs]."""
        assert owners.numbers is not None
        assert owners.each is not None
        count, rank, _ = self.down.shape
        if _GATHERED * x.shape[0] < count:
            low = torch.bmm(self.down[owners.numbers], x.unsqueeze(2))
            y += torch.bmm(low.transpose(1, 2), self.up[owners.numbers]).squeeze(1)
            return
        # All of them for all rows, and of each row those of others taken out: two products, whatever the rows are.
        low = F.linear(x, self.down[1:].flatten(0, 1)).view(-1, count - 1, rank)
        low = torch.where(owners.each, low, torch.zeros_like(low))
        y.addmm_(low.flatten(1), self.up[1:].flatten(0, 1))


def spans_of(up: Tensor) -> Tensor:
    """See Stack; those of [..., rank, outputs]."""
    rank, outputs = up.shape[-2:]
    cells = F.pad(up != 0, (0, -outputs % RUN))
    runs = cells.reshape(*up.shape[:-1], -1, RUN).any(-1).transpose(-1, -2)
    there = torch.cat([runs.any(-2, keepdim=True), runs], dim=-2)
    places = torch.arange(rank, device=up.device)
    first = torch.where(there, places, rank).amin(-1)
    behind = torch.where(there, places + 1, 0).amax(-1)
    return torch.stack([first, behind], dim=-1).int().contiguous()


class AdaptedLinear:
    """Implements the Linear protocol for rows of several adapters."""

    def __init__(
        self, base: Linear, pairs: Mapping[int, tuple[Linear, Linear]], stack: Stack | None, owners: Owners
    ) -> None:
        """What is added to `base`.

        Args:
            base: the layer of all rows.
            pairs: of adapters by number the layers of A and of scale * B.
            stack: the same for numbers on the device; None where there are none.
            owners: of the rows it is called with.
        """
        self.base = base
        self._pairs = pairs
        self._stack = stack
        self._owners = owners

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        y = self.base(x)
        if self._owners.numbers is not None:
            assert self._stack is not None, "numbers on the device are for layers that have their factors stacked"
            self._stack.add(y, x, self._owners)
            return y
        for number, rows in self._owners.groups:
            pair = self._pairs.get(number)
            if pair is None:
                continue
            down, up = pair
            if isinstance(rows, slice):
                y[rows].add_(up(down(x[rows])))
            else:
                y.index_add_(0, rows, up(down(x.index_select(0, rows))))
        return y

    @property
    def nbytes(self) -> int:
        """See Linear: of the layer of all rows."""
        return self.base.nbytes
