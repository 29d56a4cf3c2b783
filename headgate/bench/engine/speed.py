"""Speed of the engine alone: no text, no HTTP, no cache hits. Every figure stands beside its share of the ceiling."""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headgate.bench.ceilings import Ceilings
from headgate.bench.engine.workloads import Prompts, Workload
from headgate.engine.engine import Engine
from headgate.engine.front.model_info import ModelInfo
from headgate.engine.models.opening import folder_tensors
from headgate.engine.models.weights.tensors import Tensors
from headgate.engine.request import Delta, Request
from headgate.engine.sampling.grammar import Grammar
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.settings import EngineSettings, ModelSpec

Tokens = tuple[int, ...]
Arrival = tuple[float, Sequence[Delta]]
"""When deltas came, and what they are."""


@contextmanager
def started(
    settings: EngineSettings, *specs: ModelSpec, tensors: Callable[[Path], Tensors] = folder_tensors
) -> Iterator[Engine]:
    """An engine that serves these models until the context is left; `tensors` opens a checkpoint."""
    engine = Engine(settings, tensors=tensors)
    engine.load(*specs)
    engine.start()
    try:
        yield engine
    finally:
        engine.stop()


def all_answered(engine: Engine, requests: Sequence[Request]) -> tuple[float, list[Arrival]]:
    """Submit all at once and wait for the last token of the last: when that began, and what came when."""
    arrived: list[Arrival] = []
    unfinished, done = len(requests), threading.Event()

    def arrive(deltas: Sequence[Delta]) -> None:
        # On the step thread: nobody else is woken before the end, or the engine would not be alone.
        nonlocal unfinished
        arrived.append((time.perf_counter(), deltas))
        unfinished -= sum(delta.finish is not None for delta in deltas)
        if not unfinished:
            done.set()

    began = time.perf_counter()
    for request in requests:
        engine.submit(request, arrive)
    done.wait()
    return began, arrived


@dataclass(frozen=True, slots=True)
class Timing:
    """One round of a workload. `decode_s` runs from the moment every request has its first token."""

    total_s: float
    decode_s: float
    decode_tokens: int
    steps: int
    step_s: float
    """Time inside steps; the rest of `total_s` is scheduling, bookkeeping and handing over."""
    forward_s: float
    """Of `step_s`, inside the decoder and its output layer; the rest builds inputs and samples."""
    left: tuple[tuple[int, int], ...]
    """Of each request, when `decode_s` begins: tokens that are known of it, and new ones that it still wants."""
    answers: tuple[Tokens, ...]
    accepted: int
    """Of all drafts, tokens that were right."""
    rejected: int


@dataclass(frozen=True, slots=True)
class Figure:
    """Medians over the rounds. Rates are tokens per second; shares are of the machine's measured ceiling."""

    workload: str
    tokens_s: float
    """Prompt tokens for prefill, new tokens over the whole run otherwise."""
    decode_tokens_s: float | None
    spread: float
    """(slowest - fastest) / median of the rounds' times."""
    rate: float
    unit: str
    share: float
    sampling: float
    """Share of the time that steps spend building inputs and sampling."""
    scheduling: float
    """Share of the time outside steps: scheduling, bookkeeping, handing over."""

    @property
    def overhead(self) -> float:
        """Share of the time outside the forward pass."""
        return self.sampling + self.scheduling


