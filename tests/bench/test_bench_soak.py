"""What `headgate bench soak` makes of looks at a server's memory."""

from __future__ import annotations

import os

import numpy as np
import pytest

from headgate.bench.soak.looks import Look, growing, look, slope

METRICS = """\
# TYPE headgate_remembered_items gauge
headgate_remembered_items{store="tabs"} 7.0
# TYPE headgate_remembered_ratio gauge
headgate_remembered_ratio{store="tabs"} 0.5
# TYPE headgate_python_blocks gauge
headgate_python_blocks 1.25e+06
"""


@pytest.mark.parametrize("each", [0.0, 40.0])
def test_the_bounds_of_a_slope_have_what_is_there_and_no_more(each: float) -> None:
    """Noise of a megabyte that lasts for some looks, as a gateway's memory has it."""
    draw = np.random.default_rng(3)
    noise = np.convolve(draw.normal(0, 2e5, 43), np.ones(3), "valid")
    requests = [2500 * at for at in range(41)]
    sizes = [round(7e8 + each * made + off) for made, off in zip(requests, noise, strict=True)]
    found = slope(requests, sizes)
    assert found.low < each < found.high
    assert found.high - found.low < 20
    assert found.low < found.each < found.high


def test_a_store_grows_unless_it_is_full_or_still() -> None:
    def seen(**stores: tuple[int, float]) -> Look:
        return Look(0, 0, 0, 0, 0, stores)

    before = seen(tabs=(4000, 0.9), bodies=(2000, 0.98), texts=(100, 0.1), labels=(0, 0.0))
    after = seen(tabs=(4096, 1.0), bodies=(2100, 0.99), texts=(100, 0.1), labels=(1, 0.01), requests=(5, 0.1))
    assert growing(before, after) == ["labels", "requests"]


def test_a_look_reads_the_process_and_what_it_says_of_itself() -> None:
    seen = look(os.getpid(), METRICS, 3)
    assert (seen.requests, seen.blocks, seen.stores) == (3, 1_250_000, {"tabs": (7, 0.5)})
    assert seen.resident > 1e7
    assert min(seen.files, seen.threads) >= 1
