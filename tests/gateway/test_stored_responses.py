"""Responses that are kept for a while: bounds, time and teams."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.gateway.responses.stored import StoredResponse, StoredResponses


def response(size: int = 0) -> StoredResponse:
    return StoredResponse(b"x" * size, b"[]")


def test_teams_see_their_own_until_their_time_is_over() -> None:
    now = [0.0]
    stored = StoredResponses(10.0, 10_000, lambda: now[0])
    stored.keep("red", "a", response())
    now[0] = 5.0
    stored.keep("red", "b", response())
    assert stored.get("blue", "a") is None
    assert not stored.delete("blue", "a")
    assert stored.get("red", "a") is not None
    now[0] = 10.0
    assert stored.get("red", "a") is None
    assert stored.get("red", "b") is not None
    assert stored.delete("red", "b")
    assert stored.get("red", "b") is None
    assert (len(stored), stored.bytes_used) == (0, 0)


def test_nothing_is_kept_where_it_is_switched_off() -> None:
    stored = StoredResponses(0.0, 10_000)
    stored.keep("red", "a", response())
    assert not stored.enabled
    assert len(stored) == 0


@given(st.lists(st.integers(0, 3000), max_size=30))
def test_memory_is_bounded_and_the_oldest_leave_first(sizes: list[int]) -> None:
    stored = StoredResponses(60.0, 2500, lambda: 0.0)
    for at, size in enumerate(sizes):
        stored.keep("red", str(at), response(size))
        assert stored.bytes_used <= 2500
    there = [at for at in range(len(sizes)) if stored.get("red", str(at)) is not None]
    fitting = [at for at, size in enumerate(sizes) if response(size).size <= 2500]
    assert there == fitting[len(fitting) - len(there) :]
    assert stored.bytes_used == sum(response(sizes[at]).size for at in there)