class EngineBench:
    """Runs workloads on one loaded model."""

    def __init__(self, engine: Engine, model: str) -> None:
        self._engine = engine
        self._model = engine.models[model]
        # The demo tokenizer's ids are valid in every vocabulary that is tested.
        self._prompts = Prompts(min(self._model.info.vocab_size, 3000))
        self._serial = itertools.count()

    def run(self, workload: Workload) -> Timing:
        """One round, all requests at once."""
        return self.time(list(self._prompts.fill(workload)))

    def figure(self, workload: Workload, timings: Sequence[Timing], ceilings: Ceilings) -> Figure:
        """Medians and shares of the rounds of one workload."""
        info = self._model.info
        totals = [t.total_s for t in timings]
        total = statistics.median(totals)
        sampling = statistics.median((t.step_s - t.forward_s) / t.total_s for t in timings)
        scheduling = statistics.median(1 - t.step_s / t.total_s for t in timings)
        spread = (max(totals) - min(totals)) / total
        if workload.new_tokens == len(workload.requests):
            rate = 2 * info.active_parameters * workload.prompt_tokens / total
            peak = ceilings.peak(info.dtype if info.weights == "native" else "int8")
            tokens_s = workload.prompt_tokens / total
            shares = rate / peak, sampling, scheduling
            return Figure(workload.name, tokens_s, None, spread, rate / 1e9, "GFLOP/s", *shares)
        decode_s = statistics.median(t.decode_s / max(1, t.decode_tokens) for t in timings)
        rate = statistics.median(bytes_decoding(info, t.left) / t.decode_s for t in timings)
        return Figure(
            workload.name,
            workload.new_tokens / total,
            1 / decode_s,
            spread,
            rate / 1e9,
            "GB/s",
            rate / ceilings.read_bytes_s,
            sampling,
            scheduling,
        )

    def time(
        self,
        requests: Sequence[tuple[Tokens, int]],
        grammar: Grammar | None = None,
        drafts: Sequence[Tokens] | None = None,
        models: Sequence[str] = (),
    ) -> Timing:
        """Submit (prompt, new tokens) all at once and wait for the last token of the last.

        Args:
            requests: what is submitted.
            grammar: of every answer; none may be complete before it has its tokens.
            drafts: one for each request; an empty one is none.
            models: who are asked, by turns: those that share the model's steps. Without any the model is.

        Raises:
            RuntimeError: an answer has not all of its tokens; nothing would be what it is called.
        """
        asked = models or (self._model.info.name,)
        made = [
            Request(
                f"bench-{next(self._serial)}",
                asked[number % len(asked)],
                prompt,
                SamplingParams(temperature=0.0, max_tokens=new, ignore_eos=grammar is None),
                grammar=grammar,
                draft=() if drafts is None else drafts[number],
            )
            for number, (prompt, new) in enumerate(requests)
        ]
        before = self._model.stats()
        began, arrived = all_answered(self._engine, made)
        answers: dict[str, list[int]] = {request.id: [] for request in made}
        left: tuple[tuple[int, int], ...] = ()
        all_begun = ended = began
        decoded = accepted = rejected = 0
        for ended, deltas in arrived:
            for delta in deltas:
                decoded += len(delta.token_ids) if left else 0
                answers[delta.request_id].extend(delta.token_ids)
                if delta.finish is not None:
                    accepted += delta.finish.accepted
                    rejected += delta.finish.rejected
                    if delta.finish.reason != "length":
                        raise RuntimeError(f"{delta.request_id} ended with {delta.finish.reason}: {delta.finish.error}")
            if not left and all(answers.values()):
                all_begun = ended
                left = tuple(
                    (len(prompt) + len(answer), new - len(answer))
                    for answer, (prompt, new) in zip(answers.values(), requests, strict=True)
                )
        after = self._model.stats()
        for answer, (prompt, new) in zip(answers.values(), requests, strict=True):
            if len(answer) != new:
                raise RuntimeError(
                    f"{new} tokens after {len(prompt)} were asked for and {len(answer)} came; "
                    f"the context has {self._model.info.context_length}"
                )
        return Timing(
            ended - began,
            ended - all_begun,
            decoded,
            after.steps - before.steps,
            after.step_seconds - before.step_seconds,
            after.forward_seconds - before.forward_seconds,
            left,
            tuple(map(tuple, answers.values())),
            accepted,
            rejected,
        )


def bytes_decoding(info: ModelInfo, left: Sequence[tuple[int, int]]) -> float:
    """Bytes that decoding must read from memory: in each step the weights, once, and what is known of each sequence.

    A state that is kept beside keys and values counts twice: it is written, too.

    `left`: known tokens and those to come of sequences that decode together until each has all of its own.
    """
    ends = sorted(count for _, count in left)
    read, done = 0.0, 0
    for place, count in enumerate(ends):  # the steps between two ends have one batch
        read += (count - done) * info.weight_bytes_read(len(ends) - place)
        done = count
    read += 2 * info.state_bytes * sum(ends)
    return read + info.kv_bytes_per_token * sum(count * (known + (count - 1) / 2) for known, count in left)
