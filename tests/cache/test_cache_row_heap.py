from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.cache.store.row_heap import RowHeap

STEPS = st.lists(st.tuples(st.integers(0, 12), st.sampled_from([0.0, 0.5, 1.0, 2.0]), st.booleans()), max_size=120)


@given(STEPS)
def test_the_lowest_is_that_of_all_rows_whatever_moved_came_and_left(steps: list[tuple[int, float, bool]]) -> None:
    heap = RowHeap()
    ranks: dict[int, tuple[float, int]] = {}
    known = 0
    for serial, (row, number, leaves) in enumerate(steps):
        if row in ranks and leaves:
            heap.remove(row)
            del ranks[row]
        elif row in ranks:
            heap.move(row, number, serial)
            ranks[row] = (number, serial)
        else:
            free = [r for r in range(known) if r not in ranks]
            row = row if row in free else known
            known = max(known, row + 1)
            heap.add(row, number, serial)
            ranks[row] = (number, serial)
        assert len(heap) == len(ranks)
        if ranks:
            lowest = min(ranks, key=ranks.__getitem__)
            assert heap.lowest() == lowest
            assert heap.numbers[lowest] == ranks[lowest][0]
    left = []
    while len(heap):
        left.append(heap.lowest())
        heap.remove(heap.lowest())
    assert left == sorted(ranks, key=ranks.__getitem__)


def test_an_empty_heap_has_no_lowest_row() -> None:
    with pytest.raises(IndexError):
        RowHeap().lowest()
