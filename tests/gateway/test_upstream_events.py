"""Server-sent events from bytes in any pieces."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.gateway.upstream.events import EventParser, EventTooLong

payloads = st.lists(st.binary(max_size=40).filter(lambda p: b"\n" not in p and b"\r" not in p), max_size=8)
ends = st.sampled_from([b"\n", b"\r\n", b"\r"])


def written(events: list[bytes], end: bytes, *, noise: bool) -> bytes:
    before = b": a comment" + end + b"id: 7" + end + b"event: message" + end if noise else b""
    return b"".join(before + b"data: " + event + end + end for event in events)


def read(parser: EventParser, data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [e for begin, end in pairwise(places) for e in parser.feed(data[begin:end])] + parser.end()


@given(payloads, ends, st.lists(st.integers(0, 10_000), max_size=12), st.booleans(), st.booleans())
def test_the_same_events_come_of_any_pieces(
    events: list[bytes], end: bytes, cuts: list[int], noise: bool, marked: bool
) -> None:
    data = (b"\xef\xbb\xbf" if marked else b"") + written(events, end, noise=noise)
    assert read(EventParser(), data, cuts) == events


@given(st.binary(max_size=200), st.lists(st.integers(0, 10_000), max_size=12))
def test_any_bytes_give_the_same_in_any_pieces(data: bytes, cuts: list[int]) -> None:
    assert read(EventParser(), data, cuts) == read(EventParser(), data, [])


def test_lines_of_one_event_are_joined_and_other_fields_say_nothing() -> None:
    parser = EventParser()
    assert parser.feed(b"data: a\ndata:b\nretry: 3\ndatum: c\n\nevent: ping\n\n") == [b"a\nb"]


def test_half_an_event_is_none_but_one_that_lacks_its_blank_line_is_one() -> None:
    half, line = EventParser(), EventParser()
    assert half.feed(b'data: {"a"') + half.end() == []
    assert line.feed(b"data: [DONE]\n") + line.end() == [b"[DONE]"]


@pytest.mark.parametrize("pieces", [[b"data: " + b"x" * 200 + b"\n\n"], [b"data: "] + [b"x" * 10] * 20])
def test_an_event_beyond_the_bound_is_refused_before_it_ends(pieces: list[bytes]) -> None:
    parser = EventParser(100)
    with pytest.raises(EventTooLong, match="100 bytes"):
        _ = [parser.feed(piece) for piece in pieces]


def test_many_short_events_at_once_are_no_long_one() -> None:
    assert len(EventParser(100).feed(b"data: x\n\n" * 1000)) == 1000
