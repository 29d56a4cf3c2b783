"""`headgate bench gpu`: rows with adapters of their own, in steps that were recorded and in others, and their speed."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from headgate.bench.engine.adapters import write_adapter
from headgate.bench.engine.speed import EngineBench, Tokens, all_answered, started
from headgate.bench.engine.workloads import Workload
from headgate.bench.gpu.engine import recorded
from headgate.engine.engine import Engine
from headgate.engine.kernels.checks.line import Line
from headgate.engine.request import Request
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.settings import EngineSettings, ModelSpec

_PROMPT = tuple(range(10, 74))
_CLOSE = 0.05
"""In log-probability: what bfloat16 rounds otherwise in another order."""


def adapters_checked(folder: Path, settings: EngineSettings, scratch: Path, batch: int, new: int) -> Iterator[Line]:
    """Hold what rows beside each other are given to what their models say alone and merged; then time them.

    Args:
        folder: of a checkpoint.
        settings: of the engine.
        scratch: where adapters are written to.
        batch: answers at the same time.
        new: tokens of each.
    """
    names = [f"adapter-{number}" for number in range(4)]
    folders = {name: write_adapter(folder, scratch / f"gpu-{name}", 16, seed) for seed, name in enumerate(names)}
    bare = ModelSpec("bench", folder, adapters=folders)
    with started(settings, bare, replace(bare, name="merged", adapters={}, adapter=folders[names[0]])) as engine:
        deque(recorded(engine), 0)
        mixed = ["bench", *names]
        drawn = _answers(engine, mixed, new)
        for model, (answer, told) in zip(mixed, drawn, strict=True):
            off = _apart(told, _scores(engine, model, answer))
            yield Line(f"{model} in a batch", f"off by {off:.4f} of its own scores", {"off": off}, off <= _CLOSE)
        answer, told = drawn[1]
        off, bare_off = (_apart(told, _scores(engine, other, answer)) for other in ("merged", "bench"))
        text = f"off by {off:.4f} of the merged model's scores, by {bare_off:.4f} of the bare one's"
        yield Line("merged", text, {"off": off, "bare": bare_off}, off <= _CLOSE and off < bare_off)
        runner, workload = EngineBench(engine, "bench"), Workload("adapters", ((len(_PROMPT), new),) * batch)
        for kind, asked in (("bare", ["bench"]), ("one adapter", names[:1]), ("all adapters", names)):
            requests = [(_PROMPT, tokens) for _, tokens in workload.requests]
            runner.time(requests, models=asked)
            timing = runner.time(requests, models=asked)
            rate = timing.decode_tokens / timing.decode_s
            yield Line(f"{kind}, {batch} at a time", f"{rate:,.0f} tokens/s", {"decode_tokens_s": rate})


_serial = itertools.count()


def _answers(engine: Engine, models: Sequence[str], new: int) -> list[tuple[Tokens, list[float]]]:
    """Greedy answers side by side, with the log-probabilities of their tokens."""
    greedy = SamplingParams(temperature=0.0, max_tokens=new, ignore_eos=True, logprobs=0)
    asked = [Request(f"rows-{next(_serial)}", model, _PROMPT, greedy) for model in models]
    deltas = [delta for _, some in all_answered(engine, asked)[1] for delta in some]
    found = []
    for request in asked:
        own = [delta for delta in deltas if delta.request_id == request.id]
        tokens = tuple(token for delta in own for token in delta.token_ids)
        found.append((tokens, [one.logprob for delta in own for one in delta.logprobs]))
    return found


def _scores(engine: Engine, model: str, answer: Tokens) -> list[float]:
    """Log-probabilities of an answer's tokens, in one pass."""
    request = Request(f"rows-{next(_serial)}", model, _PROMPT, score=answer)
    return [s.logprob for _, some in all_answered(engine, [request])[1] for delta in some for s in delta.scores]


def _apart(one: Sequence[float], other: Sequence[float]) -> float:
    return max(abs(a - b) for a, b in zip(one, other, strict=True))
