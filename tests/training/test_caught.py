"""Rows whose answer goes round in circles: only what is right and the end are learned."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from headgate.training.batches import Encoded
from headgate.training.caught import caught

END = 0
ROWS = st.tuples(st.lists(st.integers(1, 50), min_size=1, max_size=8), st.lists(st.integers(1, 50), max_size=8))


def row_of(prompt: list[int], answer: list[int]) -> Encoded:
    return [*prompt, *answer, END], [False] * len(prompt) + [True] * (len(answer) + 1)


@given(ROWS, st.integers(0, 1000))
def test_a_loop_is_read_and_its_end_is_learned(pieces: tuple[list[int], list[int]], seed: int) -> None:
    prompt, answer = pieces
    found = caught(row_of(prompt, answer), random.Random(seed))
    if len(answer) < 2:
        assert found is None
        return
    assert found is not None
    ids, learned = found
    assert len(ids) == len(learned)
    assert (ids[-1], learned[-1]) == (END, True)
    right = [token for token, wanted in zip(ids[:-1], learned[:-1], strict=True) if wanted]
    assert right
    assert right == answer[: len(right)], "what is learned before the loop is the right answer's beginning"
    kept = len(prompt) + len(right)
    loop = ids[kept:-1]
    assert not any(learned[kept:-1])
    period = next(length for length in (1, 2, 3) if ids[kept - length : kept] * (len(loop) // length) == loop)
    assert len(loop) // period >= 4


def test_the_last_answer_of_a_conversation_is_taken() -> None:
    first, second = row_of([1], [2, 3, 4]), row_of([5], [6, 7, 8])
    found = caught((first[0] + second[0], first[1] + second[1]), random.Random(1))
    assert found is not None
    assert found[0][: len(first[0]) + 2] == [*first[0], 5, 6]
    assert found[1][: len(first[1])] == first[1]
