"""Training by several processes under `torchrun`: each takes its share of the batches, all keep the same weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed

from headgate.training.batches import Batch, Cursor, Stream


def world() -> int:
    """The number of processes that train together: 1 but under `torchrun`, once its process group is there."""
    return torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1


def rank() -> int:
    """Which of them this one is, from 0."""
    return torch.distributed.get_rank() if world() > 1 else 0


def shared(batches: Stream) -> Stream:
    """The batches of this process: the first of each `world()` consecutive ones for the first process, and so on."""
    count = world()
    if count == 1:
        return batches

    def own(start: Cursor) -> Iterator[tuple[Batch, Cursor]]:
        source = batches(start)
        while True:
            group = [next(source) for _ in range(count)]
            # The cursor is the whole group's, so that all processes agree on where to go on.
            yield group[rank()][0], group[-1][1]

    return own


def mean(value: torch.Tensor) -> float:
    """The mean of a scalar over the processes."""
    if world() == 1:
        return value.item()
    total = value.detach().clone()
    torch.distributed.all_reduce(total)
    return total.item() / world()


class GradientMean:
    """Replaces each gradient by its mean over the processes, so that a step is as one on all their batches."""

    def __init__(self, model: Any) -> None:
        self._weights: list[torch.nn.Parameter] = list(model.parameters())
        self._flat: torch.Tensor | None = None

    def __call__(self) -> None:
        """All processes must have gradients of the same weights."""
        if world() == 1:
            return
        gradients = [weight.grad for weight in self._weights if weight.grad is not None]
        if self._flat is None:
            # Kept: fresh memory of that size costs more than the copy.
            self._flat = torch.cat([gradient.flatten() for gradient in gradients])
        else:
            torch.cat([gradient.flatten() for gradient in gradients], out=self._flat)
        torch.distributed.all_reduce(self._flat)
        self._flat /= world()
        _scatter(self._flat, gradients)


def shares(items: Sequence[object]) -> list[bool]:
    """Which of the items this process works on: every `world()`-th."""
    return [index % world() == rank() for index in range(len(items))]


def exchange(tensors: Sequence[torch.Tensor]) -> None:
    """Fills in place the tensors that are not this process' `shares` with what their processes made of them."""
    for owner in range(world()) if world() > 1 else ():
        theirs = tensors[owner :: world()]
        if not theirs:
            continue
        flat = torch.cat([tensor.flatten() for tensor in theirs])
        torch.distributed.broadcast(flat, owner)
        _scatter(flat, theirs)


def _scatter(flat: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    start = 0
    for tensor in tensors:
        tensor.copy_(flat[start : start + tensor.numel()].view_as(tensor))
        start += tensor.numel()
