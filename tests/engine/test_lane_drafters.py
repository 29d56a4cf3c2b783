"""A lane that is drafted for by another: answers, memory and the other's own requests are as they would be without."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lane_memory import BLOCK_SIZE, Errands, MemoryModel, following, lane_of, tiered_lane

from headgate.engine.lane import Lane
from headgate.engine.request import Delta, Request
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.scheduling.chunk import Chunk
from headgate.engine.scheduling.limits import Limits
from headgate.engine.stepping.found import Sampled
from headgate.engine.stepping.inputs import Interrupt

WIDE = Limits(max_step_tokens=24, max_running=4, max_sequence_share=0.5)
CONTEXT = 56


PLAIN = 24
"""Steps of `asked` where nothing is proposed: a token each."""


def mostly(tokens: Seq[int]) -> int:
    """Of a small model, which is wrong now and then, and once in a while about which tokens there are."""
    return following(tokens) if len(tokens) % 5 else (len(tokens) * 3) % 9


class Pair:
    """A lane, the one that drafts for it, and what was asked of both."""

    def __init__(self, *, pool: int, small_pool: int, lookup: bool, tiers: bool) -> None:
        self.large, self.scheduler, self.memory = lane_of(WIDE, pool, context_length=CONTEXT, lookup=lookup)
        context, self.errands = min(CONTEXT - 3, small_pool * BLOCK_SIZE), Errands()
        if tiers:
            self.small, self.small_scheduler, self.small_memory, self.errands = tiered_lane(
                WIDE, small_pool, rows=30, context_length=context, says=mostly
            )
        else:
            self.small, self.small_scheduler, self.small_memory = lane_of(
                WIDE, small_pool, context_length=context, says=mostly
            )
        self.small.draft_for(self.large, 7)
        self.open: dict[str, tuple[Request, list[int]]] = {}

    def ask(self, lane: Lane, request: Request) -> None:
        if len(request.prompt) < lane.context_length:
            self.open[request.id] = request, []
            lane.submit(request, 0.0)

    def step(self, lane: Lane, run_s: float = 0.0) -> None:
        self.hear(lane.step(run_s=run_s), mostly if lane is self.small else following)
        self.errands.run(1)
        self.large.check()
        self.small.check()

    def hear(self, deltas: Seq[Delta], says: Callable[[Seq[int]], int]) -> None:
        for delta in deltas:
            request, tokens = self.open[delta.request_id]
            tokens.extend(delta.token_ids)
            known = list(request.prompt)
            while len(known) < len(request.prompt) + len(tokens):
                known.append(says(known))
            assert tokens == known[len(request.prompt) :]
            if delta.finish is not None:
                assert delta.finish.reason in ("length", "cancelled")
                del self.open[delta.request_id]


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from([14, 30]), st.sampled_from([14, 16, 40]), st.booleans(), st.booleans())
def test_nobody_can_tell_that_a_small_model_drafts(
    data: st.DataObject, pool: int, small_pool: int, lookup: bool, tiers: bool
) -> None:
    pair = Pair(pool=pool, small_pool=small_pool, lookup=lookup, tiers=tiers)
    for number in range(data.draw(st.integers(4, 25))):
        action = data.draw(st.sampled_from(["ask", "steps", "steps", "steps", "small", "cancel", "sleep", "wake"]))
        if action in ("ask", "small"):
            prompt = tuple(1 + (i * i + data.draw(st.integers(0, 1))) % 5 for i in range(data.draw(st.integers(1, 44))))
            sampling = SamplingParams(max_tokens=data.draw(st.integers(1, 40)), ignore_eos=True)
            tenant = data.draw(st.sampled_from(["a", "b"]))
            lane = pair.small if action == "small" else pair.large
            priority = data.draw(st.sampled_from(["foreground", "background"])) if lane is pair.small else "foreground"
            pair.ask(lane, Request(f"{action}-{number}", "m", prompt, sampling, tenant=tenant, priority=priority))
        elif action == "steps":
            for _ in range(data.draw(st.integers(1, 30))):
                pair.step(pair.large, data.draw(st.sampled_from([0.0, 3.0])))
                if not pair.small.idle:
                    pair.step(pair.small)
        elif action == "cancel":
            for request_id in data.draw(
                st.lists(st.sampled_from(sorted(pair.open)), max_size=1) if pair.open else st.just([])
            ):
                lane, says = (pair.small, mostly) if request_id.startswith("small") else (pair.large, following)
                pair.hear(lane.cancel(request_id, None), says)
        elif action == "sleep" and pair.small.wanted == (0, 0):
            pair.small.rest()
        elif action == "wake" and pair.small.resting:
            pair.small.resume(pair.small_memory)  # type: ignore[arg-type]
    if pair.small.resting:
        pair.small.resume(pair.small_memory)  # type: ignore[arg-type]
    for _ in range(60 * len(pair.open)):
        pair.step(pair.large)
        pair.step(pair.small)
    pair.errands.run(len(pair.errands.tasks))
    assert not pair.open, "starved"
    for scheduler in (pair.scheduler, pair.small_scheduler):
        assert scheduler.tables.free_blocks == scheduler.tables.total_blocks


def drafted(says: Callable[[Seq[int]], int] = following) -> tuple[Lane, Lane, MemoryModel]:
    """A large lane, the small one that drafts for it, and the latter's memory; with room for everybody."""
    large, _, _ = lane_of(WIDE, 20, context_length=CONTEXT)
    small, _, memory = lane_of(WIDE, 20, context_length=CONTEXT, says=says)
    small.draft_for(large, 7)
    return large, small, memory


