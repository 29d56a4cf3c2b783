"""Scheduler, block tables and prefix cache under any interleaving, against a model of what the memory must hold."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import replace

from draft_edits import Edit, edited, edits_of
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from lane_memory import BLOCK_SIZE, BLOCKS, EOS, LIMITS, MemoryModel, following, lane_of, tiered_lane

from headgate.engine.lane import Lane
from headgate.engine.request import Delta, Priority, Request, TokenScore
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.scheduler import Scheduler

PINNED = 3


class LaneMachine(RuleBasedStateMachine):
    """Submit, cancel, step and fail in any order, with memory for steps of any size."""

    STATES = 0
    POOL = BLOCKS + PINNED
    """Beside what may be pinned there are BLOCKS for the longest sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.lane, self.scheduler, self.memory = self._lane()
        self.submitted = 0
        self.open: dict[str, set[int]] = {}
        self.wanted: dict[str, Request] = {}
        self.received: dict[tuple[str, int], list[int]] = {}
        self.scored: dict[str, list[TokenScore]] = {}

    def _lane(self) -> tuple[Lane, Scheduler, MemoryModel]:
        return lane_of(LIMITS, self.POOL, context_length=BLOCKS * BLOCK_SIZE, states=self.STATES)

    @rule(
        length=st.integers(1, 44),
        family=st.integers(0, 1),
        tenant=st.sampled_from(["a", "a", "b"]),
        most=st.integers(1, 12),
        n=st.integers(1, 3),
        weight=st.sampled_from([0.5, 1.0, 3.0]),
        ignore_eos=st.booleans(),
        priority=st.sampled_from(["interactive", "foreground", "background"]),
        edits=st.none() | edits_of(st.integers(0, 6)),
    )
    def submit(
        self,
        length: int,
        family: int,
        tenant: str,
        most: int,
        n: int,
        weight: float,
        ignore_eos: bool,
        priority: Priority,
        edits: list[Edit] | None,
    ) -> None:
        # Prompts of a family are prefixes of one another, so that blocks are shared often.
        prompt = tuple(1 + (family + i * i) % 5 for i in range(length))
        sampling = SamplingParams(max_tokens=most, ignore_eos=ignore_eos)
        request = Request(f"r{self.submitted}", "m", prompt, sampling, n, tenant, weight, priority)
        # Drafts are the answer but for some edits: nothing that is observed may depend on them.
        self._submit(request if edits is None else replace(request, draft=edited(expected_output(request), edits)))

    @rule(
        length=st.integers(1, 30),
        score=st.lists(st.integers(0, 6), min_size=1, max_size=18),
        tenant=st.sampled_from(["a", "b"]),
        priority=st.sampled_from(["interactive", "foreground", "background"]),
    )
    def score(self, length: int, score: list[int], tenant: str, priority: Priority) -> None:
        prompt = tuple(1 + i * i % 5 for i in range(length))
        self._submit(Request(f"r{self.submitted}", "m", prompt, tenant=tenant, priority=priority, score=tuple(score)))

    @rule(
        length=st.integers(1, 40),
        tenant=st.sampled_from(["a", "b"]),
        weight=st.sampled_from([0.5, 2.0]),
        pin=st.booleans(),
    )
    def probe(self, length: int, tenant: str, weight: float, *, pin: bool) -> None:
        prompt = tuple(1 + i * i % 5 for i in range(length))
        request = Request(f"r{self.submitted}", "m", prompt, tenant=tenant, weight=weight, probe=True, pin=pin)
        if length < self.lane.longest(request):
            self._submit(request)

    @rule(number=st.integers(0, 20))
    def unpin(self, number: int) -> None:
        self.lane.unpin(f"r{number}")

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.open)))
        choice = data.draw(st.none() | st.sampled_from(sorted(self.open[request_id])))
        self._take(self.lane.cancel(request_id, choice))
        assert choice is not None or request_id not in self.open

    @rule(count=st.integers(1, 4), run_s=st.sampled_from([0.0, 3.0, 9.0]), early=st.integers(1, 9))
    def step(self, count: int, run_s: float, early: int) -> None:
        self.memory.early = early
        for _ in range(count):
            self._step(run_s)

    @precondition(lambda self: self.open)
    @rule()
    def failing_step(self) -> None:
        self.memory.fail_next = True
        hit = self.lane.step()
        self.memory.fail_next = False
        self._take(hit, failing=True)
        assert all(d.finish is not None and d.finish.reason == "error" for d in hit)

    @rule(tokens=st.integers(1, LIMITS.max_step_tokens))
    def have_memory_for(self, tokens: int) -> None:
        self.memory.fits = lambda chunks: sum(c.count for c in chunks) <= tokens

    @invariant()
    def consistent(self) -> None:
        self.lane.check()

    def teardown(self) -> None:
        # Whatever is left ends within a bounded number of steps, and then every block is free again.
        bound = 50 + 20 * sum(len(self.wanted[r].prompt) + 18 * len(c) for r, c in self.open.items())
        for _ in range(bound):
            if not self.open:
                break
            self._step()
        assert not self.open, "starved"
        assert self.lane.idle
        pinned = self.lane.stats.pinned_blocks
        assert pinned <= int(self.POOL * LIMITS.pinned_share)
        assert self.scheduler.tables.free_blocks == self.POOL - pinned
        for number in range(self.submitted):
            self.lane.unpin(f"r{number}")
        assert self.scheduler.tables.free_blocks == self.POOL
        self.lane.check()

    def _submit(self, request: Request) -> None:
        request.check(self.lane.longest(request))
        self.lane.submit(request, 0.0)
        self.submitted += 1
        self.open[request.id] = set(range(request.n))
        self.wanted[request.id] = request

    def _step(self, run_s: float = 0.0) -> None:
        before = {id(s): s.preemptions for s in (*self.scheduler.running, *self.scheduler.waiting)}
        waiting, short = {id(s) for s in self.scheduler.waiting}, self.lane.stats.short_steps
        self.memory.chunks = []
        deltas = self.lane.step(run_s=run_s)
        chunks = self.memory.chunks
        assert sum(c.count for c in chunks) <= LIMITS.max_step_tokens
        assert len(chunks) <= LIMITS.max_running
        assert all(c.count > 0 for c in chunks)
        assert bool(chunks) == bool(self.open) or self.lane.stalled, "a step with work computes something"
        preempted = any(s.preemptions > before[id(s)] for s in self.scheduler.waiting if id(s) in before)
        admitted = any(id(c.sequence) in waiting for c in chunks)
        if not self.STATES or self.lane.stats.short_steps == short:
            assert not (preempted and admitted), "nothing is admitted in a step that preempted"
        self._take(deltas)

    def _take(self, deltas: Seq[Delta], *, failing: bool = False) -> None:
        for delta in deltas:
            assert delta.index in self.open[delta.request_id], "a choice ends once"
            tokens = self.received.setdefault((delta.request_id, delta.index), [])
            tokens.extend(delta.token_ids)
            self.scored.setdefault(delta.request_id, []).extend(delta.scores)
            if delta.finish is None:
                continue
            assert failing or delta.finish.reason != "error", "there is memory for a token"
            request = self.wanted[delta.request_id]
            assert delta.finish.completion_tokens == len(tokens)
            if request.score and delta.finish.reason == "stop":
                assert not tokens
                first = len(request.prompt) - 1
                assert self.scored[request.id] == [
                    TokenScore(token, -float(first + i), False) for i, token in enumerate(request.score)
                ]
            elif request.probe and delta.finish.reason == "stop":
                assert not tokens
                assert delta.state is not None
                assert delta.state.tolist() == list(request.prompt)
            elif request.pin and delta.finish.reason == "length":
                assert delta.state is None, "there was no room for more"
            elif delta.finish.reason in ("stop", "length"):
                assert tokens == expected_output(request)
                assert 0 <= delta.finish.accepted <= len(tokens)
                assert 0 <= delta.finish.rejected <= len(request.draft) - delta.finish.accepted
                ended = tokens[-1] == EOS and not request.sampling.ignore_eos
                assert delta.finish.reason == ("stop" if ended else "length")
            self.open[delta.request_id].discard(delta.index)
            if not self.open[delta.request_id]:
                del self.open[delta.request_id]


