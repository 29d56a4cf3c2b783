"""`headgate bench gpu`: how soon an engine gives its first token, and what a model that sleeps gives back."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from headgate.bench.engine.speed import all_answered, started
from headgate.bench.gpu.engine import recorded
from headgate.engine.engine import Engine
from headgate.engine.kernels.checks.line import Line
from headgate.engine.request import Request
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.settings import EngineSettings, ModelSpec

_PROMPT = tuple(range(10, 74))
_LEAST_BACK = 0.9
"""Of the weights of linear layers, keys and values; embeddings and graphs come on top."""


def start_and_sleep(folder: Path, settings: EngineSettings, free: Callable[[], int]) -> Iterator[Line]:
    """Start twice, where the second time everything is compiled; then sleep and wake.

    `free`: bytes of the device's memory that nobody has.
    """
    for name in ("first start", "warm start"):
        began = time.perf_counter()
        with started(settings, ModelSpec("bench", folder)) as engine:
            _answer(engine, 1)
            seconds = time.perf_counter() - began
        yield Line(name, f"{seconds:.2f} s until the first token, imports aside", {"seconds": seconds})
    with started(settings, ModelSpec("bench", folder)) as engine:
        deque(recorded(engine), 0)
        yield from _slept(engine, free)


def _slept(engine: Engine, free: Callable[[], int]) -> Iterator[Line]:
    model = engine.models["bench"]
    assert model.sleeper is not None
    before, wanted = _answer(engine, 16), model.info.weight_bytes + model.stats().kv_bytes
    taken, began = free(), time.perf_counter()
    model.sleeper.sleep().result()
    asleep, back = time.perf_counter() - began, free() - taken
    text = f"{asleep:.2f} s, {back / 2**30:.2f} GiB given back of {wanted / 2**30:.2f} GiB of weights, keys and values"
    yield Line("falling asleep", text, {"seconds": asleep, "bytes": back}, back >= _LEAST_BACK * wanted)
    model.sleeper.wake().result()
    seconds = model.sleeper.stats.last_wake_s
    same = _answer(engine, 16) == before
    yield Line("waking", f"{seconds:.2f} s, {'the same' if same else 'ANOTHER'} answer", {"seconds": seconds}, same)


def _answer(engine: Engine, tokens: int) -> list[int]:
    """Greedily, after one prompt."""
    greedy = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)
    request = Request(f"first-{time.perf_counter_ns()}", "bench", _PROMPT, greedy)
    _, arrived = all_answered(engine, [request])
    return [token for _, deltas in arrived for delta in deltas for token in delta.token_ids]
