"""Pictures whose tokens see each other: no step ends in one, whoever else wants it and whatever memory there is."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from lane_memory import lane_of

from headgate.engine.request import Finish, Priority, Request
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.scheduling.limits import Limits
from headgate.engine.text.pictures import Sight

LIMITS = Limits(max_step_tokens=12, max_running=4, max_sequence_share=0.3, knee_tokens=9, background_step_tokens=3)
MOST = LIMITS.max_step_tokens - LIMITS.max_running
PRIORITIES: list[Priority] = ["interactive", "foreground", "background"]

parts = st.tuples(st.integers(1, 9), st.integers(1, MOST))
"""Tokens before a picture, and its own, of which the first is no placeholder where there are several."""


def prompt_of(pictures: list[tuple[int, int]], digest: bytes) -> tuple[tuple[int, ...], tuple[Sight, ...]]:
    sights, length = list[Sight](), 0
    for before, tokens in pictures:
        length += before
        places = np.arange(min(1, tokens - 1), tokens)
        sights.append(Sight(length, tokens, digest, {}, places, whole=True))
        length += tokens
    return tuple(1 + i * i % 5 for i in range(length + 1)), tuple(sights)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(parts, max_size=3), st.sampled_from(PRIORITIES), st.binary(max_size=1), st.integers(0, 3)),
        min_size=1,
        max_size=8,
    ),
    st.integers(20, 60),
    st.none() | st.integers(1, LIMITS.max_step_tokens),
    st.none() | st.integers(2, 10),
)
def test_every_picture_is_in_one_step(
    asked: list[tuple[list[tuple[int, int]], Priority, bytes, int]],
    blocks: int,
    fits: int | None,
    window: int | None,
) -> None:
    """`asked`: pictures, priority, what the pictures are of, and steps before the next one asks."""
    lane, scheduler, memory = lane_of(LIMITS, blocks, window=window, pages=blocks if window else 0)
    if fits is not None:
        memory.fits = lambda chunks: sum(chunk.count for chunk in chunks) <= fits
    finished, widest = dict[str, Finish](), dict[str, int]()

    def step() -> None:
        memory.chunks = []
        for delta in lane.step():
            if delta.finish is not None:
                finished[delta.request_id] = delta.finish
        lane.check()
        for chunk in memory.chunks:
            stop = chunk.start + chunk.count
            assert not any(first < stop < behind for first, behind in (s.seen for s in chunk.sequence.request.sights))
        tokens = sum(chunk.count for chunk in memory.chunks)
        alone = all(chunk.sequence.background for chunk in memory.chunks)
        assert tokens <= LIMITS.max_step_tokens or (alone and tokens < LIMITS.background_step_tokens + MOST)

    for number, (pictures, priority, digest, steps) in enumerate(asked):
        prompt, sights = prompt_of(pictures, digest)
        params = SamplingParams(max_tokens=3, ignore_eos=True)
        name = f"r{number}"
        widest[name] = max((behind - first for first, behind in (sight.seen for sight in sights)), default=1)
        lane.submit(Request(name, "m", prompt, params, priority=priority, sights=sights), 0.0)
        for _ in range(steps):
            step()
    for _ in range(1000):
        if lane.idle:
            break
        step()
    assert len(finished) == len(asked), "starved"
    for name, finish in finished.items():
        if finish.reason == "error":
            assert (finish.cause, fits is not None and widest[name] > fits) == ("memory", True)
    assert scheduler.tables.free_blocks == blocks


def test_a_tenant_does_not_have_all_places_for_pictures_that_this_step_has_no_room_for() -> None:
    lane, scheduler, _ = lane_of(Limits(max_step_tokens=12, max_running=4, max_sequence_share=0.5), 80)
    params = SamplingParams(max_tokens=3, ignore_eos=True)
    lane.submit(Request("long", "m", (1,) * 60, params), 0.0)
    lane.step()
    sights = (Sight(0, MOST, b"", {}, np.arange(MOST), whole=True),)
    for number in range(4):
        lane.submit(Request(f"picture {number}", "m", (1,) * 9, params, tenant="many", sights=sights), 0.0)
    lane.submit(Request("text", "m", (2,) * 9, params, tenant="one"), 0.0)
    seen = list[str]()
    while "text" not in seen:
        lane.step()
        seen += [s.request.id for s in scheduler.running if s.request.id not in seen]
    assert seen == ["long", "picture 0", "text"]
