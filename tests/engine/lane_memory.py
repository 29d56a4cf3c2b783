"""A lane over a model that computes nothing, for tests of what is computed when and where it is kept.

The runner writes into every slot which tokens the slot stands for, and before that reads the slots of the whole
context back. A block that is used twice, shared wrongly, or freed too early shows as a wrong read.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from itertools import count

import numpy as np
import torch

from headgate.engine.kv.disk import DiskTier
from headgate.engine.kv.kinds import kv_tables
from headgate.engine.kv.shelf import Shelf
from headgate.engine.kv.tables import KVTables
from headgate.engine.kv.tiers import Tiers
from headgate.engine.kv.window import Window
from headgate.engine.lane import Lane
from headgate.engine.request import Delta, TokenScore
from headgate.engine.scheduler import Scheduler
from headgate.engine.scheduling.chunk import Chunk
from headgate.engine.scheduling.limits import Limits
from headgate.engine.sequence import Sequence
from headgate.engine.speculation.verifier import holding
from headgate.engine.stepping.found import Probed, Sampled, Scored
from headgate.engine.stepping.inputs import Interrupt

LIMITS = Limits(
    max_step_tokens=7, max_running=4, max_sequence_share=0.5, knee_tokens=5, background_step_tokens=3, pinned_share=0.3
)
BLOCKS, BLOCK_SIZE = 12, 4
EOS = 0


def following(tokens: Seq[int]) -> int:
    """The next token follows from the tokens before it, as it would in a model."""
    return sum(tokens) % 7


class MemoryModel:
    """Stands in for the runner: a slot holds (tenant, all tokens up to its own)."""

    def __init__(
        self,
        block_size: int,
        window: int | None = None,
        *,
        paged: bool = False,
        says: Callable[[Seq[int]], int] = following,
    ) -> None:
        """`paged`: whether what is seen of a window lies in pages, and what is seen of all in blocks. `says`: what the
        model takes to follow.
        """
        self._says = says
        self._block_size = block_size
        self._window = None if paged else window
        self._pages: dict[int, tuple[str, tuple[int, ...]]] | None = {} if paged else None
        self._page_window = window or 0
        self._slots: dict[int, tuple[str, tuple[int, ...]]] = {}
        self.fail_next = False
        self.fits: Callable[[Seq[Chunk]], bool] = lambda _: True
        self.forward_seconds = 0.0
        self.chunks: list[Chunk] = []
        self.early = 100
        self.leaves = 0
        self.unrecorded = self.kv_bytes = 0
        self.seeing = None
        self._flights: dict[Sequence, list[tuple[int, int]]] = {}
        self._states: dict[int, tuple[str, tuple[int, ...]]] = {}

    def ahead(self, chunks: Seq[Chunk]) -> int:  # noqa: ARG002
        return self.leaves

    def repeats(self, chunks: Seq[Chunk]) -> bool:
        return all(c.sequence.direct and c.count == 1 and c.samples and c.sequence.table.held is None for c in chunks)

    def prepare(self, *, idle: bool) -> bool:  # noqa: ARG002
        return False

    def run(
        self, chunks: Seq[Chunk], most: int, interrupt: Interrupt, *, repeats: bool
    ) -> list[Sampled | Probed | Scored]:
        """Up to `most` steps, no more after one that ends a sequence, nor after the `self.early`-th.

        The last steps, as many as it `leaves`, are only begun, which writes to their slots: the next run, if it is of
        the same sequences, finds them written.
        """
        flights, self._flights = self._flights, {}
        if all(c.count == 1 and flights.get(c.sequence, [(-1, 0)])[0][0] == c.start for c in chunks):
            for c in chunks:
                first = flights[c.sequence][0]
                assert first[1] == self._slot(c, c.start), "its block was taken"
                for position, slot in flights[c.sequence][1:most]:
                    assert slot == self._slot(c, position), "a later block of its was taken"
        assert not interrupt.flag
        assert repeats or most == 1
        assert most == 1 or all(c.count == 1 and c.samples and not c.sequence.background for c in chunks)
        self.chunks = list(chunks)
        remember = self._remember(chunks)
        if not self.fits(chunks):
            raise torch.OutOfMemoryError("CUDA out of memory")
        found: dict[Sequence, list[int]] = {c.sequence: [] for c in chunks if c.samples}
        steps = 0
        for step in range(min(max(1, most - self.leaves), self.early)):
            steps += 1
            self._compute(chunks, found, step)
            for sequence, tokens in found.items():
                tokens.append(self._says((*sequence.tokens, *tokens)))
            if any(tokens[-1] in sequence.ends for sequence, tokens in found.items()):
                break
        if self.leaves and most > 1:
            for chunk in chunks:
                known = (*chunk.sequence.tokens, *found[chunk.sequence])
                self._flights[chunk.sequence] = []
                for position in range(chunk.start + steps, chunk.start + min(most, steps + self.leaves)):
                    slot = self._slot(chunk, position)
                    self._flights[chunk.sequence].append((position, slot))
                    self._slots[slot] = self._meaning(chunk, known, position)
                    known = (*known, self._says(known))
                if not self._flights[chunk.sequence]:
                    del self._flights[chunk.sequence]
        for chunk in chunks:
            if chunk.drafted:
                known = chunk.sequence.tokens
                behind = [self._says((*known, *chunk.drafted[:at])) for at in range(1 + len(chunk.drafted))]
                found[chunk.sequence] = behind[: holding(behind, chunk.drafted, chunk.sequence.ends)]
        self._states.update(remember)
        sampled = [Sampled(sequence, tokens) for sequence, tokens in found.items()]
        probed = [
            Probed(c.sequence, np.array(c.sequence.tokens, np.float32))
            for c in chunks
            if c.sequence.request.probe and c.start + c.count == len(c.sequence.tokens)
        ]
        return [*sampled, *probed, *(Scored(c.sequence, self._scores(c)) for c in chunks if c.scored)]

    def _compute(self, chunks: Seq[Chunk], found: Mapping[Sequence, list[int]], step: int) -> None:
        # A step writes all its keys before any attention reads them.
        for chunk in chunks:
            known = (*chunk.sequence.tokens, *found.get(chunk.sequence, ()), *chunk.drafted)
            for position in range(chunk.start + step, chunk.start + step + chunk.count):
                self._slots[self._slot(chunk, position)] = self._meaning(chunk, known, position)
                if self._pages is not None:
                    self._pages[self._page_slot(chunk, position)] = self._meaning(chunk, known, position)
        for chunk in chunks:
            known = (*chunk.sequence.tokens, *found.get(chunk.sequence, ()), *chunk.drafted)
            first = chunk.start + step
            seen = 0 if self._window is None or chunk.sequence.request.probe else first - self._window + 1
            for position in range(max(0, seen), first + chunk.count):
                assert self._slots[self._slot(chunk, position)] == self._meaning(chunk, known, position)
            if self._pages is not None:
                for position in range(max(0, first - self._page_window + 1), first + chunk.count):
                    assert self._pages[self._page_slot(chunk, position)] == self._meaning(chunk, known, position)
                for position in range(first + chunk.count):
                    assert self._page_slot(chunk, position) in self._pages, "a page that nobody has written to is read"
        if self.fail_next:
            self.fail_next = False
            raise RuntimeError("the device is gone")

    def _remember(self, chunks: Seq[Chunk]) -> dict[int, tuple[str, tuple[int, ...]]]:
        """States as the step is to leave them: a state stands for the tokens that made it.

        They are broken until then: some layers may have changed theirs when a step fails.
        """
        held = [(chunk, chunk.sequence.table.held) for chunk in chunks]
        for _, states in held:
            if states is not None and states.source >= 0:
                self._states[states.slot] = self._states[states.source]
        after = {}
        for chunk, states in held:
            if states is None:
                continue
            known, tenant = tuple(chunk.sequence.tokens), chunk.sequence.request.tenant
            if chunk.start:
                assert self._states[states.slot] == (tenant, known[: chunk.start]), "it goes on from another state"
            for end, slot in (*states.saves, (chunk.start + chunk.count, states.slot)):
                assert chunk.start < end <= chunk.start + chunk.count
                after[slot] = tenant, known[:end]
        self._states.update(dict.fromkeys(after, ("nobody", ())))
        return after

    def _scores(self, chunk: Chunk) -> tuple[TokenScore, ...]:
        request = chunk.sequence.request
        given = (*request.prompt, *request.score)
        return tuple(TokenScore(given[p + 1], -float(p), False) for p in chunk.scored)

    def discard(self, blocks: Seq[int], pages: Seq[int]) -> None:
        for held, numbers in ((self._slots, blocks), (self._pages or {}, pages)):
            for number in numbers:
                for slot in range(number * self._block_size, (number + 1) * self._block_size):
                    held.pop(slot, None)

    def release(self) -> None:
        self._slots.clear()
        if self._pages is not None:
            self._pages.clear()
        self._states.clear()

    def records(self) -> MemoryRecords:
        return MemoryRecords(self._slots, self._block_size)

    def _slot(self, chunk: Chunk, position: int) -> int:
        return (
            chunk.sequence.table.blocks[position // self._block_size] * self._block_size + position % self._block_size
        )

    def _page_slot(self, chunk: Chunk, position: int) -> int:
        return chunk.sequence.table.pages[position // self._block_size] * self._block_size + position % self._block_size

    def _meaning(self, chunk: Chunk, known: tuple[int, ...], position: int) -> tuple[str, tuple[int, ...]]:
        return chunk.sequence.request.tenant, known[: position + 1]


class MemoryRecords:
    """Implements BlockRecords over the slots: what they hold is in a record as text."""

    NBYTES = 4096

    def __init__(self, slots: dict[int, tuple[str, tuple[int, ...]]], block_size: int) -> None:
        self._slots, self._size = slots, block_size

    def save(self, blocks: Seq[int], shelf: Shelf, rows: Seq[int]) -> Callable[[], None]:
        for block, row in zip(blocks, rows, strict=True):
            held = pickle.dumps([self._slots[slot] for slot in self._of(block)])
            shelf.rows[row][: len(held)] = np.frombuffer(held, np.uint8)
        return lambda: None

    def open(self, blocks: Seq[int]) -> Callable[[], None]:  # noqa: ARG002
        return lambda: None

    def load(self, shelf: Shelf, rows: Seq[int], blocks: Seq[int]) -> None:
        for block, row in zip(blocks, rows, strict=True):
            self._slots.update(zip(self._of(block), pickle.loads(shelf.rows[row].tobytes()), strict=True))

    def _of(self, block: int) -> range:
        return range(block * self._size, (block + 1) * self._size)


class Errands:
    """Implements Beside: what is to be done beside the steps is done when the test says so."""

    def __init__(self) -> None:
        self.tasks: list[tuple[bool, Callable[[], None]]] = []
        self.alarms: list[Callable[[], None]] = []
        self._calls: list[Callable[[], list[Delta]]] = []

    def call(self, command: Callable[[], list[Delta]]) -> None:
        """Have the step thread do it."""
        self._calls.append(command)

    def put(self, task: Callable[[], None], *, urgent: bool) -> None:
        self.tasks.append((urgent, task))

    def later(self, seconds: float, task: Callable[[], None]) -> Callable[[], None]:
        assert seconds > 0
        self.alarms.append(task)
        return lambda: self.alarms.remove(task)

    def close(self, seconds: float) -> None:
        assert seconds > 0
        self.run(len(self.tasks))

    def run(self, most: int) -> None:
        """Do some of it, the urgent first, and what the step thread is to do then."""
        for _ in range(min(most, len(self.tasks))):
            at = next((at for at, (urgent, _) in enumerate(self.tasks) if urgent), 0)
            self.tasks.pop(at)[1]()
        self.answer()

    def answer(self) -> None:
        calls, self._calls = self._calls, []
        for call in calls:
            assert not call()


def tiered_lane(
    limits: Limits = LIMITS,
    blocks: int = BLOCKS,
    *,
    rows: int = 8,
    disk: DiskTier | None = None,
    keeps: bool = True,
    most_queued: int = 8,
    least_blocks: int = 1,
    context_length: int = 10**6,
    says: Callable[[Seq[int]], int] = following,
) -> tuple[Lane, Scheduler, MemoryModel, Errands]:
    """A lane whose blocks go to host memory, or to disk."""
    errands, memory = Errands(), MemoryModel(BLOCK_SIZE, says=says)
    tables = KVTables(blocks, BLOCK_SIZE, b"key")
    shelf = Shelf(torch.zeros(rows, MemoryRecords.NBYTES, dtype=torch.uint8))
    tiers = Tiers(
        tables, shelf, disk, call=errands.call, beside=errands, keeps=keeps, most_queued=most_queued,
        least_blocks=least_blocks, clock=count(0.0).__next__,
    )  # fmt: skip
    clock, cpu_clock = count(0.0).__next__, count(0.0, 0.0).__next__
    scheduler = Scheduler(tables, limits, tiers)
    lane = Lane(scheduler, memory, context_length=context_length, eos_ids=(EOS,), clock=clock, cpu_clock=cpu_clock)
    return lane, scheduler, memory, errands


def lane_of(
    limits: Limits = LIMITS,
    blocks: int = BLOCKS,
    *,
    prefix_cache: bool = True,
    context_length: int = 10**6,
    tick_s: float = 1.0,
    cpu_tick_s: float = 0.0,
    states: int = 0,
    window: int | None = None,
    pages: int = 0,
    lookup: bool = False,
    says: Callable[[Seq[int]], int] = following,
) -> tuple[Lane, Scheduler, MemoryModel]:
    """Whose clocks go on by a tick whenever they are read. `states`: slots of a model that keeps some.

    `window`: positions back, itself included, that a token of another sees; with `pages`, in some of its layers.
    `says`: what its model takes to follow.
    """
    bound = Window.of(
        window,
        step=limits.max_step_tokens,
        block_size=BLOCK_SIZE,
        blocks=pages or blocks,
        context_length=context_length,
    )
    tables = kv_tables(blocks, BLOCK_SIZE, b"key", prefix_cache=prefix_cache, states=states, window=bound, pages=pages)
    scheduler = Scheduler(tables, limits)
    memory = MemoryModel(BLOCK_SIZE, window, paged=pages > 0, says=says)
    clock, cpu_clock = (count(0.0, tick).__next__ for tick in (tick_s, cpu_tick_s))
    lane = Lane(
        scheduler,
        memory,
        context_length=context_length,
        eos_ids=(EOS,),
        clock=clock,
        cpu_clock=cpu_clock,
        lookup=lookup,
    )
    return lane, scheduler, memory
