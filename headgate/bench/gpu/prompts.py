"""`headgate bench gpu`: how soon a prompt alone has its first token, by recorded steps and kernel by kernel."""

from __future__ import annotations

import logging
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from headgate.bench.engine.speed import Tokens, all_answered, started
from headgate.bench.gpu.engine import recorded
from headgate.engine.device_steps import prompt_steps
from headgate.engine.engine import Engine
from headgate.engine.kernels.checks.line import Line
from headgate.engine.models.weights.tensors import CheckpointTensors, Tensors
from headgate.engine.request import Request
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.settings import EngineSettings, ModelSpec

LENGTHS = 32, 64, 96, 128, 256, 512
_ROUNDS = 7
_CLOSE = 0.05
"""In log-probability: what bfloat16 rounds otherwise in a longer step."""
_NEW = 4


@dataclass(frozen=True, slots=True)
class _First:
    """Median seconds until the first token; the tokens of the last round, and the first one's log-probability."""

    seconds: float
    tokens: Tokens
    logprob: float


def first_tokens(
    folder: Path,
    settings: EngineSettings,
    tensors: Callable[[Path], Tensors] = CheckpointTensors,
    lengths: Sequence[int] = LENGTHS,
) -> Iterator[Line]:
    """A line per prompt of so many tokens, after one for each recording that was not to be had."""
    found: list[dict[int, _First]] = []
    for records in (True, False):
        own = replace(settings, record_prompts=records)
        with _warned() as warned, started(own, ModelSpec("bench", folder), tensors=tensors) as engine:
            deque(recorded(engine), 0)
            yield from (Line("recording", text, ok=False) for text in warned)
            found.append({length: _first(engine, length) for length in lengths})
    for length in lengths:
        quick, usual = (each[length] for each in found)
        off = abs(quick.logprob - usual.logprob)
        same = "the same" if quick.tokens == usual.tokens else f"OTHER tokens, the first off by {off:.4f}"
        text = f"{quick.seconds * 1e3:.1f} ms until the first token, {usual.seconds * 1e3:.1f} kernel by kernel; {same}"
        figures = {"seconds": quick.seconds, "kernel_by_kernel_seconds": usual.seconds, "off": off}
        # Where two tokens are all but equally likely either may come: their log-probabilities say so.
        yield Line(f"prompt of {length}", text, figures, off <= _CLOSE)


def _first(engine: Engine, length: int) -> _First:
    greedy = SamplingParams(temperature=0.0, max_tokens=_NEW, ignore_eos=True, logprobs=0)
    prompt = tuple((31 * place + length) % 250 for place in range(length))
    taken, told = [], list[tuple[int, float]]()
    for _ in range(1 + _ROUNDS):  # the first does not count
        request = Request(f"first-{time.perf_counter_ns()}", "bench", prompt, greedy)
        began, arrived = all_answered(engine, [request])
        taken.append(next(when for when, deltas in arrived if any(d.token_ids for d in deltas)) - began)
        told = [(one.token_id, one.logprob) for _, deltas in arrived for d in deltas for one in d.logprobs]
    return _First(statistics.median(taken[1:]), tuple(token for token, _ in told), told[0][1])


@contextmanager
def _warned() -> Iterator[list[str]]:
    """What is said of steps that are not recorded."""
    texts: list[str] = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            texts.append(record.getMessage())

    handler, logger = Keeping(logging.WARNING), logging.getLogger(prompt_steps.__name__)
    logger.addHandler(handler)
    try:
        yield texts
    finally:
        logger.removeHandler(handler)
