"""Which tokens of which sequences the next step computes.

There are no prefill and decode phases: every sequence has computed and known tokens, and a step closes gaps under one
token budget. A new prompt, the rest of a chunked one, one decoded token and a resumption after preemption are all
gaps of some length.

The order within a step:
1. running sequences that lack one token, oldest first. A sequence that needs a block the pool does not have preempts
   the youngest running one of the last rank (which may be itself); the victim gives its blocks back and is recomputed
   later. Where blocks or pages behind a window are given back, those with longer gaps then get a step's likewise;
2. running sequences with longer gaps, each up to its share of the step;
3. waiting sequences, unless something was preempted, as long as the whole known part fits the pool. Interactive ones
   are through with 2 and 3 before the others begin with 2;
4. what is left of the budget goes to those that step 2 and 3 cut at their share;
5. background sequences join as long as the step stays below the knee, the size up to which further tokens cost next to
   nothing, or have a small step to themselves where nobody else wants one.

What steps 1 to 4 give is the same with background sequences as without: whenever a sequence needs blocks, those of
background sequences count as free and are taken first.

Who waits is served in the order of `Shares`, tenant by tenant.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence as Seq
from operator import attrgetter

from headgate.engine.kv.block_table import BlockTable
from headgate.engine.kv.pins import Pins
from headgate.engine.kv.tables import KVTables
from headgate.engine.kv.tiers import Tiers
from headgate.engine.kv.window import Window
from headgate.engine.scheduling.background import Background
from headgate.engine.scheduling.chunk import Chunk
from headgate.engine.scheduling.limits import Limits, StepRoom
from headgate.engine.scheduling.shares import Shares
from headgate.engine.scheduling.waiting import Waiting
from headgate.engine.sequence import Sequence
from headgate.engine.speculation.lent import Lent

_RANKS = (0, 1)
_BLOCKS, _PAGES = attrgetter("blocks"), attrgetter("pages")
"""Of a table: what it has for the tokens that it has room for."""


class Scheduler:
    """Queues and running set of one model."""

    def __init__(self, tables: KVTables, limits: Limits, tiers: Tiers | None = None) -> None:
        """`tiers`: of the tables, where there are some."""
        self.tables = tables
        self.tiers = tiers
        self.limits = limits
        self.room = StepRoom(limits.max_step_tokens, careful=tables.states is not None)
        self.preemptions = 0
        self.queried_tokens = 0
        self.hit_tokens = 0
        self.running: list[Sequence] = []
        """In order of arrival."""
        self.pins = Pins(tables)
        self.lent = Lent(tables)
        self.background = Background(tables, self.pins, self.lent, limits.max_running)
        self._shares = Shares()
        self.waiting = Waiting(self._shares)
        """Those that are not admitted, or were preempted."""
        self._refused: tuple[Sequence, tuple[int, ...], int] | None = None
        self._revision = 0
        """Of what runs, waits and is computed; goes up after it has changed."""
        self._pending = -1, 0

    @property
    def revision(self) -> int:
        """Goes up with whatever may change what the next step is."""
        return self._revision + (0 if self.tiers is None else self.tiers.ended)

    @property
    def pending_tokens(self) -> int:
        """Prompt tokens that are still to be computed; may be read from another thread, so it looks at copies.

        A sequence that decodes lacks one token and counts none, nor does one that waits for a sibling's prompt. Each
        request asks: between two steps of hundreds of sequences they are counted once.
        """
        revision = self._revision
        if self._pending[0] != revision:
            self._pending = revision, self._lacking()
        return self._pending[1]

    def _lacking(self) -> int:
        shares = self.tables.shares
        gaps = [s.gap - (s.shareable if shares else 0) for s in (*list(self.running), *self.waiting)]
        return sum(gap for gap in gaps if gap > 1)

    @property
    def idle(self) -> bool:
        """Nothing runs and nothing waits."""
        return self.quiet and not len(self.background)

    @property
    def quiet(self) -> bool:
        """Nothing runs and nothing waits but background work."""
        return not self.running and not self.waiting

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence behind its tenant's others, or behind the other background work."""
        if self.idle:
            self.room.emptied()
        self._revision += 1
        if sequence.background:
            self.background.add(sequence)
            return
        self.waiting.add(sequence, self.running)
        self._revision += 1

    def schedule(self, *, alone: bool = True) -> list[Chunk]:
        """The chunks of the next step; empty when nothing can run.

        `alone`: whether no other model's users want the device. Otherwise nothing runs that only has background work.
        """
        granted: dict[Sequence, int] = {}
        preemptions = self.preemptions
        self._decode(granted)
        preempted = self.preemptions > preemptions
        admit = not preempted and bool(self.waiting)
        if admit or len(granted) < len(self.running):  # mostly all decode, and small models feel what is done beside
            self._read(granted, admit=admit)
        if not preempted and len(self.background):
            granted |= self._fill(granted, alone=alone)
        self._revision += 1
        states = self.tables.states
        if states is not None and self.tables.shares:
            for sequence, count in granted.items():
                start, known = sequence.computed, len(sequence.tokens)
                states.plan(sequence.table, start, start + count, known, sequence.prompt_length)
        return [Chunk(sequence, sequence.computed, count) for sequence, count in granted.items()]

    def repeats(self, chunks: list[Chunk], most: int) -> int:
        """How many steps like the one that was just scheduled may follow each other, itself included: 1 to `most`.

        More than 1 only where all that runs decodes and nothing would be decided in between: nobody waits who could be
        admitted, nobody reaches his limit before the last step, and the blocks for all tokens are free. They are taken.
        """
        full = len(self.running) >= self.limits.max_running
        if most < 2 or len(chunks) < len(self.running) or len(self.background) or (self.waiting and not full):
            return 1
        for chunk in chunks:
            sequence = chunk.sequence
            if chunk.count > 1 or not chunk.samples:
                return 1
            most = min(most, sequence.limit - len(sequence.tokens))
        tables, size = self.tables, self.tables.block_size
        missing = sum(tables.blocks_for(c.start + most) - len(c.sequence.table.blocks) for c in chunks)
        if missing > min(tables.free):
            return min(most, *(len(c.sequence.table.blocks) * size - c.start for c in chunks))
        for chunk in chunks:
            tables.extend(chunk.sequence.table, chunk.start + most)
        return most

    def repeated(self, chunks: list[Chunk], times: int, begun: int) -> list[Chunk]:
        """What was computed when the step that these chunks were scheduled for came `times` times in a row.

        Leaves everything as if each had been scheduled: blocks for more than the `begun` steps are given back.
        """
        for chunk in chunks:
            self._shares.charge(chunk.sequence.request, times - 1)
            self.tables.trim(chunk.sequence.table, chunk.start + begun)
        return [Chunk(chunk.sequence, chunk.start, times) for chunk in chunks]

    def draft(self, chunk: Chunk, tokens: Seq[int]) -> Chunk:
        """The chunk with proposed tokens behind its own, as many as the pool has blocks for without taking any back."""
        table, known = chunk.sequence.table, chunk.start + chunk.count
        if not self.tables.extend(table, known + len(tokens)):
            tokens = tokens[: len(table.blocks) * self.tables.block_size - known]
        self._shares.charge(chunk.sequence.request, len(tokens))
        return Chunk(chunk.sequence, chunk.start, chunk.count + len(tokens), tokens)

    def cut(self, chunk: Chunk, count: int) -> Chunk:
        """The chunk with no more than its first `count` tokens: the others stay for a later step."""
        if not chunk.sequence.background:
            self._shares.charge(chunk.sequence.request, count - chunk.count)
        return Chunk(chunk.sequence, chunk.start, count)

    def shrink(self, chunks: list[Chunk]) -> bool:
        """The step does not fit the device's memory. Have the next ones be smaller, False where that is no use.

        Leaves everything as it was before the step, but for what the tenants were charged. Who has a state begins anew:
        some layers may have changed it already.
        """
        for chunk in chunks:
            self.tables.trim(chunk.sequence.table, len(chunk.sequence.tokens))
        alone = len(chunks) == 1 and chunks[0].sequence.parted(0, 1) >= chunks[0].count > 1
        smaller = not alone and self.room.shrink(sum(chunk.count for chunk in chunks), len(chunks))
        if smaller and self.tables.states is not None:
            for sequence in sorted((chunk.sequence for chunk in chunks), key=lambda s: -s.arrival):
                preempt = self.background.preempt if sequence.background else self._preempt
                preempt(sequence)
            self._revision += 1
        return smaller

    def commit(self, chunks: list[Chunk]) -> None:
        """The step's keys and values are written: count them as computed and share full blocks.

        Those of proposed tokens that do not hold are not counted: other tokens will come in their places.
        """
        for chunk in chunks:
            sequence, count = chunk.sequence, chunk.count
            if chunk.drafted:
                # The last token of what holds came out of the step, and was not in it.
                count = len(sequence.tokens) - 1 - chunk.start
                self.tables.trim(sequence.table, chunk.start + count)
            sequence.computed = chunk.start + count
            probed = sequence.request.probe and not sequence.gap
            if sequence.computed % self.tables.block_size >= count and not probed:
                continue  # no block became full
            self.tables.publish(sequence.table, sequence.known, sequence.computed)
            if probed:
                self.tables.publish_tail(sequence.table, sequence.known)
            self.tables.give_back(sequence.table, sequence.computed, keep=not sequence.background)
        states = self.tables.states
        if states is not None:
            for chunk in chunks:
                states.settle(chunk.sequence.table, keep=not chunk.sequence.background)
        self._revision += 1

    def remove(self, sequence: Sequence, *, discard: bool = False) -> list[int]:
        """Take a sequence out, finished or not; returns the blocks that nobody uses any more.

        `discard` keeps blocks that only it used from being found again, after a step that failed.
        """
        sequence.done = True
        self._revision += 1
        if sequence.background:
            return self.background.remove(sequence, discard=discard)
        if sequence.admitted:
            sequence.admitted = False
            self.running.remove(sequence)
        else:
            self.waiting.remove(sequence)
        self._revision += 1
        return self.tables.release(sequence.table, discard=discard)

    def pin(self, sequence: Sequence, most: int) -> bool:
        """Hold the full blocks of a sequence that was read, unless more than `most` would be held then."""
        if not self.pins.add(sequence.request.id, sequence.table, most):
            return False
        sequence.table = self.tables.table(sequence.request.tenant)
        return True

    def unpin(self, request_id: str) -> None:
        """Let go of them. Unknown ones are ignored."""
        self.pins.drop(request_id)
        self._revision += 1

    def forget(self) -> None:
        """Nothing that was computed is there any more, and nothing is held of it. Nobody runs or waits."""
        self.pins.drop_all()
        self.lent.give_way()
        self.tables.forget()

    def check(self) -> None:
        """Raise AssertionError when queues, running set and block tables disagree."""
        waiting = [*self.waiting]
        assert len({id(s) for s in (*self.running, *waiting)}) == len(self.running) + len(waiting), "listed twice"
        self.waiting.check()
        assert all(s.admitted and not s.done for s in self.running)
        assert not any(s.admitted or s.done or s.table.blocks or s.computed for s in waiting)
        assert [s.arrival for s in self.running] == sorted(s.arrival for s in self.running)
        for sequence in self.running:
            table, blocks = sequence.table, self.tables.blocks_for(sequence.computed)
            assert blocks <= len(table.blocks if self.tables.pages is None else table.pages)
        assert self.pending_tokens == self._lacking(), "something has changed and was not noted"
        self.background.check()
        others = (*self.background.running, *self.background.waiting)
        tables = [*(s.table for s in (*self.running, *waiting, *others)), *self.pins.tables, *self.lent.tables]
        if self.tiers is not None:
            self.tiers.check()
            tables += self.tiers.tables
        self.tables.check(tables)

    def _decode(self, granted: dict[Sequence, int]) -> None:
        """The first of the order above: sequences that lack one token."""
        budget, size = self.room.tokens, self.tables.block_size
        ready = _BLOCKS if self.tables.pages is None else _PAGES
        for sequence in list(self.running):
            known = len(sequence.tokens)
            if known - sequence.computed != 1 or not sequence.admitted:
                continue
            if len(granted) == budget:
                break  # only where memory was short: the youngest wait
            # Most tokens go into a block that is there; asking for each costs more than all the rest of this loop.
            if known <= len(ready(sequence.table)) * size or self._make_room(sequence, granted, known):
                granted[sequence] = 1
        if self.tables.window is not None:
            self._cover(self.tables.window, granted)
        for sequence in granted:
            self._shares.charge(sequence.request, 1)

    def _read(self, granted: dict[Sequence, int], *, admit: bool) -> None:
        """The second to the fourth: longer gaps of those that run and, with `admit`, of those that wait."""
        budget = self.room.tokens - len(granted)
        cap = max(1, int(self.room.tokens * self.limits.max_sequence_share))
        prompts: list[Sequence] = []
        if len(granted) < len(self.running):
            longer = (s for s in self.running if s.gap > 1)
            prompts = sorted(longer, key=lambda s: (s.rank, self._shares.time(s.request.tenant), s.arrival))
        for rank in _RANKS:
            for sequence in prompts:
                if sequence.rank == rank:
                    budget -= self._grant(sequence, min(cap, budget), budget, granted)
            while admit and budget > 0 and (admitted := self._admit(rank)) is not None:
                prompts.append(admitted)
                count = self._grant(admitted, min(cap, budget), budget, granted)
                if not count:
                    break  # who gets nothing is charged nothing: all of its tenant would come in one after the other
                budget -= count
        prompts.sort(key=lambda s: s.rank)
        for sequence in prompts:
            budget -= self._grant(sequence, budget, budget, granted)

    def _fill(self, granted: dict[Sequence, int], *, alone: bool) -> dict[Sequence, int]:
        """Background tokens for what the step has left."""
        limits = self.limits
        if not granted and not alone:
            return {}
        most = limits.knee_tokens if granted else limits.background_step_tokens
        most = min(most, self.room.tokens) - sum(granted.values())
        whole = 0 if granted else self.room.tokens
        return self.background.schedule(most, limits.max_running - len(granted), admit=not self.waiting, whole=whole)

    def _cover(self, window: Window, granted: dict[Sequence, int]) -> None:
        """Room for a step of each prompt: it entered with as much, but others may hold what it gave back since."""
        for sequence in [s for s in self.running if s.gap > 1]:
            if sequence.admitted:
                self._make_room(sequence, granted, min(len(sequence.tokens), sequence.computed + window.step))

    def _make_room(self, sequence: Sequence, granted: dict[Sequence, int], tokens: int) -> bool:
        """Room for so many tokens of a running sequence, by preemption if need be; False if it preempted itself."""
        while not self.tables.extend(sequence.table, tokens):
            if self._give_way():
                continue
            victim = max(self.running, key=lambda s: (s.rank, s.arrival))
            granted.pop(victim, None)
            self._preempt(victim)
            if victim is sequence:
                return False
        return True

    def _give_way(self) -> bool:
        """Take blocks from drafts for another model, or from background work; False where neither has any."""
        return self.lent.give_way() or self.background.give_way()

    def _preempt(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self.tables.release(sequence.table)
        sequence.reset()
        self.preemptions += 1
        self.waiting.add(sequence, self.running, first=True)

    def _admit(self, rank: int) -> Sequence | None:
        """Admit the next ready sequence of the tenant that is furthest behind, if its known part fits the pool.

        Those of lower ranks come first, and none of a higher one.
        """
        if len(self.running) >= self.limits.max_running:
            return None
        for sequence in self.waiting.ready(rank):
            if self._enter(sequence):
                return sequence
            if sequence.ready:
                # A prompt that lacks memory is not overtaken: running sequences end, and then it fits.
                return None
        return None

    def _enter(self, sequence: Sequence) -> bool:
        if self._refused == (sequence, self.tables.free, len(self.running)):
            return False
        while not self.tables.admits:
            if not self.background.give_way():
                return False
        cached = self.tables.attach_prefix(sequence.table, sequence.reusable)
        tiers = self.tiers if sequence.load is None else None
        if tiers is not None:
            sequence.load = tiers.join(sequence.table, sequence.reusable)
            if sequence.load is not None:
                self.tables.release(sequence.table)
                return False
        # One block in reserve per running sequence, or the newcomer would soon be preempted for their next tokens.
        known, spare = len(sequence.tokens), len(self.running)
        while not (fits := self.tables.fits(sequence.table, known, spare)) and self._give_way():
            pass
        if not fits:
            self.tables.release(sequence.table)
            # Remembered, so that a long prompt is not hashed again in every step until something is freed. Who ends and
            # is pinned frees no block, but needs none in reserve any more.
            self._refused = (sequence, self.tables.free, len(self.running))
            return False
        if tiers is not None:
            sequence.load = tiers.fetch(sequence.table, sequence.reusable)
            if sequence.load is not None:
                sequence.table = BlockTable(sequence.table.root)
                return False
        self.tables.enter(sequence.table, known)
        self.waiting.remove(sequence)
        if sequence.preemptions == 0:
            self.queried_tokens += sequence.prompt_length
            self.hit_tokens += cached
        sequence.admit(cached)
        insort(self.running, sequence, key=lambda s: s.arrival)
        return True

    def _grant(self, sequence: Sequence, most: int, budget: int, granted: dict[Sequence, int]) -> int:
        """Add up to `most` tokens of the sequence to the step; returns how many.

        A picture that is computed whole may have up to `budget`; where that is too little for one, since memory was
        short, it has a step to itself.
        """
        already = granted.get(sequence, 0)
        if self.tables.window is not None:
            budget = min(budget, self.tables.window.step - already)
        count = min(sequence.gap - already, most, budget)
        if count > 0 and sequence.request.sights:
            count = sequence.parted(already, count)
            count = count if count <= budget or not granted else 0
        if count > 0:
            granted[sequence] = already + count
            self._shares.charge(sequence.request, count)
        return count
