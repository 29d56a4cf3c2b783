"""What is read of answers that are passed on: their accounts, and where their events end."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.gateway.upstream.events import EventTooLong
from headgate.gateway.upstream.passthrough_answer import Events, Metered


@pytest.mark.parametrize(
    ("answer", "prompt", "completion", "seconds"),
    [
        ({"usage": {"prompt_tokens": 4, "total_tokens": 4}}, 4, 0, 0),
        ({"usage": {"total_tokens": 9}}, 9, 0, 0),
        ({"usage": {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12}}, 5, 7, 0),
        ({"usage": {"type": "duration", "seconds": 61.5}}, 0, 0, 61.5),
        ({"duration": "8.25", "text": "x"}, 0, 0, 8.25),
        ({"duration": 8, "usage": {"type": "duration", "seconds": 9}}, 0, 0, 9),
        ({"usage": None}, 0, 0, 0),
        ({"usage": [1]}, 0, 0, 0),
        ({"usage": {"total_tokens": -3}}, 0, 0, 0),
        ({"usage": {"prompt_tokens": 10**12}, "duration": -1}, 0, 0, 0),
        ({"usage": {"prompt_tokens": "many"}, "duration": "long"}, 0, 0, 0),
    ],
)
def test_accounts_are_read_as_servers_write_them(
    answer: dict[str, Any], prompt: int, completion: int, seconds: float
) -> None:
    metered = Metered()
    assert metered.read(msgspec.json.encode(answer)) is None
    assert (metered.prompt_tokens, metered.completion_tokens, metered.seconds) == (prompt, completion, seconds)


STREAM = b'event: a\ndata: {"x":1}\n\n: alive\r\n\r\ndata: {"usage":{"total_tokens":3}}\n\ndata: half'


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_events_go_on_whole_however_they_come(cuts: list[int]) -> None:
    metered = Metered()
    events = Events(metered)
    bounds = [0, *sorted(cuts), len(STREAM)]
    pieces = [events.feed(STREAM[a:b]) for a, b in pairwise(bounds)]
    assert all(not piece or piece.endswith((b"\n\n", b"\r\n\r\n")) for piece in pieces)
    assert b"".join(pieces) == STREAM.removesuffix(b"data: half")
    assert events.end() == b"data: half"
    assert metered.prompt_tokens == 3


def test_an_event_has_a_longest_length() -> None:
    events = Events(Metered(), longest=10)
    assert events.feed(b"data: 1234567890\n\ndata: 12") == b"data: 1234567890\n\n", "it is held for nobody"
    with pytest.raises(EventTooLong):
        events.feed(b"345678")
