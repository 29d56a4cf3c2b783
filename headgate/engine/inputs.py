"""What a step's chunks are as numbers: the inputs of the decoder."""

from __future__ import annotations

from array import array
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import torch
from torch import Tensor

from headgate.engine.kernels.interface import DecodeBatch, Forms
from headgate.engine.sampling.noise import stream_key
from headgate.engine.scheduler import Chunk
from headgate.engine.sequence import Sequence


def _numbers() -> array[int]:
    return array("q")


@dataclass(slots=True)
class StepInputs:
    """The numbers of one step, int64, in arrays that tensors can be made of without a copy.

    Attributes:
        tokens: ids, sequence after sequence.
        positions: each token's place in its sequence.
        slots: where its key and value go.
        counts: tokens of each sequence.
        contexts: tokens of each sequence whose keys are in the cache after the step.
        tables: blocks of each sequence.
        rows: the tokens whose hidden states are wanted, those to sample from first, then those of probes, then those
            that score given tokens.
        sampling: sequences that get a token, in the order of `rows`, and how many tokens beyond the known ones it is:
            a sequence is there once, and once more for each token that was proposed.
        probing: sequences whose last state is reported, likewise.
        scoring: chunks whose tokens are scored, likewise.
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

    @classmethod
    def of(cls, chunks: Seq[Chunk], size: int) -> StepInputs:
        """The inputs of a step over `chunks` with blocks of `size` tokens."""
        inputs = cls()
        tokens, positions, slots, rows = inputs.tokens, inputs.positions, inputs.slots, inputs.rows
        probe_rows, score_rows = _numbers(), _numbers()
        counts, contexts, tables, sampling = inputs.counts, inputs.contexts, inputs.tables, inputs.sampling
        for chunk in chunks:
            sequence, start, count = chunk.sequence, chunk.start, chunk.count
            known, blocks, stop = sequence.tokens, sequence.table.blocks, start + count
            counts.append(count)
            contexts.append(stop)
            tables.append(blocks)
            if count == 1:
                tokens.append(known[start])
                positions.append(start)
                slots.append(blocks[start // size] * size + start % size)
                if stop == len(known) and sequence.generates:
                    rows.append(len(tokens) - 1)
                    sampling.append((sequence, 0))
                    continue
            else:
                tokens.extend(known[start:stop])
                tokens.extend(chunk.drafted)
                positions.extend(range(start, stop))
                for at in range(start // size, (stop - 1) // size + 1):
                    # From a place in the sequence to the slot that it has in this block.
                    shift = (blocks[at] - at) * size
                    slots.extend(range(max(start, at * size) + shift, min(stop, (at + 1) * size) + shift))
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
        return inputs


def decode_batch(chunks: Seq[Chunk], size: int, forms: Forms | None = None) -> DecodeBatch:
    """The inputs of steps in which each of the chunks' sequences, all of them `direct`, gets one token."""
    rows, ends, tables, choices = _numbers(), _numbers(), array("i"), array("d")
    context = 0
    for chunk in chunks:
        sequence, start = chunk.sequence, chunk.start
        sampling, first = sequence.request.sampling, len(ends)
        ends.extend(sequence.ends)
        row = (sequence.tokens[start], start, len(tables), first, len(ends) - first, stream(sequence), sampling.top_k)
        rows.extend(row)
        choices.extend((0.0 if sampling.greedy else sampling.temperature, sampling.top_p, sampling.min_p))
        tables.extend(sequence.table.blocks)
        context = max(context, start + 1)
    cpu = torch.device("cpu")
    return DecodeBatch(
        tensor(rows, cpu),
        torch.frombuffer(choices, dtype=torch.float64),
        torch.frombuffer(tables, dtype=torch.int32),
        tensor(ends, cpu),
        size,
        context,
        forms,
    )


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
