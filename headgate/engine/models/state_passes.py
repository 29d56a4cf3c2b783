"""The sequences of a step, each with its own state, through the layers that keep one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from headgate.engine.kernels.interface import AttentionBatch

StateKey = tuple[str, int]
"""Kind and number of a tensor of a layer's state."""
States = dict[StateKey, Tensor]
"""Of some sequences: [sequences, ...] each."""
LayerOut = Tensor | tuple[Tensor, ...]


class Stateful(Protocol):
    """A layer that keeps a state."""

    @property
    def keys(self) -> Mapping[StateKey, int]:
        """The tensors of its state, and their places among all of the model."""
        ...

    def call(self, hidden: Tensor, states: States | None) -> tuple[LayerOut, States]:
        """What it makes of [sequences, tokens, width], [sequences, tokens, ...], and the states behind that.

        `states`: what the tokens before left; None where there are none. May be overwritten.
        """
        ...


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens of one sequence: rows of the step, and what is to be done with the state around them."""

    rows: slice
    begun: bool
    slot: int
    saves: Sequence[int]


class StatePasses:
    """Implements Passes: sequences of one token pass together, others by themselves."""

    def __init__(self, batch: AttentionBatch, device: torch.device, *, singly: bool) -> None:
        """`singly`: token by token where a sequence goes on, for layers that cannot otherwise.

        A batch without states is of sequences that end with it.
        """
        self._pools = () if batch.states is None else batch.states.pools
        self._tokens = sum(batch.counts)
        self._ones: list[Span] = []
        self._spans: list[Span] = []
        for spans in spans_of(batch, singly=singly):
            alone = len(spans) == 1 and spans[0].begun and spans[0].rows.stop - spans[0].rows.start == 1
            (self._ones if alone else self._spans).extend(spans)
        if len(self._ones) == 1:
            self._spans.append(self._ones.pop())
        self._rows = torch.tensor([span.rows.start for span in self._ones], device=device)
        self._slots = torch.tensor([span.slot for span in self._ones], device=device)

    def __call__(self, layer: Stateful, hidden: Tensor) -> LayerOut:
        """See Passes."""
        parts: list[tuple[slice | Tensor, LayerOut]] = []
        if self._ones:
            parts.append((self._rows, self._step(layer, hidden[0].index_select(0, self._rows))))
        parts.extend((span.rows, self._read(layer, hidden[:, span.rows], span)) for span in self._spans)
        if len(parts) == 1 and not self._ones:
            return parts[0][1]
        first = parts[0][1]
        if isinstance(first, Tensor):
            return _joined(self._tokens, [(rows, part) for rows, part in parts if isinstance(part, Tensor)])
        return tuple(_joined(self._tokens, [(rows, part[at]) for rows, part in parts]) for at in range(len(first)))

    def _step(self, layer: Stateful, hidden: Tensor) -> LayerOut:
        """A token of each of the sequences that have one; rows of what comes back are theirs."""
        pools = {key: self._pools[place] for key, place in layer.keys.items()}
        before = {key: pool.index_select(0, self._slots) for key, pool in pools.items()}
        found, states = layer.call(hidden.unsqueeze(1), before)
        for key, pool in pools.items():
            pool.index_copy_(0, self._slots, states[key].to(pool.dtype))
            for span in self._ones:
                for save in span.saves:
                    pool[save].copy_(pool[span.slot])
        return _swapped(found)

    def _read(self, layer: Stateful, hidden: Tensor, span: Span) -> LayerOut:
        pools = {key: self._pools[place] for key, place in layer.keys.items()} if self._pools else {}
        before = {key: pool[span.slot].unsqueeze(0) for key, pool in pools.items()} if span.begun else None
        found, states = layer.call(hidden, before)
        for key, pool in pools.items():
            after = states[key][0]
            for slot in (span.slot, *span.saves):
                if pool[slot].data_ptr() != after.data_ptr():
                    pool[slot].copy_(after)
        return found


def spans_of(batch: AttentionBatch, *, singly: bool) -> Iterator[list[Span]]:
    """Of each sequence, parts that pass one after the other: the state is wanted between them. `singly`: of a token."""
    row = 0
    states = batch.states
    for number, (count, context) in enumerate(zip(batch.counts, batch.contexts, strict=True)):
        start = context - count
        begun = states is not None and start > 0
        saves = {} if states is None else _by_position(states.saves[number])
        slot = -1 if states is None else states.slots[number]
        ends = sorted({*saves, context})
        if singly:
            ends = list(range(start + 1 if begun else ends[0], context + 1))
        spans: list[Span] = []
        for end in ends:
            spans.append(Span(slice(row, row + end - start), begun or bool(spans), slot, saves.get(end, ())))
            row, start = row + end - start, end
        yield spans


def _by_position(saves: Sequence[tuple[int, int]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for position, slot in saves:
        found.setdefault(position, []).append(slot)
    return found


def _swapped(found: LayerOut) -> LayerOut:
    """[1, sequences, ...] of [sequences, 1, ...]."""
    return found.transpose(0, 1) if isinstance(found, Tensor) else tuple(part.transpose(0, 1) for part in found)


def _joined(tokens: int, parts: Sequence[tuple[slice | Tensor, Tensor]]) -> Tensor:
    """[1, tokens, ...] of parts [1, rows, ...]."""
    some = parts[0][1]
    whole = some.new_empty((1, tokens, *some.shape[2:]))
    for rows, part in parts:
        if isinstance(rows, slice):
            whole[:, rows] = part
        else:
            whole.index_copy_(1, rows, part)
    return whole
