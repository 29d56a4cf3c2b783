"""Distributions that the step thread keeps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.engine.lanes.tally import Spread, Tally
from headgate.engine.request import Finish

BOUNDS = (1.0, 2.0, 5.0)


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(1, 5)), max_size=30))
def test_counts_are_those_of_values_up_to_each_bound(values: list[tuple[float, int]]) -> None:
    spread = Spread(BOUNDS)
    for value, times in values:
        spread.see(value, times)
    every = [value for value, times in values for _ in range(times)]
    assert spread.cumulative == [*(sum(value <= bound for value in every) for bound in BOUNDS), len(every)]
    assert spread.sum == pytest.approx(sum(every))


@pytest.mark.parametrize(("length", "bounds"), [(1, (1,)), (4, (1, 2)), (64, (1, 2, 5, 10, 20, 50))])
def test_bounds_of_what_may_be_asked_end_at_the_context(length: int, bounds: tuple[float, ...]) -> None:
    assert Tally(length).asked_tokens.bounds == bounds


def test_what_was_cut_off_is_counted_and_not_timed() -> None:
    tally = Tally(64)
    tally.ended(Finish("cancelled", 3, 1, 0, 1.0, 1.0, 1.0))
    tally.ended(Finish("stop", 3, 1, 0, queue_s=1.0, prefill_s=2.0, decode_s=4.0))
    assert tally.ends == {"cancelled": 1, "stop": 1}
    sums = [s.sum for s in (tally.queue, tally.prefill, tally.decode, tally.inference, tally.whole)]
    assert sums == [1.0, 2.0, 4.0, 6.0, 7.0]
    assert tally.whole.cumulative[-1] == 1


def test_an_unlimited_answer_asks_for_no_number_of_tokens() -> None:
    tally = Tally(64)
    tally.asked(2, None)
    assert (tally.choices.sum, tally.asked_tokens.cumulative[-1]) == (2.0, 0)


def test_several_steps_in_a_row_are_steps() -> None:
    tally = Tally(64)
    tally.stepped(tokens=12, steps=4)
    assert (tally.step_tokens.cumulative[-1], tally.step_tokens.sum) == (4, 12)
