"""Decoding a step ahead of the host: while it reads what one step gave, the device computes the next.

A step takes its tokens from the step before, on the device. So the host learns a step late that a sequence has ended,
and what the step after that computed for it is nobody's: it is written behind all that is known of the sequence, into
blocks that were the sequence's when it was launched. Whoever gets these blocks writes to them later, as the device does
one thing after the other.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from headgate.engine.device_steps.graphs import Bucket, Buckets, Recorder
from headgate.engine.device_steps.rows import Rows
from headgate.engine.kernels.device_rows import DeviceStep, RowKernels, RowState
from headgate.engine.kv.store import KVStore
from headgate.engine.models.adapters.decoder import AdaptedDecoder
from headgate.engine.models.language_model import LanguageModel
from headgate.engine.sampling.upload import upload
from headgate.engine.scheduling.chunk import Chunk
from headgate.engine.sequence import Sequence
from headgate.engine.stepping.inputs import Interrupt

_MANY = 64
"""Sequences from which on two steps are begun that nobody has read: to report what so many were given, and to decide
what comes next, may take longer than a step where other threads want the interpreter."""


class _Result:
    """What a step gives, on its way to the host."""

    def __init__(self, out: Tensor) -> None:
        on_device = out.device.type == "cuda"
        self._host = torch.empty(out.shape, dtype=out.dtype, pin_memory=on_device)
        self._host.copy_(out, non_blocking=True)
        self._there: Any = torch.cuda.Event() if on_device else None  # type: ignore[no-untyped-call]
        if self._there is not None:
            self._there.record()

    def read(self) -> tuple[list[int], list[float]]:
        """Tokens and their log-probabilities; waits for them."""
        if self._there is not None:
            self._there.synchronize()
        tokens, logprobs = self._host.tolist()
        return [int(token) for token in tokens], logprobs


@dataclass(frozen=True, slots=True)
class _Flight:
    """A step that nobody has read yet: of each sequence, where it is in the step, its position, how often preempted."""

    result: _Result
    lines: dict[Sequence, tuple[int, int, int]]

    def lines_of(self, chunks: Seq[Chunk], steps: int) -> list[int] | None:
        """Where the chunks' sequences are in it; None unless it computes what they want after so many steps, of all.

        It does not once a step of another kind has computed that.
        """
        lines = []
        for chunk in chunks:
            line, position, preemptions = self.lines.get(chunk.sequence, (0, -1, 0))
            if position != chunk.start + steps or preemptions != chunk.sequence.preemptions:
                return None
            lines.append(line)
        return lines


@dataclass(frozen=True, slots=True)
class Decoded:
    """A sequence's next tokens, the last of them -1 if its logits were not finite; and their log-probabilities."""

    tokens: list[int]
    logprobs: list[float]


def _flight(result: _Result, lines: Seq[int], chunks: Seq[Chunk], steps: int) -> _Flight:
    at = zip(chunks, lines, strict=True)
    return _Flight(result, {c.sequence: (line, c.start + steps, c.sequence.preemptions) for c, line in at})