def expected_output(request: Request) -> list[int]:
    tokens = list(request.prompt)
    assert request.sampling.max_tokens is not None
    for _ in range(min(request.sampling.max_tokens, BLOCKS * BLOCK_SIZE - len(request.prompt))):
        tokens.append(following(tokens))
        if tokens[-1] == EOS and not request.sampling.ignore_eos:
            break
    return tokens[len(request.prompt) :]


TestLane = LaneMachine.TestCase
TestLane.settings = settings(max_examples=120, stateful_step_count=50, deadline=None)


class RememberingLaneMachine(LaneMachine):
    """The same of a model that keeps a state of each sequence, in fewer slots than sequences could have."""

    STATES = 6

    def teardown(self) -> None:
        super().teardown()
        states = self.scheduler.tables.states
        assert states is not None
        assert states.free == self.STATES


class CrampedLaneMachine(LaneMachine):
    """One state at a time."""

    STATES = 1


TestRememberingLane = RememberingLaneMachine.TestCase
TestCrampedLane = CrampedLaneMachine.TestCase
TestRememberingLane.settings = settings(max_examples=30, stateful_step_count=50, deadline=None)
TestCrampedLane.settings = settings(max_examples=8, stateful_step_count=50, deadline=None)


class WindowedLaneMachine(LaneMachine):
    """The same of a model that sees a window, with a pool that holds less than the longest sequence."""

    WINDOW = 9
    POOL = 7 + PINNED

    def _lane(self) -> tuple[Lane, Scheduler, MemoryModel]:
        return lane_of(LIMITS, self.POOL, context_length=BLOCKS * BLOCK_SIZE, window=self.WINDOW)

    @invariant()
    def what_nobody_reads_is_given_back(self) -> None:
        window = self.scheduler.tables.window
        assert window is not None
        for sequence in (*self.scheduler.running, *self.scheduler.background.running):
            assert sequence.table.gone == (0 if sequence.request.probe else window.first(sequence.computed))