def answered(lane: Lane, request: Request) -> tuple[list[int], int]:
    """What the lane answers, and in how many steps."""
    before, tokens = lane.stats.steps, list[int]()
    lane.submit(request, 0.0)
    while not lane.idle:
        for delta in lane.step():
            tokens.extend(delta.token_ids)
    return tokens, lane.stats.steps - before


def expected(request: Request) -> list[int]:
    known = list(request.prompt)
    for _ in range(PLAIN):
        known.append(following(known))
    return known[-PLAIN:]


def asked(name: str, sampling: SamplingParams | None = None) -> Request:
    prompt = tuple(1 + i * i % 5 for i in range(9))
    return Request(name, "m", prompt, sampling or SamplingParams(max_tokens=PLAIN, ignore_eos=True), tenant=name)


def test_a_small_model_that_is_right_makes_steps_fewer() -> None:
    large, small, _ = drafted()
    tokens, steps = answered(large, asked("r"))
    assert tokens == expected(asked("r"))
    assert steps < 16, f"{PLAIN} without"
    right, wrong = large.stats.guessed["model"]
    assert right > 8
    assert not wrong
    assert small.stats.steps == 0, "these are no steps of its own"
    assert small.stats.kv_blocks_used == 0


def test_those_who_want_fewer_tokens_than_others_are_drafted_for_as_well() -> None:
    """All get as many from the small model, and who is proposed fewer has had more of its answer computed there."""
    large, small, _ = drafted()
    requests = [asked("long"), *(asked(f"short-{n}", SamplingParams(max_tokens=n, ignore_eos=True)) for n in (8, 13))]
    found: dict[str, list[int]] = {request.id: [] for request in requests}
    for request in requests:
        large.submit(request, 0.0)
    while not large.idle:
        for delta in large.step():
            found[delta.request_id].extend(delta.token_ids)
        small.check()
    for request in requests:
        assert found[request.id] == expected(request)[: request.sampling.max_tokens]
    right, wrong = large.stats.guessed["model"]
    assert right > 20
    assert not wrong
    assert large.stats.steps < PLAIN // 2


def test_a_small_model_that_is_wrong_is_hardly_asked_until_it_is_right() -> None:
    wrong = True
    large, _, _ = drafted(lambda tokens: (following(tokens) + wrong) % 7)

    def tried(answers: int) -> int:
        """Steps that checked what it proposed: none of it is an answer's, and each time its first token shows that."""
        before, steps = sum(large.stats.guessed.get("model", (0, 0))), 0
        for number in range(answers):
            large.submit(asked(f"{before}-{number}"), 0.0)
            while not large.idle:
                large.step()
                now = sum(large.stats.guessed.get("model", (0, 0)))
                steps += now > before
                before = now
        return steps

    first, later = tried(4), tried(40)
    assert 0 < later / 40 < 1.5 < 10 < first / 4, "what it takes is nothing here, so that hardly any odds are too bad"
    wrong = False
    assert min(answered(large, asked(f"right-{number}"))[1] for number in range(20)) < 16, f"{PLAIN} without"


