"""Which steps a lane takes for whom: rows of steps, background work, shares of tenants, prompts that do not fit."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest
import torch
from lane_memory import BLOCKS, lane_of

from headgate.engine.errors import PromptTooLong, lacks_memory
from headgate.engine.request import Priority, Request
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.scheduling.chunk import Chunk
from headgate.engine.scheduling.limits import Limits
from headgate.engine.stepping.found import Probed, Sampled, Scored
from headgate.engine.stepping.inputs import Interrupt
from headgate.engine.stepping.seeing import Seeing
from headgate.engine.text.pictures import Sight

PRIORITIES: dict[str, Priority] = {"first": "foreground", "second": "foreground", "youngest": "interactive"}


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


@pytest.mark.parametrize(("cpu_tick_s", "expected"), [(0.0, 2), (1e-5, 2), (1e-3, 40), (1.0, 64)])
def test_the_dearer_decisions_are_the_more_steps_follow_each_other(cpu_tick_s: float, expected: int) -> None:
    """Two ticks are spent on deciding and reporting; a step takes a millisecond."""
    lane, _, _ = lane_of(Limits(max_step_tokens=20, max_running=2), blocks=2000, tick_s=1e-3, cpu_tick_s=cpu_tick_s)
    lane.submit(Request("a", "m", (1, 2, 3), SamplingParams(max_tokens=1000, ignore_eos=True)), 0.0)

    def steps(run_s: float) -> int:
        before = lane.stats.steps
        lane.step(run_s=run_s)
        return lane.stats.steps - before

    assert [steps(0.002), steps(0.0), steps(0.002), steps(0.0)] == [1, 1, expected, 1]


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


def test_interactive_prompts_are_read_before_all_others() -> None:
    lane, _, memory = lane_of(Limits(max_step_tokens=8, max_running=4), blocks=40)
    few = SamplingParams(max_tokens=2, ignore_eos=True)

    def step() -> list[tuple[str, int]]:
        lane.step()
        lane.check()
        return [(c.sequence.request.id, c.count) for c in memory.chunks]

    for name, prompt in (("long", 24), ("other", 12)):
        lane.submit(Request(name, "m", (1,) * prompt, few, tenant=name), 0.0)
    assert step() == [("long", 4), ("other", 4)]
    lane.submit(Request("late", "m", (2,) * 3, few, tenant="late"), 0.0)
    lane.submit(Request("now", "m", (3,) * 6, few, tenant="other", priority="interactive"), 0.0)
    assert step() == [("now", 4), ("long", 4)], "up to its share of a step, as any prompt"
    assert step() == [("now", 2), ("long", 4), ("other", 2)]
    assert step()[0] == ("now", 1)


def test_interactive_sequences_keep_their_blocks_where_others_have_some() -> None:
    lane, scheduler, _ = lane_of(Limits(max_step_tokens=20, max_running=4))
    many = SamplingParams(max_tokens=30, ignore_eos=True)
    for name, priority in PRIORITIES.items():
        lane.submit(Request(name, "m", (1,) * 5, many, tenant=name, priority=priority), 0.0)
    while scheduler.preemptions == 0:
        lane.step()
        lane.check()
    assert [s.request.id for s in scheduler.running] == ["first", "youngest"]


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


def test_a_prompt_of_several_choices_is_computed_and_counted_once() -> None:
    lane, _, memory = lane_of(Limits(max_step_tokens=30, max_running=2), blocks=400)
    prompt, pending, most = tuple(range(1, 101)), [100], 0
    lane.submit(Request("r", "m", prompt, SamplingParams(max_tokens=4, ignore_eos=True), n=6), 0.0)
    assert lane.stats.pending_tokens == 100
    while not lane.idle:
        lane.step()
        lane.check()
        pending.append(lane.stats.pending_tokens)
        most = max(most, len(memory.chunks))
    assert pending[:5] == [100, 70, 40, 10, 0]
    assert max(pending[4:]) == 0, "who is admitted finds the prompt"
    assert most == 2


def test_who_waits_for_a_prompt_that_will_not_be_there_counts_its_own() -> None:
    asked = Request("r", "m", tuple(range(1, 101)), SamplingParams(max_tokens=4), n=3)
    for prefix_cache, expected in ((True, [100, 70, 200]), (False, [300, 270, 200])):
        lane, _, _ = lane_of(Limits(max_step_tokens=30, max_running=2), blocks=400, prefix_cache=prefix_cache)
        lane.submit(asked, 0.0)
        pending = [lane.stats.pending_tokens]
        lane.step()
        pending.append(lane.stats.pending_tokens)
        lane.cancel("r", 0)
        assert [*pending, lane.stats.pending_tokens] == expected


def test_a_prompt_that_cannot_fit_is_refused() -> None:
    lane, _, _ = lane_of()
    with pytest.raises(PromptTooLong, match="48 tokens; the model takes at most 48"):
        Request("r", "m", (1,) * 48).check(lane.context_length)
    with pytest.raises(ValueError, match="no tokens"):
        Request("r", "m", ()).check(lane.context_length)
    with pytest.raises(PromptTooLong, match="49 tokens"):
        Request("r", "m", (1,) * 40, score=(1,) * 9).check(lane.context_length)
    for refused in (Request("r", "m", (1,), n=2, probe=True), Request("r", "m", (1,), score=(1,), probe=True)):
        with pytest.raises(ValueError, match="a probe has n"):
            refused.check(lane.context_length)
    with pytest.raises(ValueError, match="n is 2 with a continuation to score; 1 is accepted"):
        Request("r", "m", (1,), n=2, score=(1,)).check(lane.context_length)


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
    assert len(scheduler.waiting) > 0
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


def test_having_worked_alone_costs_a_tenant_nothing() -> None:
    lane, _, memory = lane_of(Limits(max_step_tokens=24, max_running=8, max_sequence_share=1.0), blocks=4000)

    def submit(tenant: str, first: int) -> None:
        for number in range(first, first + 30):
            prompt = (number + 1,) * 200
            lane.submit(Request(f"{tenant}{number}", "m", prompt, SamplingParams(max_tokens=1), tenant=tenant), 0.0)

    submit("a", 0)
    while not lane.idle:
        lane.step()
    submit("b", 0)
    lane.step()
    submit("a", 30)
    served = {"a": 0, "b": 0}
    for _ in range(200):
        lane.step()
        for chunk in memory.chunks:
            served[chunk.sequence.request.tenant] += chunk.count
    assert served["b"] / served["a"] == pytest.approx(1.0, rel=0.35)


def test_who_waits_for_a_look_at_a_picture_is_charged_nothing() -> None:
    """A step looks at one: of a tenant with many of them, and of one who has a single one, in turns."""
    looked = list[bytes]()

    class Eyes:
        def look(self, sight: Sight) -> torch.Tensor:
            looked.append(sight.digest)
            return torch.zeros(len(sight.places), 1, 1)

    lane, _, memory = lane_of(Limits(max_step_tokens=24, max_running=2), blocks=40)
    memory.seeing = Seeing(Eyes())  # type: ignore[arg-type, assignment]
    for tenant, pictures in (("many", 12), ("one", 1)):
        sights = [Sight(2 * n, 2, f"{tenant} {n}".encode(), {}, np.arange(2)) for n in range(pictures)]
        params = SamplingParams(max_tokens=1)
        lane.submit(Request(tenant, "m", (1,) * 25, params, tenant=tenant, sights=tuple(sights)), 0.0)
    while not lane.idle:
        lane.step()
    assert looked == [b"many 0", b"one 0", *(f"many {n}".encode() for n in range(1, 12))]


@pytest.mark.parametrize("little", ["nothing", "a stream", "a preempted stream", "short ones"])
def test_who_got_the_little_he_wanted_has_no_credit(little: str) -> None:
    """One tenant's prompts are read; another wants next to nothing beside them, and then very much."""
    blocks = 160 if little == "a preempted stream" else 4000
    lane, scheduler, _ = lane_of(Limits(max_step_tokens=64, max_running=8), blocks=blocks)
    names = count()

    def submit(tenant: str, tokens: int, most: int = 2, priority: Priority = "foreground") -> str:
        name, sampling = f"{tenant}{next(names)}", SamplingParams(max_tokens=most, ignore_eos=True)
        prompt = (1 + next(names), *[2] * tokens)
        lane.submit(Request(name, "m", prompt, sampling, tenant=tenant, priority=priority), 0.0)
        return name

    def until_it_ends(wanted: str) -> list[str]:
        ends: list[str] = []
        while wanted not in ends:
            ends += [delta.request_id for delta in lane.step() if delta.finish is not None]
            lane.check()
        return ends

    stream = submit("b", 3, 400) if little.endswith("stream") else ""
    if little == "short ones":
        submit("a", 2000)
        until_it_ends(submit("b", 3))
        while scheduler.running:
            until_it_ends(submit("b", 3))
    else:
        for _ in range(12):
            until_it_ends(submit("a", 300))
    if little == "a preempted stream":
        for _ in range(3):
            submit("a", 100, 100, "interactive")
        while stream not in [s.request.id for s in scheduler.waiting]:
            lane.step()
    burst = {submit("b", 300) for _ in range(20)}
    assert len(burst.intersection(until_it_ends(submit("a", 300)))) <= 2, "they are served by turns"


