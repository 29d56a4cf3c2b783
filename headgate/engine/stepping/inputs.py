"""What a step's chunks are as numbers: the inputs of the decoder."""

from __future__ import annotations

from array import array
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import torch
from torch import Tensor

from headgate.engine.kernels.interface import Pages
from headgate.engine.kernels.states import StepStates
from headgate.engine.kernels.whole_step import DecodeBatch, Forms
from headgate.engine.sampling.noise import stream_key
from headgate.engine.scheduling.chunk import Chunk
from headgate.engine.sequence import Sequence


def _numbers() -> array[int]:
    return array("q")


@dataclass(slots=True)
class StepInputs:
    """The numbers of one step, int64, in arrays that tensors can be made of without a copy.

    Attributes:
        tokens: ids, sequence after sequence.
        positions: each token's place in its sequence; none unless they were asked for.
        slots: where its key and value go; likewise.
        counts: tokens of each sequence.
        contexts: tokens of each sequence whose keys are in the cache after the step.
        tables: blocks of each sequence.
        rows: the tokens whose hidden states are wanted, those to sample from first, then those of probes, then those
            that score given tokens.
        sampling: sequences that get a token, in the order of `rows`, and how many tokens beyond the known ones it is:
            a sequence is there once, and once more for each token that was proposed.
        probing: sequences whose last state is reported, likewise.
        scoring: chunks whose tokens are scored, likewise.
        plain: whether each sequence that gets a token gets one, the likeliest.
    """

    tokens: array[int] = field(default_factory=_numbers)
    positions: array[int] = field(default_factory=_numbers)
    slots: array[int] = field(default_factory=_numbers)
    counts: list[int] = field(default_factory=list)
    contexts: list[int] = field(default_factory=list)
    tables: list[array[int]] = field(default_factory=list)
    rows: array[int] = field(default_factory=_numbers)
    sampling: list[tuple[Sequence, int]] = field(default_factory=list)
    probing: list[Sequence] = field(default_factory=list)
    scoring: list[Chunk] = field(default_factory=list)
    plain: bool = True

    @classmethod
    def of(cls, chunks: Seq[Chunk], size: int, *, placed: bool = True) -> StepInputs:
        """The inputs of a step over `chunks` with blocks of `size` tokens; positions and slots only if `placed`."""
        ones = next((at for at, chunk in enumerate(chunks) if not _goes_on(chunk)), len(chunks))
        inputs = cls._single(chunks[:ones])
        if placed:
            inputs._place(chunks, size)
        tokens, rows = inputs.tokens, inputs.rows
        probe_rows, score_rows = _numbers(), _numbers()
        counts, contexts, tables, sampling = inputs.counts, inputs.contexts, inputs.tables, inputs.sampling
        for chunk in chunks[ones:]:
            sequence, start, count = chunk.sequence, chunk.start, chunk.count
            known, stop = sequence.tokens, start + count
            counts.append(count)
            contexts.append(stop)
            tables.append(sequence.table.blocks)
            tokens.extend(known[start:stop])
            tokens.extend(chunk.drafted)
            if sequence.request.score:
                if chunk.scored:
                    score_rows.extend([len(tokens) + p - stop for p in chunk.scored])
                    inputs.scoring.append(chunk)
            elif sequence.request.probe:
                if stop == len(known):
                    probe_rows.append(len(tokens) - 1)
                    inputs.probing.append(sequence)
            elif chunk.samples:
                ahead = len(chunk.drafted)
                rows.extend(range(len(tokens) - 1 - ahead, len(tokens)))
                sampling.extend([(sequence, number) for number in range(1 + ahead)])
        rows.extend(probe_rows)
        rows.extend(score_rows)
        inputs.plain = all(s.plain and not ahead and not (s.restrains and s.restrained) for s, ahead in sampling)
        return inputs

    @classmethod
    def _single(cls, chunks: Seq[Chunk]) -> StepInputs:
        """The same for chunks of which each `_goes_on`: most there are, and so they are not looked at one by one."""
        sequences = [chunk.sequence for chunk in chunks]
        return cls(
            tokens=array("q", [sequence.tokens[-1] for sequence in sequences]),
            counts=[1] * len(sequences),
            contexts=[chunk.start + 1 for chunk in chunks],
            tables=[sequence.table.blocks for sequence in sequences],
            rows=array("q", range(len(sequences))),
            sampling=[(sequence, 0) for sequence in sequences],
        )

    def _place(self, chunks: Seq[Chunk], size: int) -> None:
        for chunk in chunks:
            self.positions.extend(range(chunk.start, chunk.start + chunk.count))
            _extend_slots(self.slots, chunk, chunk.sequence.table.blocks, size)


