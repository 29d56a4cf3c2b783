"""Which row of the device's a sequence has, and what of it the device has not been told yet."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import torch
from torch import Tensor

from headgate.engine.kernels.device_rows import (
    BIASES,
    CHOICES,
    NUMBERS,
    PROMPTED,
    STREAM,
    TOKEN,
    RowState,
    penalised,
)
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.sampling.upload import upload
from headgate.engine.scheduling.chunk import Chunk
from headgate.engine.sequence import Sequence
from headgate.engine.stepping.inputs import stream


@dataclass(slots=True, eq=False)
class _Held:
    """What the device knows of a sequence."""

    row: int
    preemptions: int
    position: int = -1
    """Of the token that it computes next; -1 where it is to be told that token."""
    start: int = 0
    """Blocks of positions before this one stay as they are."""
    blocks: array[int] = field(default_factory=lambda: array("i"))


class _Writes:
    """Elements of a tensor to be written at once."""

    def __init__(self, target: Tensor) -> None:
        self._target = target.view(-1)
        self._places: list[int] = []
        self._values: list[float] = []

    def put(self, start: int, values: Iterable[float]) -> None:
        """One after the other."""
        for place, value in enumerate(values, start):
            self._places.append(place)
            self._values.append(value)

    def scatter(self, start: int, values: Mapping[int, float]) -> None:
        """By their distance from `start`."""
        self._places.extend([start + place for place in values])
        self._values.extend(values.values())

    def send(self) -> None:
        """Write them; waits for nothing."""
        if self._places:
            device = self._target.device
            values = upload(self._values, self._target.dtype, device)
            self._target.index_copy_(0, upload(self._places, torch.int64, device), values)


class Rows:
    """Sequences keep their rows from step to step, as long as nobody else needs them."""

    def __init__(self, state: RowState) -> None:
        self._state = state
        self._width = state.tables.shape[1]
        self._free = list(reversed(range(state.rows)))
        self._held: dict[Sequence, _Held] = {}

    def takes(self, sequence: Sequence) -> bool:
        """Whether a row has all that its next token depends on, and a step gives all that is reported of it."""
        if sequence in self._held:
            return True
        sampling = sequence.request.sampling
        reported = sampling.logprobs is not None and sampling.logprobs > 0
        plain = sequence.guide is None and sequence.generates and not sequence.restrained
        return plain and not reported and len(sampling.logit_bias) <= BIASES

    def place(self, chunks: Seq[Chunk], ahead: int) -> list[int]:
        """Rows of the chunks' sequences, no more than there are; the device holds all of them when it comes to that.

        `ahead`: steps of these chunks that are under way already.
        """
        self._make_room(chunks)
        state = self._state
        numbers, choices, tables = _Writes(state.numbers), _Writes(state.choices), _Writes(state.tables)
        rows = []
        for chunk in chunks:
            sequence = chunk.sequence
            held = self._held.get(sequence)
            if held is None:
                held = self._held[sequence] = _Held(self._free.pop(), sequence.preemptions)
                self._introduce(sequence, held.row, numbers, choices)
            if held.position != chunk.start + ahead:
                # What the device did with it was never read, or the host has gone on without it.
                numbers.put(held.row * NUMBERS + TOKEN, (sequence.tokens[chunk.start], chunk.start))
                held.position = chunk.start
                if penalised(_choices(sequence.request.sampling)):
                    self._count(sequence, held.row)
            self._tell_blocks(sequence, held, tables)
            held.start = chunk.start
            rows.append(held.row)
        for writes in (numbers, choices, tables):
            writes.send()
        return rows

    def moved(self, chunks: Seq[Chunk], steps: int) -> None:
        """So many steps of them were begun since they were placed."""
        for chunk in chunks:
            self._held[chunk.sequence].position += steps

    def unread(self, sequences: Iterable[Sequence]) -> None:
        """What a step did with them will not be read, nor need their tokens be those that it chose."""
        for sequence in sequences:
            held = self._held.get(sequence)
            if held is not None:
                held.position = -1

    def forget(self) -> None:
        """Whatever the device holds may be wrong."""
        for held in self._held.values():
            self._free.append(held.row)
        self._held.clear()

    def _make_room(self, chunks: Seq[Chunk]) -> None:
        for chunk in chunks:
            held = self._held.get(chunk.sequence)
            if held is not None and held.preemptions != chunk.sequence.preemptions:
                self._release(chunk.sequence)  # all its blocks are others
        missing = sum(chunk.sequence not in self._held for chunk in chunks)
        if missing:
            for sequence in [s for s in self._held if s.done]:
                self._release(sequence)
        if missing > len(self._free):
            wanted = {chunk.sequence for chunk in chunks}
            for sequence in [s for s in self._held if s not in wanted]:
                self._release(sequence)

    def _release(self, sequence: Sequence) -> None:
        self._free.append(self._held.pop(sequence).row)

    def _introduce(self, sequence: Sequence, row: int, numbers: _Writes, choices: _Writes) -> None:
        """Tell what stays the same of it."""
        sampling, biases = sequence.request.sampling, sequence.request.sampling.biases
        numbers.put(row * NUMBERS + STREAM, (stream(sequence), sampling.top_k, len(biases)))
        choices.put(row * CHOICES, _choices(sampling))
        if biases:
            for target, values in (
                (self._state.bias_tokens, biases.keys()),
                (self._state.bias_values, biases.values()),
            ):
                writes = _Writes(target)
                writes.put(row * BIASES, values)
                writes.send()

    def _count(self, sequence: Sequence, row: int) -> None:
        """Count its tokens anew."""
        counts: dict[int, float] = dict.fromkeys(sequence.request.prompt, PROMPTED)
        for token, count in Counter(sequence.output).items():
            counts[token] = counts.get(token, 0) + count
        self._state.counts[row].zero_()
        writes = _Writes(self._state.counts)
        writes.scatter(row * self._state.counts.shape[1], counts)
        writes.send()

    def _tell_blocks(self, sequence: Sequence, held: _Held, tables: _Writes) -> None:
        blocks, first = sequence.table.blocks, held.start // self._state.block_size
        known = held.blocks[first:]
        if known[: len(blocks) - first] != blocks[first:]:
            tables.put(held.row * self._width + first, blocks[first:])
            held.blocks = blocks[:]


def _choices(sampling: SamplingParams) -> tuple[float, ...]:
    """As in `RowState.choices`."""
    temperature = 0.0 if sampling.greedy else sampling.temperature
    penalties = sampling.repetition, sampling.presence_penalty, sampling.frequency_penalty
    return temperature, sampling.top_p, sampling.min_p, *penalties