class SmallWindowMachine(WindowedLaneMachine):
    """The same with a window of a few tokens, in no more blocks than a sequence needs."""

    WINDOW = 2
    POOL = 5


class CrowdedWindowMachine(WindowedLaneMachine):
    """The same with room for many."""

    WINDOW = 4
    POOL = 20


TestWindowedLane = WindowedLaneMachine.TestCase
TestSmallWindow = SmallWindowMachine.TestCase
TestCrowdedWindow = CrowdedWindowMachine.TestCase
TestWindowedLane.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
TestSmallWindow.settings = settings(max_examples=20, stateful_step_count=50, deadline=None)
TestCrowdedWindow.settings = settings(max_examples=20, stateful_step_count=50, deadline=None)


class PagedLaneMachine(LaneMachine):
    """The same of a model some of whose layers see a window, with fewer pages than blocks."""

    WINDOW = 9
    PAGES = 11
    POOL = 2 * BLOCKS + PINNED

    def _lane(self) -> tuple[Lane, Scheduler, MemoryModel]:
        return lane_of(LIMITS, self.POOL, context_length=BLOCKS * BLOCK_SIZE, window=self.WINDOW, pages=self.PAGES)

    @invariant()
    def windows_are_all_that_pages_are_used_for(self) -> None:
        pages = self.scheduler.tables.pages
        assert pages is not None
        for sequence in (*self.scheduler.running, *self.scheduler.background.running):
            table, first = sequence.table, pages.window.first(sequence.computed)
            assert table.behind == first
            assert len(table.pages) - first <= pages.window.blocks

    def teardown(self) -> None:
        super().teardown()
        assert self.scheduler.tables.free == (self.POOL, self.PAGES)


class FewPagesMachine(PagedLaneMachine):
    """The same with a window of a few tokens, in no more pages than a sequence needs."""

    WINDOW = 2
    PAGES = 5


class ManyPagesMachine(PagedLaneMachine):
    """The same with a page for each block."""

    WINDOW = 4
    PAGES = 2 * BLOCKS + PINNED


TestPagedLane = PagedLaneMachine.TestCase
TestFewPages = FewPagesMachine.TestCase
TestManyPages = ManyPagesMachine.TestCase
TestPagedLane.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
TestFewPages.settings = settings(max_examples=20, stateful_step_count=50, deadline=None)
TestManyPages.settings = settings(max_examples=20, stateful_step_count=50, deadline=None)


class TieredMachine(LaneMachine):
    """The same with blocks that go to a tier and come back, at any time, in part or too late."""

    def _lane(self) -> tuple[Lane, Scheduler, MemoryModel]:
        lane, scheduler, memory, self.errands = tiered_lane(
            LIMITS, BLOCKS + PINNED, rows=10, context_length=BLOCKS * BLOCK_SIZE
        )
        return lane, scheduler, memory

    @rule(tenant=st.sampled_from(["a", "b"]), steps=st.integers(4, 12), most=st.integers(1, 5))
    def flood(self, tenant: str, steps: int, most: int) -> None:
        """Something new comes, and what was there goes."""
        prompt = tuple(1 + (self.submitted + i * i * i) % 5 for i in range(44))
        self._submit(Request(f"r{self.submitted}", "m", prompt, SamplingParams(max_tokens=1), tenant=tenant))
        for _ in range(steps):
            self._step()
        self.errands.run(most)

    @rule(most=st.integers(1, 5))
    def beside(self, most: int) -> None:
        self.errands.run(most)

    @precondition(lambda self: self.errands.alarms)
    @rule()
    def too_late(self) -> None:
        self.errands.alarms.pop()()
        self.errands.answer()

    @precondition(lambda self: self.lane.wanted == (0, 0))
    @rule()
    def sleep(self) -> None:
        self._take(self.lane.rest())
        self.lane.resume(self.memory)  # type: ignore[arg-type]

    def teardown(self) -> None:
        self.errands.run(1000)
        super().teardown()

    def _step(self, run_s: float = 0.0) -> None:
        super()._step(run_s)
        if self.lane.stalled:
            assert self.lane.idle, "the step thread waits for it"
            self.errands.run(1)


TestTieredLane = TieredMachine.TestCase
TestTieredLane.settings = settings(max_examples=50, stateful_step_count=50, deadline=None)
