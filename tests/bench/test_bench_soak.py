"""What `headgate bench soak` makes of looks at a server's memory."""

from __future__ import annotations

import pytest

from headgate.bench.soak import Look, Soak


def test_the_slope_is_that_of_the_second_half() -> None:
    sizes = (0, 50_000, 90_000, 100_000, 102_000, 104_000, 106_000, 108_000)
    looks = tuple(Look(1000 * at, size, 10, 4) for at, size in enumerate(sizes))
    assert Soak(looks, {}, 1.0).bytes_each == pytest.approx(2.0)
