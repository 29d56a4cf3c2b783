"""What the demo models know and what their answers cost: every answer comes through the engine."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headgate.bench import ceilings as limits
from headgate.bench.ceilings import Ceilings
from headgate.bench.engine.speed import EngineBench
from headgate.bench.engine.workloads import decode
from headgate.engine.demo import Name
from headgate.engine.demo.tasks import FAMILIES, Sample
from headgate.engine.engine import Engine
from headgate.engine.front.model_info import ModelInfo
from headgate.engine.settings import EngineSettings, ModelSpec
from headgate.training.evaluate import Answer, ask

NAMES: tuple[Name, ...] = ("teacher", "student", "undistilled")
"""The models in the order they are measured and shown."""
BATCHES = (1, 8)
"""Batch sizes of the decode workload."""
TOGETHER = 8
"""Requests in the engine at a time while all samples are answered."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One model's answers and times.

    Attributes:
        file_bytes: of its safetensors files.
        answers: to all samples, `TOGETHER` at a time.
        alone: per round, its answers to the timed samples, one request at a time.
        decode_s: by batch size, a round's seconds of the decode workload per generated token, all requests' counted.
        beyond: answers to the samples beyond training, `TOGETHER` at a time; no other figure counts them.
    """

    name: Name
    info: ModelInfo
    file_bytes: int
    answers: Sequence[Answer]
    alone: Sequence[Sequence[Answer]]
    decode_s: Mapping[int, Sequence[float]]
    beyond: Sequence[Answer] = ()

    def decode_token_s(self, batch: int) -> float:
        """Seconds per generated token at this batch size, median of the rounds."""
        return statistics.median(self.decode_s[batch])

    def seconds_per_right(self, level: int | None = None) -> float | None:
        """Wall-clock seconds per right answer, one request at a time, median of the rounds; None if none is right."""
        rounds = [_of_level(answers, level) for answers in self.alone]
        costs = [_per_right(answers, [answer.seconds for answer in answers]) for answers in rounds]
        known = [cost for cost in costs if cost is not None]
        return statistics.median(known) if known else None

    def device_s_per_right(self, level: int | None = None) -> float | None:
        """Seconds inside forward steps per right answer, `TOGETHER` at a time; None if none is right.

        By level the steps that answers of several levels shared are divided by the tokens computed for each.
        """
        answers = _of_level(self.answers, level)
        return _per_right(answers, [answer.device_s for answer in answers])

    def ended(self, family: str | None = None) -> float:
        """Share of the answers, or of a family's, that the model ended by itself, 0 to 1."""
        chosen = [answer.ended for answer in self.answers if family in (None, answer.sample.family)]
        return sum(chosen) / len(chosen)


@dataclass(frozen=True, slots=True)
class DemoFigures:
    """All models in the order of `NAMES`, and the machine they were measured on."""

    models: Mapping[Name, Measured]
    machine: Ceilings


def measure(
    folders: Mapping[Name, Path],
    samples: Sequence[Sample],
    *,
    beyond: Sequence[Sample] = (),
    timed: int,
    rounds: int,
    threads: int | None,
    progress: Callable[[str], None],
) -> DemoFigures:
    """Answers `samples` with every model and times the first `timed` samples of every family and level.

    Those `beyond` training are answered last, so that they meet no other figure.
    The models take turns in everything, in alternating order, so that what else runs on the machine meets all of them.
    The prefix cache is off. `progress` hears what is done next.

    Raises:
        CheckpointError, TokenizerError: a folder cannot be served.
        PromptTooLong, NoChatTemplate, TemplateError: a model cannot be asked a sample.
    """
    engine = Engine(EngineSettings(threads=threads, prefix_cache=False, prompt_lookup=False))
    engine.load(*(ModelSpec(name, folders[name]) for name in NAMES))
    machine = limits.measure(engine.device, rounds=1)
    engine.start()
    try:
        runner = _Runner(engine)
        runner.warm_up(samples[:1])
        progress("decoding")
        decode_s = runner.decode(rounds)
        answers = runner.answers(samples, progress)
        alone = runner.alone(_first(samples, timed), rounds, progress)
        further = runner.answers(beyond, progress)
        infos = {name: engine.models[name].info for name in NAMES}
    finally:
        engine.stop()
    models = {
        name: Measured(
            name, infos[name], _file_bytes(folders[name]), answers[name], alone[name], decode_s[name], further[name]
        )
        for name in NAMES
    }
    return DemoFigures(models, machine)