def test_background_work_takes_back_what_is_lent() -> None:
    large, _, _ = lane_of(WIDE, 40, context_length=CONTEXT)
    small, scheduler, _ = lane_of(WIDE, 16, context_length=CONTEXT)
    small.draft_for(large, 7)
    for number in range(3):
        prompt = number + 1, *(1 + i * i % 3 for i in range(12))
        large.submit(Request(f"r{number}", "m", prompt, SamplingParams(max_tokens=40, ignore_eos=True)), 0.0)
    while scheduler.tables.free_blocks > 4:
        large.step()
    audit = Request("audit", "m", (1, 2) * 15, SamplingParams(max_tokens=9, ignore_eos=True), priority="background")
    small.submit(audit, 0.0)
    assert any(delta.token_ids for _ in range(3) for delta in small.step())
    small.check()
    before = large.stats.guessed["model"][0]
    while not (large.idle and small.idle):
        large.step()
        small.step()
        small.check()
    assert large.stats.guessed["model"][0] > before, "there is drafting with what is left of the room"


def test_a_small_model_that_fails_is_not_asked_again() -> None:
    large, small, memory = drafted()
    memory.fail_next = True
    for name in ("r", "again"):
        tokens, steps = answered(large, asked(name))
        assert tokens == expected(asked(name))
        assert steps == PLAIN
    assert small.stats.kv_blocks_used == 0
    assert answered(small, asked("own"))[0] == expected(asked("own"))


def test_a_small_model_whose_numbers_are_broken_is_not_asked_again_of_the_same_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large, small, memory = drafted()
    run, found = memory.run, list[int]()

    def broken(chunks: Seq[Chunk], most: int, interrupt: Interrupt, *, repeats: bool) -> list[object]:
        found.append(len(chunks))
        return [Sampled(one.sequence, ()) for one in run(chunks, most, interrupt, repeats=repeats)]

    monkeypatch.setattr(memory, "run", broken)
    for name in ("r", "again"):
        assert answered(large, asked(name)) == (expected(asked(name)), PLAIN)
    assert found == [1, 1]
    assert small.stats.kv_blocks_used == 0


def test_a_longer_answer_that_breaks_costs_a_shorter_one_beside_it_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    large, small, memory = drafted()
    run = memory.run

    def breaking(chunks: Seq[Chunk], most: int, interrupt: Interrupt, *, repeats: bool) -> list[object]:
        found = run(chunks, most, interrupt, repeats=repeats)
        return [Sampled(one.sequence, ()) if len(one.sequence.request.prompt) > 20 else one for one in found]

    monkeypatch.setattr(memory, "run", breaking)
    long, short = Request("long", "m", (1, 2, 3) * 8, asked("long").sampling), asked("short")
    found: dict[str, list[int]] = {"long": [], "short": []}
    for request in (long, short):
        large.submit(request, 0.0)
    while not large.idle:
        for delta in large.step():
            found[delta.request_id].extend(delta.token_ids)
        small.check()
    assert found == {"long": expected(long), "short": expected(short)}
    right, wrong = large.stats.guessed["model"]
    assert right > 8
    assert not wrong


def test_nothing_is_proposed_of_what_depends_on_earlier_tokens() -> None:
    large, _, _ = drafted()
    penal = SamplingParams(max_tokens=PLAIN, ignore_eos=True, presence_penalty=1.0)
    assert answered(large, asked("r", penal))[1] == PLAIN
    assert not large.stats.guessed


def test_what_drafts_overwrite_goes_to_the_tiers_before() -> None:
    large, _, _ = lane_of(WIDE, 20, context_length=CONTEXT)
    small, _, _, errands = tiered_lane(WIDE, 12, rows=30, context_length=12 * BLOCK_SIZE)
    small.draft_for(large, 7)
    said = answered(small, asked("own"))[0]
    long = tuple(1 + i * i % 3 for i in range(12))
    answered(large, Request("r", "m", long, SamplingParams(max_tokens=40, ignore_eos=True)))
    assert small.resident("own", asked("own").prompt) == 0, "nothing was overwritten"
    small.submit(Request("back", "m", (*asked("own").prompt, *said), asked("own").sampling, tenant="own"), 0.0)
    assert not small.step()
    errands.run(9)
    finish = [delta.finish for _ in range(PLAIN) for delta in small.step()][-1]
    assert finish is not None
    assert finish.reason == "length", finish.error
    assert finish.cached_tokens > BLOCK_SIZE