class AheadDecoder:
    """Runs of steps in which each sequence gets a token."""

    def __init__(
        self,
        decoder: LanguageModel,
        store: KVStore,
        kernels: RowKernels,
        *,
        most: int,
        longest: int,
        record: Recorder | None,
    ) -> None:
        """For up to `most` sequences of up to `longest` tokens.

        `store` has a block more than sequences have: the last one is written to by rows that fill steps up.
        """
        device, spare = decoder.device, store.blocks - 1
        self._decoder, self._store, self._kernels, self._longest = decoder, store, kernels, longest
        width = -(-longest // store.block_size)
        self._state = RowState.empty(most, width, decoder.spec.vocab_size, store.block_size, spare, device)
        self._rows = Rows(self._state)
        self._buckets = Buckets(most, self._state.rows, device, self._step, record)
        self._adapted = decoder if isinstance(decoder, AdaptedDecoder) else None
        self._tuned: Buckets | None = None
        self._tuned_buckets = partial(Buckets, most, self._state.rows, device, self._tuned_step, record)
        self._adapter_of = torch.zeros(self._state.rows + 1, dtype=torch.int64, device=device)
        self.tune()
        self._flights: list[_Flight] = []
        self.seconds = 0.0
        """In launching steps and waiting for what they give."""

    @staticmethod
    def left(rows: int) -> int:
        """How many steps of so many rows `run` leaves for the next run to read, at most."""
        return 2 if rows >= _MANY else 1

    @property
    def unrecorded(self) -> int:
        """See Buckets.left."""
        return self._buckets.left + (0 if self._tuned is None else self._tuned.left)

    def record_one(self, *, idle: bool) -> bool:
        """See Buckets."""
        if self._buckets.record_one(idle=idle):
            return True
        return self._tuned is not None and self._tuned.record_one(idle=idle)

    def tune(self) -> None:
        """The decoder's adapters are others: steps with some are recorded anew, as their factors lie elsewhere; those
        without stay as they are.
        """
        if self._tuned is not None:
            if self._adapter_of.is_cuda:
                # Steps under way read what is let go of here.
                torch.cuda.current_stream().synchronize()
            self._tuned.release()
        self._tuned = None if self._adapted is None or self._adapted.tuning is None else self._tuned_buckets()
        self._placed: tuple[Seq[int], Seq[int]] = (), ()

    def release(self) -> None:
        """Give up what was recorded, which holds all that is on the device."""
        self._flights = []
        self._buckets.release()
        if self._tuned is not None:
            self._tuned.release()

    def takes(self, chunks: Seq[Chunk]) -> bool:
        """Whether each of these lacks the one token that is to be computed, and nothing stands in the way."""
        return len(chunks) <= self._state.rows and all(
            c.count == 1 and not c.drafted and c.samples and self._rows.takes(c.sequence) for c in chunks
        )

    def run(self, chunks: Seq[Chunk], most: int, interrupt: Interrupt) -> list[Decoded]:
        """What up to `most` steps give to these sequences, equally many tokens to all of them.

        With more than one those that were begun last are left for the next run to read, see `left`. They end early
        after a step that ends a sequence, and after the one during which `interrupt` was set.
        """
        started = time.perf_counter()
        try:
            return self._run(chunks, most, interrupt)
        except BaseException:
            self._rows.forget()
            raise
        finally:
            self.seconds += time.perf_counter() - started

    def _run(self, chunks: Seq[Chunk], most: int, interrupt: Interrupt) -> list[Decoded]:
        flights, self._flights = self._flights, []
        waiting: deque[tuple[_Result, Seq[int]]] = deque()
        for flight in flights:
            lines = flight.lines_of(chunks, len(waiting))
            if lines is None:
                break
            waiting.append((flight.result, lines))
        under_way = begun = len(waiting)
        for number, flight in enumerate(flights):
            if number >= under_way:  # their rows may stand where they should, by a token that another step chose anew
                self._rows.unread(flight.lines)
            elif len(flight.lines) > len(chunks):
                self._rows.unread(flight.lines.keys() - {chunk.sequence for chunk in chunks})
        left = self.left(len(chunks))
        found = [Decoded([], []) for _ in chunks]
        tuned, adapters = self._tuned, list[int]()
        if tuned is not None:
            adapters = [chunk.sequence.adapter for chunk in chunks]
        bucket, steps, ended = (tuned if tuned and any(adapters) else self._buckets).of(len(chunks)), 0, False
        if most > under_way:
            rows = self._rows.place(chunks, under_way)
            bucket.place(rows)
            if any(adapters):
                self._tell_adapters(rows, adapters)
        while steps < max(most - left, 1) and not ended:
            while begun < min(most, steps + left + 1):
                waiting.append((self._launch(bucket), range(len(chunks))))
                begun += 1
            result, at = waiting.popleft()
            ended = self._read(result, at, chunks, found) or bool(interrupt.flag)
            steps += 1
        if begun > under_way:
            self._rows.moved(chunks, begun - under_way)
        self._flights = [_flight(result, at, chunks, steps + number) for number, (result, at) in enumerate(waiting)]
        return found

    def _read(self, result: _Result, lines: Seq[int], chunks: Seq[Chunk], found: Seq[Decoded]) -> bool:
        """Add what a step gave; whether one of the sequences ends by it."""
        tokens, logprobs = result.read()
        ended = False
        for chunk, line, decoded in zip(chunks, lines, found, strict=True):
            token = tokens[line]
            decoded.tokens.append(token)
            decoded.logprobs.append(logprobs[line])
            ended = ended or token < 0 or token in chunk.sequence.ends
        return ended

    def _launch(self, bucket: Bucket) -> _Result:
        if not bucket.recorded:
            bucket.misses += 1
        bucket.launch()
        return _Result(bucket.out)

    def _tell_adapters(self, rows: Seq[int], adapters: Seq[int]) -> None:
        if (rows, adapters) != self._placed:
            places, numbers = (upload(each, torch.int64, self._adapter_of.device) for each in (rows, adapters))
            self._adapter_of.index_copy_(0, places, numbers)
            self._placed = rows, adapters

    def _step(self, bucket: Bucket) -> None:
        """A step from its rows to its results, without a word from the host."""
        begun = self._kernels.begin(self._state, bucket.order)
        self._choose(bucket, begun, self._decoder.decoded(begun, self._store.layers, self._longest))

    def _tuned_step(self, bucket: Bucket) -> None:
        """The same where some rows have adapters."""
        assert self._adapted is not None
        begun = self._kernels.begin(self._state, bucket.order)
        with self._adapted.rows.on_device(self._adapter_of.index_select(0, bucket.order)):
            logits = self._adapted.tuned.decoded(begun, self._store.layers, self._longest)
        self._choose(bucket, begun, logits)

    def _choose(self, bucket: Bucket, begun: DeviceStep, logits: Tensor) -> None:
        chosen, logprobs = self._kernels.choose(logits, self._state, bucket.order, begun.keys)
        self._kernels.advance(self._state, bucket.order, chosen, logprobs, bucket.out)