class _Runner:
    """The parts of the measurement, on an engine that has started."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._benches = {name: EngineBench(engine, name) for name in NAMES}
        self._turns = 0

    def warm_up(self, samples: Sequence[Sample]) -> None:
        for name in NAMES:
            for batch in BATCHES:
                self._benches[name].run(decode(batch, new=4))
            self._ask(name, samples, 1)

    def decode(self, rounds: int) -> dict[Name, dict[int, list[float]]]:
        taken: dict[Name, dict[int, list[float]]] = {name: {batch: [] for batch in BATCHES} for name in NAMES}
        for _ in range(rounds):
            for batch in BATCHES:
                for name in self._turn():
                    timing = self._benches[name].run(decode(batch))
                    taken[name][batch].append(timing.decode_s / timing.decode_tokens)
        return taken

    def answers(self, samples: Sequence[Sample], progress: Callable[[str], None]) -> dict[Name, list[Answer]]:
        given: dict[Name, list[Answer]] = {name: [] for name in NAMES}
        for family in FAMILIES:
            group = [sample for sample in samples if sample.family == family.name]
            if not group:
                continue
            progress(f"answering {family.name}, level {_levels(group)}, {TOGETHER} at a time")
            for name in self._turn():
                given[name] += self._ask(name, group, TOGETHER)
        return given

    def alone(
        self, samples: Sequence[Sample], rounds: int, progress: Callable[[str], None]
    ) -> dict[Name, list[list[Answer]]]:
        taken: dict[Name, list[list[Answer]]] = {name: [[] for _ in range(rounds)] for name in NAMES}
        for number in range(rounds):
            progress(f"answering one at a time, round {number + 1} of {rounds}")
            for cell in _cells(samples).values():
                for name in self._turn():
                    taken[name][number] += self._ask(name, cell, 1)
        return taken

    def _turn(self) -> Sequence[Name]:
        """The models forwards and backwards by turns.

        Operators are prepared for each new shape when it first occurs. Models of one architecture share them, so
        whichever always went first would pay for both.
        """
        self._turns += 1
        return NAMES if self._turns % 2 else NAMES[::-1]

    def _ask(self, name: Name, samples: Sequence[Sample], concurrency: int) -> list[Answer]:
        return asyncio.run(ask(self._engine.models[name], samples, concurrency=concurrency))


def _cells(samples: Sequence[Sample]) -> dict[tuple[str, int], list[Sample]]:
    cells: dict[tuple[str, int], list[Sample]] = {}
    for sample in samples:
        cells.setdefault((sample.family, sample.difficulty), []).append(sample)
    return cells


def _levels(samples: Sequence[Sample]) -> str:
    levels = [sample.difficulty for sample in samples]
    return f"{min(levels)} to {max(levels)}" if min(levels) < max(levels) else str(levels[0])


def _first(samples: Sequence[Sample], count: int) -> list[Sample]:
    return [sample for cell in _cells(samples).values() for sample in cell[:count]]


def _of_level(answers: Sequence[Answer], level: int | None) -> list[Answer]:
    return [answer for answer in answers if level in (None, answer.sample.difficulty)]


def _per_right(answers: Sequence[Answer], seconds: Sequence[float]) -> float | None:
    right = sum(answer.right for answer in answers)
    return sum(seconds) / right if right else None


def _file_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))