def test_steps_get_smaller_where_memory_is_short_and_larger_again() -> None:
    lane, _, memory = lane_of(Limits(max_step_tokens=16, max_running=4), blocks=400)
    forever = SamplingParams(max_tokens=300, ignore_eos=True)

    def sizes(steps: int) -> list[tuple[int, ...]]:
        found = []
        for _ in range(steps):
            assert all(delta.finish is None for delta in lane.step())
            lane.check()
            found.append(tuple(c.count for c in memory.chunks))
        return found

    for name in "abc":
        lane.submit(Request(name, "m", (1,) * 8, forever, tenant=name), 0.0)
    memory.fits = lambda chunks: sum(c.count for c in chunks) < 3
    assert sizes(4) == [(8, 8), (4, 4), (2, 2), (1, 1)], "prompts are read in smaller parts"
    assert (lane.stats.short_steps, lane.stats.failed_steps, lane.stats.preemptions) == (3, 0, 0)
    sizes(40)
    assert [c.sequence.request.id for c in memory.chunks] == ["a", "b"], "the youngest wait"
    memory.fits = lambda _: True
    assert len(sizes(70)[-1]) == 3


def test_who_does_not_fit_alone_is_given_up_and_the_others_go_on() -> None:
    lane, scheduler, memory = lane_of(Limits(max_step_tokens=16, max_running=4), blocks=400)
    few = SamplingParams(max_tokens=3, ignore_eos=True)
    for name in ("first", "huge", "last"):
        lane.submit(Request(name, "m", (1,) * 8, few, tenant=name), 0.0)
    memory.fits = lambda chunks: all(c.sequence.request.id != "huge" for c in chunks)
    ends = {}
    while not lane.idle:
        ends |= {d.request_id: d.finish for d in lane.step() if d.finish is not None}
        lane.check()
    assert {name: (end.reason, end.cause) for name, end in ends.items()} == {
        "first": ("length", None),
        "huge": ("error", "memory"),
        "last": ("length", None),
    }
    assert ends["huge"].error == "OutOfMemoryError: CUDA out of memory"
    assert scheduler.tables.free_blocks == 400


