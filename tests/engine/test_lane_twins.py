"""Two lanes side by side, of which one does more or does it otherwise: nobody may be able to tell."""

from __future__ import annotations

from collections.abc import Sequence as Seq

from hypothesis import given, settings
from hypothesis import strategies as st
from lane_memory import BLOCKS, lane_of

from headgate.engine.request import Delta, Priority, Request
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.scheduler import Scheduler
from headgate.engine.scheduling.chunk import Chunk
from headgate.engine.scheduling.limits import Limits


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


@settings(max_examples=100, deadline=None)
@given(st.data(), st.sampled_from([0, 4, 7]))
def test_users_get_the_same_steps_with_background_work_as_without(data: st.DataObject, knee: int) -> None:
    twin = Twin(knee=knee)
    for number in range(data.draw(st.integers(5, 40))):
        action = data.draw(st.sampled_from(["user", "background", "score", "step", "step", "step", "cancel"]))
        prompt = tuple([1 + number % 5] * data.draw(st.integers(1, 44)))
        sampling = SamplingParams(max_tokens=data.draw(st.integers(1, 12)), ignore_eos=True)
        if action == "user":
            tenant = data.draw(st.sampled_from(["a", "b"]))
            priority: Priority = data.draw(st.sampled_from(["interactive", "foreground"]))
            n = data.draw(st.integers(1, 3))
            request = Request(f"u{number}", "m", prompt, sampling, n, tenant, priority=priority)
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


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 44), st.integers(1, 12), st.integers(1, 3)), max_size=8),
    st.integers(0, 30),
    st.integers(1, 40),
    st.sampled_from([0, 4, 7]),
)
def test_a_batch_delays_a_user_by_the_step_that_runs_and_by_no_other(
    batch: list[tuple[int, int, int]], steps: int, prompt: int, knee: int
) -> None:
    """Wherever a batch is, the first step that is begun after a user came reads as much of his prompt as if alone."""
    twin = Twin(knee=knee)
    for number, (length, most, n) in enumerate(batch):
        sampling = SamplingParams(max_tokens=most, ignore_eos=True)
        twin.busy.submit(Request(f"b{number}", "m", (1,) * length, sampling, n, "a", priority="background"), 0.0)
    for _ in range(steps):
        # Each of these may be running when he comes, and is small.
        twin.step(alone=True)
    user = Request("user", "m", (2,) * prompt, SamplingParams(max_tokens=3, ignore_eos=True), priority="interactive")
    for lane in (twin.busy, twin.calm):
        lane.submit(user, 0.0)
    twin.step(alone=True)
    (chunk,) = [c for c in twin.busy_memory.chunks if not c.sequence.background]
    assert (chunk.sequence.request.id, chunk.start) == ("user", 0)
    assert chunk.count == min(prompt, twin.limits.max_step_tokens)


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


@settings(max_examples=100, deadline=None)
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
