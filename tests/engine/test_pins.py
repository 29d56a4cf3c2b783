"""Pinned prompts: they are found whatever comes, and whoever reads the same meanwhile."""

from __future__ import annotations

import pytest
from lane_memory import lane_of

from headgate.engine.kv.pins import Pins
from headgate.engine.kv.tables import KVTables
from headgate.engine.request import FinishReason, Request
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.scheduling.limits import Limits


def test_pinned_prompts_stay_whatever_comes_and_go_when_they_are_let_go() -> None:
    limits = Limits(max_step_tokens=40, max_running=2, pinned_share=0.5)
    lane, scheduler, _ = lane_of(limits, context_length=32)
    once = SamplingParams(max_tokens=1)

    def run(request: Request) -> FinishReason:
        lane.submit(request, 0.0)
        while not lane.idle:
            (*_, last) = lane.step()
            lane.check()
        assert last.finish is not None
        return last.finish.reason

    def found(prompt: tuple[int, ...]) -> int:
        before = scheduler.hit_tokens
        run(Request(f"ask {len(asked)}", "m", prompt, once, tenant="a"))
        asked.append(prompt)
        return scheduler.hit_tokens - before

    asked: list[tuple[int, ...]] = []
    system = (7,) * 14
    pin = {"tenant": "a", "priority": "background", "probe": True, "pin": True}
    assert run(Request("pinned", "m", system, **pin)) == "stop"
    assert lane.stats.pinned_blocks == 3, "of 14 tokens three blocks are full"
    for number in range(20):
        assert found((1 + number % 5, number, *[8] * 20)) == 0
        assert found((*system, number)) == 12
    assert run(Request("too much", "m", (9,) * 20, **pin)) == "length", "a whole context of 8 blocks must fit beside"
    assert run(Request("the same", "m", (*system, 9), **pin)) == "stop", "blocks that are held already cost nothing"
    for name in ("pinned", "the same", "unknown"):
        lane.unpin(name)
    assert lane.stats.pinned_blocks == 0
    for number in range(20):
        run(Request(f"other {number}", "m", (2, number, *[8] * 20), once, tenant="b"))
    assert found((*system, 99)) == 0


def test_who_waits_for_the_last_block_begins_when_a_prompt_is_pinned_that_keeps_its_blocks() -> None:
    lane, _, _ = lane_of(Limits(max_step_tokens=32, max_running=4, pinned_share=0.3), blocks=15, context_length=48)
    for name, length in (("two blocks", 8), ("one block", 4)):
        lane.submit(Request(name, "m", (length,) * length, tenant="a", probe=True, pin=True), 0.0)
        if length == 8:
            lane.step()
    lane.submit(Request("all others", "m", (9,) * 47, SamplingParams(max_tokens=1), tenant="a"), 0.0)
    lane.step()
    lane.step()
    assert lane.stats.running == 1, "there is no block in reserve for the one that was pinned, which has ended"


def test_where_no_prefix_is_found_a_pinned_prompt_holds_nothing_and_gives_all_pages_back() -> None:
    limits = Limits(max_step_tokens=7, max_running=2, pinned_share=0.3)
    lane, scheduler, _ = lane_of(limits, blocks=20, context_length=56, prefix_cache=False, window=6, pages=10)
    lane.submit(Request("pinned", "m", (7,) * 40, tenant="a", probe=True, pin=True), 0.0)
    ends = list[FinishReason]()
    while not lane.idle:
        ends += [delta.finish.reason for delta in lane.step() if delta.finish is not None]
        lane.check()
    assert ends == ["stop"]
    assert scheduler.tables.free == (20, 10)


@pytest.mark.parametrize("begun", [0, 2])
def test_a_prompt_is_pinned_though_a_user_reads_it_at_the_same_time(begun: int) -> None:
    limits = Limits(max_step_tokens=32, max_running=4, background_step_tokens=8, pinned_share=0.3)
    lane, _, _ = lane_of(limits, blocks=60, context_length=120)
    system = tuple(1 + number % 5 for number in range(40))
    lane.submit(Request("pinned", "m", system, tenant="t", priority="background", probe=True, pin=True), 0.0)
    for _ in range(begun):
        lane.step()

    def run(name: str, prompt: tuple[int, ...], tenant: str) -> None:
        lane.submit(Request(name, "m", prompt, SamplingParams(max_tokens=8, ignore_eos=True), tenant=tenant), 0.0)
        while not lane.idle:
            lane.step()
            lane.check()

    run("user", (*system, 1, 2), "t")
    assert lane.stats.pinned_blocks == 10
    for number in range(6):
        run(f"other {number}", tuple((number + at * at) % 7 for at in range(100)), f"other {number}")
    assert lane.resident("t", (*system, 1, 2)) == 40
    lane.unpin("pinned")
    assert lane.stats.kv_blocks_used == 0


def test_a_pinned_prompt_is_found_though_who_read_it_first_is_gone() -> None:
    tables, prompt = KVTables(6, 4, b"key"), list(range(8))
    user, pinned, other = (tables.table("t") for _ in range(3))
    for table in (user, pinned):
        assert tables.extend(table, 8)
        tables.publish(table, prompt, 8)
    tables.release(user)
    assert tables.extend(other, 12)
    tables.release(other)
    held = tables.blocks_for(8)
    assert tables.resident("t", [*prompt, 8]) < 8
    pins = Pins(tables)
    assert not pins.add("pinned", pinned, held - 1)
    assert pins.add("pinned", pinned, held)
    assert (tables.resident("t", [*prompt, 8]), pins.blocks) == (8, held)
    tables.check(pins.tables)