@pytest.mark.parametrize("leaves", [0, 1])
def test_all_that_a_run_of_steps_wrote_is_wiped_where_nobody_has_a_token(
    leaves: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane, scheduler, memory = lane_of(Limits(max_step_tokens=20, max_running=2), blocks=40)
    lane.submit(Request("a", "m", (1, 2, 3), SamplingParams(max_tokens=30, ignore_eos=True)), 0.0)
    lane.step()
    run, had, wiped = memory.run, list[int](), list[int]()

    def broken(
        chunks: list[Chunk], most: int, interrupt: Interrupt, *, repeats: bool
    ) -> list[Sampled | Probed | Scored]:
        run(chunks, most, interrupt, repeats=repeats)
        had.extend(chunks[0].sequence.table.blocks)
        return [Sampled(chunk.sequence, ()) for chunk in chunks]

    memory.leaves = leaves
    monkeypatch.setattr(memory, "run", broken)
    monkeypatch.setattr(memory, "discard", lambda blocks, _: wiped.extend(blocks))
    (last,) = lane.step(run_s=12.0)
    assert last.finish is not None
    assert last.finish.reason == "error"
    assert len(had) > 3
    assert sorted(wiped) == sorted(had)
    assert scheduler.tables.free_blocks == 40


@pytest.mark.parametrize(
    ("error", "lacking"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"), True),
        (MemoryError(), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_what_says_that_memory_did_not_suffice(error: Exception, *, lacking: bool) -> None:
    assert lacks_memory(error) is lacking


def test_the_hosts_allocator_says_so_too() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60)
    assert lacks_memory(caught.value)
