"""Stop strings against a search of the whole text, under any chunking."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.engine.text.stops import StopMatcher


def search(text: str, stops: tuple[str, ...]) -> int | None:
    """Where the stop string that is complete first begins, the longest of several: the slow way."""
    for end in range(1, len(text) + 1):
        lengths = [len(stop) for stop in stops if text[:end].endswith(stop)]
        if lengths:
            return end - max(lengths)
    return None


letters = st.text("abc", max_size=24)


@given(letters, st.lists(st.text("abc", min_size=1, max_size=4), max_size=3).map(tuple), st.lists(st.integers(0, 5)))
@settings(deadline=None, max_examples=300)
@example("aabaabaa", ("aabaa",), [1] * 8)
@example("abcd", ("abcd", "bc"), [1] * 4)
@example("abc", ("bc", "abc"), [1] * 3)
def test_any_chunking_finds_what_the_whole_text_has(text: str, stops: tuple[str, ...], chunks: list[int]) -> None:
    matcher = StopMatcher(stops)
    emitted, stopped, start = "", False, 0
    for length in [*chunks, len(text)]:
        piece, stopped = matcher.push(text[start : start + length])
        emitted += piece
        start += length
        seen = text[:start]
        cut = search(seen, stops)
        assert stopped == (cut is not None)
        if stopped:
            assert emitted == seen[:cut]
            break
        # Nothing more is held back than an ending that may begin a stop string.
        held = seen[len(emitted) :]
        assert seen.startswith(emitted)
        assert not held or any(stop.startswith(held) for stop in stops)
    if not stopped:
        assert emitted + matcher.flush() == text
    else:
        assert matcher.push("more") == ("", True)
        assert matcher.flush() == ""


def test_text_is_held_only_while_it_may_become_a_stop() -> None:
    matcher = StopMatcher(("</answer>", "\n\n"))
    assert matcher.push("one</ans") == ("one", False)
    assert matcher.push("wers>\n") == ("</answers>", False)
    assert matcher.push("two") == ("\ntwo", False)
    assert matcher.push("\n\nthree") == ("", True)


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match="empty string"):
        StopMatcher(("a", ""))
