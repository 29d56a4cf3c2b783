"""Limits against brute force: no minute sees more than is allowed, and nothing is refused that fits."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.gateway.teams.limits import Counters, Rates, Scope
from headgate.gateway.teams.sliding_window import GRAIN_S, SPAN_S, Window

TIMES = st.lists(st.floats(0, 40, allow_nan=False), min_size=1, max_size=60)


@dataclass
class Run:
    """A request that was let through: from when until when, and its tokens."""

    began: float
    reserved: int
    ended: float = float("inf")
    used: int = 0


@settings(max_examples=200)
@given(st.lists(st.tuples(st.floats(0, 50, allow_nan=False), st.integers(0, 9)), max_size=50))
def test_a_window_counts_what_is_younger_than_a_minute(steps: list[tuple[float, int]]) -> None:
    window, passed, now = Window(), [], 0.0
    for wait, amount in steps:
        now += wait
        used = window.used(now)
        assert used >= sum(a for at, a in passed if at + SPAN_S > now)
        assert used <= sum(a for at, a in passed if at + SPAN_S + GRAIN_S > now)
        freed = window.frees(now, amount)
        assert freed is None or window.used(now + freed + 1e-6) <= used - amount
        if freed is not None:
            # Looking ahead has let slots go: begin anew from what passed.
            window = Window()
            for at, a in passed:
                window.add(at, a)
        window.add(now, amount)
        passed.append((now, amount))


@settings(max_examples=200)
@given(TIMES, st.integers(1, 6))
def test_no_minute_sees_more_requests_than_allowed_and_none_is_refused_that_fits(waits: list[float], rpm: int) -> None:
    counters, scope = Counters(), Scope("team red", Rates(rpm=rpm))
    passed: list[float] = []
    now = 0.0
    for wait in waits:
        now += wait / 4
        refusal = counters.enter([scope], now)
        recent = [at for at in passed if at + SPAN_S > now]
        if refusal is None:
            passed.append(now)
            assert len(recent) + 1 <= rpm
        else:
            assert len([at for at in passed if at + SPAN_S + GRAIN_S > now]) >= rpm
            assert refusal.after_s is not None
            assert 0 < refusal.after_s <= SPAN_S + GRAIN_S
    for first in passed:
        assert len([at for at in passed if first <= at < first + SPAN_S]) <= rpm


@settings(max_examples=300)
@given(
    st.lists(st.tuples(st.floats(0, 30, allow_nan=False), st.integers(1, 12), st.integers(0, 9)), max_size=60),
    st.integers(5, 30),
)
def test_requests_that_share_a_minute_never_have_more_tokens_than_allowed(
    steps: list[tuple[float, int, int]], tpm: int
) -> None:
    counters, scope = Counters(), Scope("team red", Rates(tpm=tpm))
    runs: list[Run] = []
    now = 0.0
    for wait, tokens, end in steps:
        now += wait
        running = [run for run in runs if run.ended == float("inf")]
        if end < len(running):
            run = running[end]
            run.ended, run.used = now, min(run.reserved, tokens)
            counters.settle([scope], run.reserved, run.used, now)
        elif (refusal := counters.reserve([scope], tokens, now)) is None:
            runs.append(Run(now, tokens))
        elif tokens <= tpm:
            counted = sum(
                run.reserved if run.ended == float("inf") else run.used
                for run in runs
                if run.ended + SPAN_S + GRAIN_S > now
            )
            assert counted + tokens > tpm
            assert refusal.after_s is not None
        else:
            assert refusal.after_s is None
    for run in runs:
        if run.ended == float("inf"):
            run.used = run.reserved
    for first in [run.began for run in runs] + [run.ended for run in runs]:
        together = [run for run in runs if run.began < first + SPAN_S and run.ended >= first]
        assert sum(run.used for run in together) <= tpm


def test_a_bucket_would_let_twice_as_much_pass_and_this_does_not() -> None:
    counters, scope = Counters(), Scope("team red", Rates(rpm=60))
    passed = [at for at in (i * 0.1 for i in range(600)) if counters.enter([scope], at) is None]
    assert len(passed) == 60
    assert counters.enter([scope], passed[-1] + SPAN_S) is None


def test_all_scopes_take_or_none_does() -> None:
    counters = Counters()
    team, key = Scope("team red", Rates(rpm=10)), Scope("key laptop", Rates(rpm=1))
    assert counters.enter([team, key], 0.0) is None
    refusal = counters.enter([team, key], 1.0)
    assert refusal is not None
    assert (refusal.scope, refusal.what, refusal.limit, refusal.used) == (key, "requests", 1, 1)
    assert refusal.after_s == 59.0
    standing = counters.standing([team], 1.0).requests
    assert standing is not None
    assert (standing.limit, standing.remaining, standing.reset_s) == (10, 9, 59.0)


def test_places_are_given_back_and_the_wait_follows_from_how_long_they_are_held() -> None:
    counters, scope = Counters(), Scope("team red", Rates(concurrency=2))
    assert counters.enter([scope], 0.0) is None
    assert counters.enter([scope], 0.0) is None
    refusal = counters.enter([scope], 0.0)
    assert refusal is not None
    assert (refusal.what, refusal.after_s) == ("concurrency", 0.5)
    counters.leave([scope], 21.0, 21.0)
    assert counters.enter([scope], 21.0) is None
    refusal = counters.enter([scope], 21.0)
    assert refusal is not None
    assert refusal.after_s == pytest.approx(1.5)


def test_what_is_set_aside_is_not_there_for_others_and_comes_back() -> None:
    counters, scope = Counters(), Scope("team red", Rates(tpm=100))
    assert counters.reserve([scope], 80, 0.0) is None
    assert counters.reserve([scope], 21, 0.0) is not None
    counters.settle([scope], 80, 30, 5.0)
    level = counters.standing([scope], 5.0).tokens
    assert level is not None
    assert (level.remaining, level.reset_s) == (70, 60.0)
    assert counters.reserve([scope], 70, 5.0) is None


def test_scopes_that_use_nothing_any_more_are_forgotten() -> None:
    counters = Counters()
    for user in range(10_000):
        scope = Scope(f"user {user}", Rates(rpm=1))
        assert counters.enter([scope], user * 1.0) is None
        counters.leave([scope], 0.0, user * 1.0)
    assert len(counters) < 5000
