"""Streams of the trial played by several processes, each result kept as a line of a file, so that it can go on."""

from __future__ import annotations

import hashlib
import multiprocessing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.queues import Queue
from pathlib import Path

import msgspec
import torch

from headgate.bench.cache.certify import LADDER
from headgate.bench.cache.streams import Kind
from headgate.bench.cache.trial import Calibration, StreamResult, Trial, Tuned
from headgate.cache.embedder import default_folder
from headgate.cache.encoder import BertEncoder
from headgate.cache.guards import reading_of, seal_of
from headgate.cache.judge import Judge


class Line(msgspec.Struct, omit_defaults=True):
    """What one stream gave; `rule` as `rule_id` names it."""

    rule: str
    calibration: Calibration | None = None
    results: list[StreamResult] = []


@dataclass(frozen=True, slots=True)
class Task:
    """A stream to play: of the test split where `tuned` is given, else of the calibration split."""

    kind: Kind
    seed: int
    tuned: Tuned | None = None


class Record:
    """The lines of a file, or of the memory only where there is none."""

    def __init__(self, path: Path | None, rule: str) -> None:
        """Reads what is there.

        Raises:
            ValueError: the file holds lines of another rule or another length of streams.
        """
        self._path, self._rule = path, rule
        self.calibrations: list[Calibration] = []
        self.results: list[StreamResult] = []
        if path is not None and path.is_file():
            for number, plain in enumerate(path.read_bytes().splitlines(), start=1):
                line = msgspec.json.decode(plain, type=Line)
                if line.rule != rule:
                    raise ValueError(f"line {number} of {path} is of rule {line.rule}; {rule} is accepted")
                self._take(line)

    def add(self, made: Calibration | list[StreamResult]) -> None:
        """Keep a result and append its line."""
        line = Line(self._rule, results=made) if isinstance(made, list) else Line(self._rule, made)
        self._take(line)
        if self._path is not None:
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode(line) + b"\n")

    def _take(self, line: Line) -> None:
        if line.calibration is not None:
            self.calibrations.append(line.calibration)
        self.results += line.results


def rule_id(folder: Path, requests: int) -> str:
    """A digest of comparator, model and guards, of the thresholds tried, and of how long the streams are."""
    judge = Judge.load(folder)
    model = msgspec.json.encode((judge.model, judge.floor, LADDER, requests))
    weights = (folder / "comparator.safetensors").read_bytes()
    # What is the same for all texts in a seal names the guards.
    return hashlib.blake2b(model + weights + seal_of(reading_of("")), digest_size=8).hexdigest()


def play(
    tasks: Sequence[Task],
    fitted: Path,
    requests: int,
    deal_seed: int,
    processes: int,
    scratch: Path | None,
    done: Callable[[Calibration | list[StreamResult]], None],
) -> None:
    """Every task with the judge in the folder `fitted`; `done` is called for each result as it comes.

    Raises:
        RuntimeError: a process failed.
    """
    context = multiprocessing.get_context("spawn")
    results: Queue[Calibration | list[StreamResult] | None] = context.Queue()
    workers = [
        context.Process(
            target=_work, args=(tasks[at::processes], fitted, requests, deal_seed, scratch, results), daemon=True
        )
        for at in range(min(processes, len(tasks)))
    ]
    for worker in workers:
        worker.start()
    left = len(workers)
    while left:
        made = results.get()
        if made is None:
            left -= 1
        else:
            done(made)
    for worker in workers:
        worker.join()
        if worker.exitcode:
            raise RuntimeError(f"a process that played streams ended with {worker.exitcode}; see above")


def _work(
    tasks: Sequence[Task],
    fitted: Path,
    requests: int,
    deal_seed: int,
    scratch: Path | None,
    results: Queue[Calibration | list[StreamResult] | None],
) -> None:
    try:
        # One process a core computes more than one process on all.
        torch.set_num_threads(1)
        folder = default_folder()
        assert folder is not None, "the command has looked for it"
        trial = Trial(Judge.load(fitted), BertEncoder(folder), requests, deal_seed, scratch)
        for task in tasks:
            if task.tuned is None:
                results.put(trial.calibrate(task.kind, task.seed))
            else:
                results.put(trial.run(task.kind, task.seed, task.tuned))
    finally:
        results.put(None)
