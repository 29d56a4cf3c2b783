"""Scheduler, block tables and prefix cache under any interleaving, against a model of what the memory must hold.

The runner here computes nothing: it writes into every slot which tokens the slot stands for, and before that reads the
slots of the whole context back. A block that is used twice, shared wrongly, or freed too early shows as a wrong read.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.cache.prefix import PrefixIndex
from headgate.engine.errors import PromptTooLong
from headgate.engine.inputs import Interrupt
from headgate.engine.kv.pool import BlockPool, OutOfBlocks
from headgate.engine.kv.tables import KVTables
from headgate.engine.lane import Lane
from headgate.engine.request import Delta, Priority, Request, TokenScore
from headgate.engine.runner import Probed, Sampled, Scored
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.scheduler import Chunk, Limits, Scheduler
from headgate.engine.sequence import Sequence

LIMITS = Limits(max_step_tokens=7, max_running=4, max_sequence_share=0.5, knee_tokens=5, background_step_tokens=3)
BLOCKS, BLOCK_SIZE = 12, 4
EOS = 0


class MemoryModel:
    """Stands in for the runner: a slot holds (tenant, all tokens up to its own)."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._slots: dict[int, tuple[str, tuple[int, ...]]] = {}
        self.fail_next = False
        self.forward_seconds = 0.0
        self.chunks: list[Chunk] = []
        self.early = 100

    @property
    def repeats(self) -> bool:
        return True

    def run(self, chunks: Seq[Chunk], most: int, interrupt: Interrupt) -> list[Sampled | Probed | Scored]:
        """Up to `most` steps, no more after one that ends a sequence, nor after the `self.early`-th."""
        assert not interrupt.flag
        assert most == 1 or all(c.count == 1 and c.samples and not c.sequence.background for c in chunks)
        self.chunks = list(chunks)
        found: dict[Sequence, list[int]] = {c.sequence: [] for c in chunks if c.samples}
        for step in range(min(most, self.early)):
            self._compute(chunks, found, step)
            for sequence, tokens in found.items():
                # The next token follows from the tokens before it, as it would in a model.
                tokens.append(sum([*sequence.tokens, *tokens]) % 7)
            if any(tokens[-1] in sequence.ends for sequence, tokens in found.items()):
                break
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
            known = (*chunk.sequence.tokens, *found.get(chunk.sequence, ()))
            for position in range(chunk.start + step, chunk.start + step + chunk.count):
                self._slots[self._slot(chunk, position)] = self._meaning(chunk, known, position)
        for chunk in chunks:
            known = (*chunk.sequence.tokens, *found.get(chunk.sequence, ()))
            for position in range(chunk.start + step + chunk.count):
                assert self._slots[self._slot(chunk, position)] == self._meaning(chunk, known, position)
        if self.fail_next:
            self.fail_next = False
            raise RuntimeError("the device is gone")

    def _scores(self, chunk: Chunk) -> tuple[TokenScore, ...]:
        request = chunk.sequence.request
        given = (*request.prompt, *request.score)
        return tuple(TokenScore(given[p + 1], -float(p), False) for p in chunk.scored)

    def discard(self, blocks: Seq[int]) -> None:
        for block in blocks:
            for slot in range(block * self._block_size, (block + 1) * self._block_size):
                self._slots.pop(slot, None)

    def _slot(self, chunk: Chunk, position: int) -> int:
        return (
            chunk.sequence.table.blocks[position // self._block_size] * self._block_size + position % self._block_size
        )

    def _meaning(self, chunk: Chunk, known: tuple[int, ...], position: int) -> tuple[str, tuple[int, ...]]:
        return chunk.sequence.request.tenant, known[: position + 1]


def lane_of(
    limits: Limits = LIMITS, blocks: int = BLOCKS, *, prefix_cache: bool = True
) -> tuple[Lane, Scheduler, MemoryModel]:
    scheduler = Scheduler(KVTables(blocks, BLOCK_SIZE, b"key", prefix_cache=prefix_cache), limits)
    memory = MemoryModel(BLOCK_SIZE)
    ticks = iter(range(10**9))
    lane = Lane(scheduler, memory, context_length=10**6, eos_ids=(EOS,), clock=lambda: float(next(ticks)))
    return lane, scheduler, memory


class LaneMachine(RuleBasedStateMachine):
    """Submit, cancel, step and fail in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.lane, self.scheduler, self.memory = lane_of()
        self.submitted = 0
        self.open: dict[str, set[int]] = {}
        self.wanted: dict[str, Request] = {}
        self.received: dict[tuple[str, int], list[int]] = {}
        self.scored: dict[str, list[TokenScore]] = {}

    @rule(
        length=st.integers(1, 44),
        family=st.integers(0, 1),
        tenant=st.sampled_from(["a", "a", "b"]),
        most=st.integers(1, 12),
        n=st.integers(1, 3),
        weight=st.sampled_from([0.5, 1.0, 3.0]),
        ignore_eos=st.booleans(),
        priority=st.sampled_from(["foreground", "background"]),
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
    ) -> None:
        # Prompts of a family are prefixes of one another, so that blocks are shared often.
        prompt = tuple(1 + (family + i * i) % 5 for i in range(length))
        sampling = SamplingParams(max_tokens=most, ignore_eos=ignore_eos)
        self._submit(Request(f"r{self.submitted}", "m", prompt, sampling, n, tenant, weight, priority))

    @rule(
        length=st.integers(1, 30),
        score=st.lists(st.integers(0, 6), min_size=1, max_size=18),
        tenant=st.sampled_from(["a", "b"]),
        priority=st.sampled_from(["foreground", "background"]),
    )
    def score(self, length: int, score: list[int], tenant: str, priority: Priority) -> None:
        prompt = tuple(1 + i * i % 5 for i in range(length))
        self._submit(Request(f"r{self.submitted}", "m", prompt, tenant=tenant, priority=priority, score=tuple(score)))

    @rule(length=st.integers(1, 40), tenant=st.sampled_from(["a", "b"]), weight=st.sampled_from([0.5, 2.0]))
    def probe(self, length: int, tenant: str, weight: float) -> None:
        prompt = tuple(1 + i * i % 5 for i in range(length))
        self._submit(Request(f"r{self.submitted}", "m", prompt, tenant=tenant, weight=weight, probe=True))

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
        self._take(hit)
        assert all(d.finish is not None and d.finish.reason == "error" for d in hit)

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
        assert self.scheduler.tables.free_blocks == BLOCKS
        self.lane.check()

    def _submit(self, request: Request) -> None:
        self.lane.check_prompt(request)
        self.lane.submit(request, 0.0)
        self.submitted += 1
        self.open[request.id] = set(range(request.n))
        self.wanted[request.id] = request

    def _step(self, run_s: float = 0.0) -> None:
        before = {id(s): s.preemptions for s in (*self.scheduler.running, *self.scheduler.waiting)}
        waiting = {id(s) for s in self.scheduler.waiting}
        self.memory.chunks = []
        deltas = self.lane.step(run_s=run_s)
        chunks = self.memory.chunks
        assert sum(c.count for c in chunks) <= LIMITS.max_step_tokens
        assert len(chunks) <= LIMITS.max_running
        assert all(c.count > 0 for c in chunks)
        assert bool(chunks) == bool(self.open), "a step with work computes something"
        preempted = any(s.preemptions > before[id(s)] for s in self.scheduler.waiting if id(s) in before)
        admitted = any(id(c.sequence) in waiting for c in chunks)
        assert not (preempted and admitted), "nothing is admitted in a step that preempted"
        self._take(deltas)

    def _take(self, deltas: Seq[Delta]) -> None:
        for delta in deltas:
            assert delta.index in self.open[delta.request_id], "a choice ends once"
            tokens = self.received.setdefault((delta.request_id, delta.index), [])
            tokens.extend(delta.token_ids)
            self.scored.setdefault(delta.request_id, []).extend(delta.scores)
            if delta.finish is None:
                continue
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
            elif delta.finish.reason in ("stop", "length"):
                assert tokens == expected_output(request)
            self.open[delta.request_id].discard(delta.index)
            if not self.open[delta.request_id]:
                del self.open[delta.request_id]


def expected_output(request: Request) -> list[int]:
    tokens = list(request.prompt)
    assert request.sampling.max_tokens is not None
    for _ in range(min(request.sampling.max_tokens, BLOCKS * BLOCK_SIZE - len(request.prompt))):
        tokens.append(sum(tokens) % 7)
        if tokens[-1] == EOS and not request.sampling.ignore_eos:
            break
    return tokens[len(request.prompt) :]


TestLane = LaneMachine.TestCase
TestLane.settings = settings(max_examples=120, stateful_step_count=50, deadline=None)


class Twin:
    """A lane with background work beside one without: users must not be able to tell which is theirs."""

    def __init__(self, *, knee: int) -> None:
        limits = Limits(
            max_step_tokens=7, max_running=4, max_sequence_share=0.5, knee_tokens=knee, background_step_tokens=3
        )
        # Which blocks stay cached is the one thing that may differ, so nothing is cached here.
        self.limits = limits
        self.busy, self.busy_scheduler, self.busy_memory = lane_of(limits, prefix_cache=False)
        self.calm, self.calm_scheduler, self.calm_memory = lane_of(limits, prefix_cache=False)
        self.background = 0

    def step(self, *, alone: bool) -> None:
        self.busy_memory.chunks, self.calm_memory.chunks = [], []
        for lane in (self.busy, self.calm):
            lane.step(alone=alone)
            lane.check()
        users = [c for c in self.busy_memory.chunks if not c.sequence.background]
        extra = [c for c in self.busy_memory.chunks if c.sequence.background]
        assert self._plain(users) == self._plain(self.calm_memory.chunks)
        total = sum(c.count for c in self.busy_memory.chunks)
        if users and extra:
            assert total <= self.limits.knee_tokens
        elif extra:
            assert alone
            assert total <= self.limits.background_step_tokens
        self.background += len(extra)

    @staticmethod
    def _plain(chunks: Seq[Chunk]) -> list[tuple[str, int, int, int]]:
        # What a step has computed is in the sequences' counts by now; the chunks still say from where.
        return [(c.sequence.request.id, c.sequence.choice, c.start, c.count) for c in chunks]


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from([0, 4, 7]))
def test_users_get_the_same_steps_with_background_work_as_without(data: st.DataObject, knee: int) -> None:
    twin = Twin(knee=knee)
    for number in range(data.draw(st.integers(5, 40))):
        action = data.draw(st.sampled_from(["user", "background", "score", "step", "step", "step", "cancel"]))
        prompt = tuple([1 + number % 5] * data.draw(st.integers(1, 44)))
        sampling = SamplingParams(max_tokens=data.draw(st.integers(1, 12)), ignore_eos=True)
        if action == "user":
            tenant = data.draw(st.sampled_from(["a", "b"]))
            request = Request(f"u{number}", "m", prompt, sampling, data.draw(st.integers(1, 3)), tenant)
            twin.busy.submit(request, 0.0)
            twin.calm.submit(request, 0.0)
        elif action == "background":
            twin.busy.submit(Request(f"b{number}", "m", prompt, sampling, 2, "a", priority="background"), 0.0)
        elif action == "score":
            score = tuple(range(data.draw(st.integers(1, 4))))
            twin.busy.submit(Request(f"s{number}", "m", prompt, priority="background", score=score), 0.0)
        elif action == "cancel":
            chosen = f"u{data.draw(st.integers(0, number))}"
            for lane in (twin.busy, twin.calm):
                lane.cancel(chosen, None)
        else:
            twin.step(alone=data.draw(st.booleans()))
    for _ in range(3000):
        twin.step(alone=True)
        if twin.busy.idle:
            break
    assert twin.busy.idle, "background work ends once nobody else wants the engine"
    assert twin.busy_scheduler.tables.free_blocks == BLOCKS


class Stepper:
    """A lane that takes several steps in a row beside one that takes each by itself."""

    def __init__(self) -> None:
        # Which blocks stay cached is the one thing that may differ, so nothing is cached here.
        limits = Limits(max_step_tokens=20, max_running=3)
        self.hasty, self.hasty_scheduler, self.memory = lane_of(limits, blocks=20, prefix_cache=False)
        self.calm, self.calm_scheduler, _ = lane_of(limits, blocks=20, prefix_cache=False)
        self.heard: tuple[dict[str, list[object]], dict[str, list[object]]] = ({}, {})

    def step(self, run_s: float, early: int) -> None:
        self.memory.early = early
        before = self.hasty.stats.steps
        self.hear(0, self.hasty.step(run_s=run_s))
        steps = self.hasty.stats.steps - before
        for _ in range(steps):
            self.hear(1, self.calm.step())
        self.hasty.check()
        assert self.state(self.hasty_scheduler) == self.state(self.calm_scheduler)
        assert self.heard[0] == self.heard[1]

    def hear(self, which: int, deltas: Seq[Delta]) -> None:
        for delta in deltas:
            ends: list[object] = [] if delta.finish is None else [delta.finish.reason, delta.finish.completion_tokens]
            heard = self.heard[which].setdefault(f"{delta.request_id} {delta.index}", [])
            heard.extend([*delta.token_ids, *delta.scores, *ends])

    @staticmethod
    def state(scheduler: Scheduler) -> list[object]:
        held = [(s.request.id, s.choice, s.computed, s.tokens, len(s.table.blocks)) for s in scheduler.running]
        return [held, [(s.request.id, s.choice) for s in scheduler.waiting], scheduler.tables.free_blocks]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_several_steps_in_a_row_leave_everything_as_each_by_itself(data: st.DataObject) -> None:
    both = Stepper()
    for number in range(data.draw(st.integers(5, 50))):
        action = data.draw(st.sampled_from(["submit", "score", "cancel", *["step"] * 6]))
        prompt = tuple([1 + number % 5] * data.draw(st.integers(1, 12)))
        if action == "step":
            both.step(data.draw(st.sampled_from([0.0, 4.0, 9.0])), data.draw(st.integers(1, 9)))
        elif action == "cancel":
            chosen = f"u{data.draw(st.integers(0, number))}"
            for which, lane in enumerate((both.hasty, both.calm)):
                both.hear(which, lane.cancel(chosen, None))
        else:
            sampling = SamplingParams(max_tokens=data.draw(st.integers(1, 60)), ignore_eos=data.draw(st.booleans()))
            weight, tenant = data.draw(st.sampled_from([(1.0, "a"), (3.0, "b")]))
            score = (4, 5) if action == "score" else ()
            n = 1 if score else data.draw(st.integers(1, 3))
            for lane in (both.hasty, both.calm):
                lane.submit(Request(f"u{number}", "m", prompt, sampling, n, tenant, weight, score=score), 0.0)


def test_steps_follow_each_other_only_where_nothing_is_decided_between_them() -> None:
    lane, _, memory = lane_of(Limits(max_step_tokens=20, max_running=2), blocks=2000)
    forever = SamplingParams(max_tokens=1000, ignore_eos=True)

    def steps(run_s: float = 5.0) -> int:
        before = lane.stats.steps
        lane.step(run_s=run_s)
        return lane.stats.steps - before

    lane.submit(Request("a", "m", (1, 2, 3), forever), 0.0)
    assert [steps(), steps(), steps(), steps(0.0)] == [1, 5, 25, 1], "prompts are read by themselves"
    lane.submit(Request("b", "m", (1, 2, 3), forever), 0.0)
    assert [steps(), steps()] == [1, 5]
    lane.submit(Request("c", "m", (1, 2, 3), forever), 0.0)
    assert steps() == 25, "who waits cannot be admitted anyway"
    lane.cancel("a", None)
    assert steps() == 1
    lane.cancel("c", None)
    lane.submit(Request("audit", "m", (1, 2, 3), forever, priority="background"), 0.0)
    assert [steps() for _ in range(3)] == [1, 1, 1]
    lane.cancel("audit", None)
    lane.submit(Request("penalty", "m", (1, 2, 3), SamplingParams(presence_penalty=1.0, max_tokens=9)), 0.0)
    assert [steps() for _ in range(3)] == [1, 1, 1]
    lane.cancel("penalty", None)
    memory.early = 2
    assert [steps(), steps(), steps(0.0)] == [2, 2, 1]


def test_a_user_takes_the_room_of_background_work_in_the_step_of_arrival() -> None:
    lane, scheduler, memory = lane_of(Limits(max_step_tokens=20, max_running=1, background_step_tokens=20))
    forever = SamplingParams(max_tokens=40, ignore_eos=True)
    lane.submit(Request("audit", "m", (1,) * 8, forever, priority="background"), 0.0)
    for _ in range(30):
        lane.step()
    assert scheduler.tables.free_blocks < BLOCKS - 8
    lane.submit(Request("user", "m", (2,) * 40, forever, tenant="b"), 0.0)
    assert (lane.stats.running, lane.stats.waiting, lane.stats.background) == (0, 1, 1)
    lane.step()
    assert [(c.sequence.request.id, c.count) for c in memory.chunks] == [("user", 20)]
    assert (lane.stats.background_preemptions, lane.stats.preemptions) == (1, 0)
    assert lane.stats.background_seconds > 0


def test_background_blocks_are_overwritten_before_what_users_left_behind() -> None:
    lane, scheduler, _ = lane_of(Limits(max_step_tokens=40, max_running=2, background_step_tokens=40))

    def run(request: Request) -> int:
        lane.submit(request, 0.0)
        while True:
            for delta in lane.step():
                if delta.finish is not None:
                    return delta.finish.cached_tokens

    once = SamplingParams(max_tokens=1)
    kept = tuple(range(1, 18))
    assert run(Request("first", "m", kept, once)) == 0
    for number in range(6):
        assert run(Request(f"audit{number}", "m", (9, number, *[8] * 20), once, priority="background")) == 0
    assert run(Request("shared", "m", kept, once, priority="background")) == 16
    assert run(Request("again", "m", kept, once)) == 16, "six audits went through the blocks of one"
    assert scheduler.hit_tokens == 16, "background work does not count as look-ups"


def test_a_prompt_that_cannot_fit_is_refused() -> None:
    lane, _, _ = lane_of()
    with pytest.raises(PromptTooLong, match="48 tokens; the model takes at most 48"):
        lane.check_prompt(Request("r", "m", (1,) * 48))
    with pytest.raises(ValueError, match="no tokens"):
        lane.check_prompt(Request("r", "m", ()))
    with pytest.raises(PromptTooLong, match="49 tokens"):
        lane.check_prompt(Request("r", "m", (1,) * 40, score=(1,) * 9))
    for refused in (Request("r", "m", (1,), n=2, probe=True), Request("r", "m", (1,), score=(1,), probe=True)):
        with pytest.raises(ValueError, match="a probe has n"):
            lane.check_prompt(refused)
    with pytest.raises(ValueError, match="n is 2 with a continuation to score; 1 is accepted"):
        lane.check_prompt(Request("r", "m", (1,), n=2, score=(1,)))


def test_a_long_prompt_does_not_hold_up_short_ones() -> None:
    lane, _, memory = lane_of(Limits(max_step_tokens=20, max_running=8), blocks=2000)
    lane.submit(Request("long", "m", (1,) * 4000, SamplingParams(max_tokens=1), tenant="a"), 0.0)
    lane.step()
    for number in range(5):
        lane.submit(Request(f"short{number}", "m", (2, number, 3), SamplingParams(max_tokens=2), tenant="b"), 0.0)
    ended: list[str] = []
    while len(ended) < 5:
        ended += [d.request_id for d in lane.step() if d.finish is not None]
        assert sum(c.count for c in memory.chunks) == 20, "the long prompt takes what the short ones leave"
    assert len(memory.chunks) <= 8
    assert lane.stats.steps <= 6
    assert sorted(ended) == [f"short{n}" for n in range(5)]


def test_tenants_get_shares_by_weight() -> None:
    lane, scheduler, memory = lane_of(Limits(max_step_tokens=24, max_running=8, max_sequence_share=1.0), blocks=4000)
    for number in range(20):
        for tenant, weight in (("light", 1.0), ("heavy", 3.0)):
            prompt = (1 + number, *[2] * 299)
            sampling = SamplingParams(max_tokens=1)
            lane.submit(Request(f"{tenant}{number}", "m", prompt, sampling, tenant=tenant, weight=weight), 0.0)
    served = {"light": 0, "heavy": 0}
    for _ in range(150):
        lane.step()
        for chunk in memory.chunks:
            served[chunk.sequence.request.tenant] += chunk.count
    assert scheduler.waiting_count > 0
    assert served["heavy"] / served["light"] == pytest.approx(3.0, rel=0.15)


def test_an_idle_tenant_earns_no_credit() -> None:
    lane, _, memory = lane_of(Limits(max_step_tokens=24, max_running=8, max_sequence_share=1.0), blocks=4000)
    for number in range(30):
        lane.submit(Request(f"a{number}", "m", (number + 1,) * 200, SamplingParams(max_tokens=1), tenant="a"), 0.0)
    for _ in range(60):
        lane.step()
    for number in range(30):
        lane.submit(Request(f"b{number}", "m", (number + 1,) * 200, SamplingParams(max_tokens=1), tenant="b"), 0.0)
    served = {"a": 0, "b": 0}
    for _ in range(100):
        lane.step()
        for chunk in memory.chunks:
            served[chunk.sequence.request.tenant] += chunk.count
    assert served["b"] / served["a"] == pytest.approx(1.0, rel=0.35)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["take", "share", "release", "publish"]), st.integers(0, 2)),
        min_size=40,
        max_size=120,
    )
)
def test_pool_against_a_list(actions: list[tuple[str, int]]) -> None:
    """The free list against a plain list: least recently used first, blocks that hold nothing before all others."""
    index = PrefixIndex(b"key")
    pool = BlockPool(3, index)
    free = [0, 1, 2]
    references = dict.fromkeys(free, 0)
    for number, (action, pick) in enumerate(actions):
        block = pick % 3
        if action == "take":
            if not free:
                with pytest.raises(OutOfBlocks):
                    pool.take()
                continue
            taken = pool.take()
            assert taken == free.pop(0)
            assert not index.holds(taken)
            references[taken] = 1
        elif action == "share" and (references[block] or index.holds(block)):
            pool.share(block)
            if references[block] == 0:
                free.remove(block)
            references[block] += 1
        elif action == "publish" and references[block]:
            index.publish(number.to_bytes(2), block)
        elif action == "release":
            if not references[block]:
                with pytest.raises(ValueError, match="no reference"):
                    pool.release(block)
                continue
            pool.release(block)
            references[block] -= 1
            if references[block] == 0:
                free.insert(len(free) if index.holds(block) else 0, block)
        pool.check()
        assert pool.free == len(free)
        assert {b: pool.references(b) for b in range(3)} == references
