from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.cache.quota import FREE_INSERTS, InsertShare

WINDOW = 1200.0


class Clock:
    def __init__(self) -> None:
        self.now = 10_000.0

    def __call__(self) -> float:
        return self.now


def made(quota: InsertShare, principal: str, tries: int, scope: str = "team") -> int:
    return sum(quota.admit(scope, principal) for _ in range(tries))


def test_who_is_alone_makes_as_many_as_they_like() -> None:
    quota = InsertShare(0.5, WINDOW, Clock())
    assert made(quota, "a", 10 * FREE_INSERTS) == 10 * FREE_INSERTS


def test_who_has_made_more_than_the_share_waits_for_the_others() -> None:
    quota = InsertShare(0.5, WINDOW, Clock())
    assert made(quota, "others", 300) == 300
    assert made(quota, "a", 1000) == 301, "one more than all others together"
    assert made(quota, "others", 50) == 2
    assert made(quota, "a", 1000) == 2
    assert made(quota, "late", FREE_INSERTS) == FREE_INSERTS, "everybody has some"
    assert made(quota, "a", FREE_INSERTS, scope="another team") == FREE_INSERTS


def test_the_window_moves_on_and_leaves_nothing_behind() -> None:
    clock = Clock()
    quota = InsertShare(0.5, WINDOW, clock)
    made(quota, "a", 200, scope="old")
    made(quota, "b", 150)
    assert made(quota, "a", 200) == 151
    clock.now += WINDOW + WINDOW / 12
    assert made(quota, "a", 200) == 200
    assert len(quota) == 1


def test_a_clock_that_was_ahead_holds_nobody_back() -> None:
    clock = Clock()
    quota = InsertShare(0.5, WINDOW, clock, most=3)
    clock.now += 1e8
    assert made(quota, "a", 5) == 3
    clock.now -= 1e8
    assert made(quota, "a", 5) == 3
    clock.now += WINDOW + WINDOW / 12
    assert made(quota, "a", 5) == 3


def test_two_who_make_as_many_never_hold_each_other_back() -> None:
    quota = InsertShare(0.5, WINDOW, Clock())
    assert sum(quota.admit("team", "ab"[turn % 2]) for turn in range(1000)) == 1000


def test_a_share_of_one_bounds_nothing() -> None:
    quota = InsertShare(1.0, WINDOW, Clock())
    assert made(quota, "b", 1) == 1
    assert made(quota, "a", 5000) == 5000


@given(st.lists(st.sampled_from("aaab"), max_size=600), st.sampled_from([0.5, 0.7, 0.9]))
def test_nobody_exceeds_both_the_free_ones_and_the_share_when_it_counts(order: list[str], share: float) -> None:
    quota, counts = InsertShare(share, WINDOW, Clock()), Counter[str]()
    for who in order:
        others = counts.total() - counts[who]
        if quota.admit("team", who):
            assert counts[who] < FREE_INSERTS or others == 0 or counts[who] <= share * counts.total()
            counts[who] += 1


@pytest.mark.parametrize(("share", "window"), [(0.4, 1.0), (1.1, 1.0), (0.5, 0.0)])
def test_arguments_out_of_range_are_refused(share: float, window: float) -> None:
    with pytest.raises(ValueError, match="is accepted"):
        InsertShare(share, window, Clock())


def test_a_bound_on_inserts_holds_for_whoever_is_alone_too() -> None:
    clock = [0.0]
    share = InsertShare(0.5, 3600.0, lambda: clock[0], most=3)
    assert [share.admit("team", "ann") for _ in range(5)] == [True] * 3 + [False] * 2
    assert share.admit("team", "bob")
    assert share.admit("other team", "ann"), "by scope"
    clock[0] = 4000.0
    assert share.admit("team", "ann")
    with pytest.raises(ValueError, match="most is 0"):
        InsertShare(0.5, 3600.0, lambda: 0.0, most=0)