def _extend_slots(slots: array[int], chunk: Chunk, blocks: Seq[int], size: int) -> None:
    """Where the chunk's keys and values go in these blocks of its sequence."""
    start, stop = chunk.start, chunk.start + chunk.count
    for at in range(start // size, (stop - 1) // size + 1):
        # From a place in the sequence to the slot that it has in this block.
        shift = (blocks[at] - at) * size
        slots.extend(range(max(start, at * size) + shift, min(stop, (at + 1) * size) + shift))


def step_pages(chunks: Seq[Chunk], size: int, device: torch.device, *, placed: bool) -> Pages:
    """Where the chunks are in layers that are paged; slots only if `placed`."""
    slots = _numbers()
    for chunk in chunks if placed else ():
        _extend_slots(slots, chunk, chunk.sequence.table.pages, size)
    return Pages([chunk.sequence.table.pages for chunk in chunks], tensor(slots, device))


def _goes_on(chunk: Chunk) -> bool:
    """Whether it is the last known token of a sequence that gets another one."""
    sequence = chunk.sequence
    return chunk.count == 1 and sequence.generates and chunk.start + 1 == len(sequence.tokens)


def decode_batch(chunks: Seq[Chunk], size: int, forms: Forms | None = None, *, paged: bool = False) -> DecodeBatch:
    """The inputs of steps in which each of the chunks' sequences, all of them `direct`, gets one token.

    `paged`: whether layers are. Who decodes has as many pages as blocks.
    """
    sequences, starts = [chunk.sequence for chunk in chunks], [chunk.start for chunk in chunks]
    count, tables, ends = len(sequences), array("i"), _numbers()
    begins = _numbers()
    for sequence in sequences:
        begins.append(len(tables))
        tables.extend(sequence.table.blocks)
    for sequence in sequences if paged else ():
        tables.extend(sequence.table.pages)
    # Few have ends of their own.
    listed = dict[frozenset[int], int]()
    for tokens in {sequence.ends for sequence in sequences}:
        listed[tokens] = len(ends)
        ends.extend(tokens)
    # Column by column: row by row takes several times as long. How it draws is of no matter to a greedy one.
    rows, choices = array("q", bytes(56 * count)), array("d", bytes(24 * count))
    rows[0::7] = array("q", [sequence.tokens[-1] for sequence in sequences])
    rows[1::7] = array("q", starts)
    rows[2::7] = begins
    rows[3::7] = array("q", [listed[sequence.ends] for sequence in sequences])
    rows[4::7] = array("q", [len(sequence.ends) for sequence in sequences])
    for number, sequence in enumerate(sequences):
        sampling = sequence.request.sampling
        if not sampling.greedy:
            rows[7 * number + 5], rows[7 * number + 6] = stream(sequence), sampling.top_k
            choices[3 * number : 3 * number + 3] = array("d", (sampling.temperature, sampling.top_p, sampling.min_p))
    cpu = torch.device("cpu")
    return DecodeBatch(
        tensor(rows, cpu),
        torch.frombuffer(choices, dtype=torch.float64),
        torch.frombuffer(tables, dtype=torch.int32),
        tensor(ends, cpu),
        size,
        max(starts) + 1,
        forms,
    )


def step_states(chunks: Seq[Chunk], pools: Seq[Tensor]) -> StepStates | None:
    """Where the states of the chunks' sequences are, with those in their slots that they start from; None without."""
    if not pools:
        return None
    held = [chunk.sequence.table.held for chunk in chunks]
    states = [each for each in held if each is not None]
    for each in states:
        if each.source >= 0:
            for pool in pools:
                pool[each.slot].copy_(pool[each.source])
    return StepStates(pools, [each.slot for each in states], [each.saves for each in states])


def stream(sequence: Sequence) -> int:
    """What `stream_key` gives for the sequence, as int64; 0 for one that draws nothing."""
    if sequence.request.sampling.greedy:
        return 0
    if sequence.stream is None:
        seed = sequence.request.sampling.seed
        key = stream_key(sequence.noise if seed is None else seed, sequence.choice)
        sequence.stream = key - (key >> 63 << 64)
    return sequence.stream


class Interrupt:
    """A flag by which any thread ends a run of steps after the step that is under way."""

    __slots__ = ("_flag", "flag")

    def __init__(self) -> None:
        self._flag = array("q", [0])
        self.flag = torch.frombuffer(self._flag, dtype=torch.int64)
        """The same memory as the kernels read it: int64 [1], 0 while nobody wants anything."""

    def set(self) -> None:
        """End the present run, and each after it after one step."""
        self._flag[0] = 1

    def clear(self) -> None:
        """Let runs go on."""
        self._flag[0] = 0


def tensor(values: array[int], device: torch.device) -> Tensor:
    """int64 [n] on `device`; on the CPU it shares the array's memory."""
    if not values:
        return torch.empty(0, dtype=torch.int64, device=device)
    host = torch.frombuffer(values, dtype=torch.int64)
    return host if device.type == "cpu" else host.to(device, non_blocking=True)
