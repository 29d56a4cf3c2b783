"""Streams of the trial played by several processes, each result kept as a line of a file, so that it can go on."""

from __future__ import annotations

import hashlib
import math
import multiprocessing
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.queues import Queue
from pathlib import Path
from queue import Empty

import msgspec
import torch

from headgate.bench.cache.certify import LADDER
from headgate.bench.cache.intents import Split
from headgate.bench.cache.streams import Kind
from headgate.bench.cache.trial import COSINES, Played, Trial
from headgate.cache.embedding.encoder import BertEncoder
from headgate.cache.embedding.sentence_model import default_folder
from headgate.cache.guards import reading_of, seal_of
from headgate.cache.judge import Judge
from headgate.cache.semantic import CANDIDATES, MARGIN

_LOOK_S = 1.0
"""Between two looks at processes that say nothing."""


class Line(msgspec.Struct):
    """What one stream gave; `rule` as `rule_id` names it."""

    rule: str
    played: Played


@dataclass(frozen=True, slots=True)
class Task:
    """A stream to play."""

    kind: Kind
    split: Split
    seed: int


class Record:
    """The lines of a file, or of the memory only where there is none."""

    def __init__(self, path: Path | None, rule: str) -> None:
        """Reads what is there.

        Raises:
            ValueError: the file holds lines of another rule or another length of streams.
        """
        self._path, self._rule = path, rule
        self._played: dict[Task, Played] = {}
        if path is not None and path.is_file():
            for number, plain in enumerate(path.read_bytes().splitlines(), start=1):
                try:
                    line = msgspec.json.decode(plain, type=Line)
                except msgspec.DecodeError as error:
                    raise ValueError(f"line {number} of {path} is no stream's: {error}") from error
                if line.rule != rule:
                    raise ValueError(f"line {number} of {path} is of rule {line.rule}; {rule} is accepted")
                self._take(line.played)

    def add(self, played: Played) -> None:
        """Keep a result and append its line."""
        self._take(played)
        if self._path is not None:
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode(Line(self._rule, played)) + b"\n")

    def missing(self, tasks: Iterable[Task]) -> list[Task]:
        """Those that are still to be played, in their order."""
        return [task for task in tasks if task not in self._played]

    def of(self, tasks: Iterable[Task]) -> list[Played]:
        """Those that have been played, in their order."""
        return [self._played[task] for task in tasks if task in self._played]

    def _take(self, played: Played) -> None:
        self._played[Task(played.kind, played.split, played.seed)] = played


def rule_id(folder: Path, requests: int) -> str:
    """A digest of comparator, model and guards, of what is tried, and of how long the streams are; not of the
    thresholds that are shipped, for every stream is played at all."""
    judge = Judge.load(folder)
    model = msgspec.json.encode((judge.model, judge.floor, LADDER, COSINES, CANDIDATES, MARGIN, requests))
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
    done: Callable[[Played], None],
    seconds: float = math.inf,
) -> None:
    """Every task with the judge in the folder `fitted`; `done` is called for each result as it comes.

    Args:
        tasks: what to play.
        fitted: the judge's folder.
        requests: of a stream.
        deal_seed: as for `Trial`.
        processes: that play side by side.
        scratch: keeps what is embedded.
        done: takes the results.
        seconds: after which no stream is begun any more.

    Raises:
        RuntimeError: a process failed.
    """
    context = multiprocessing.get_context("spawn")
    results: Queue[Played | None] = context.Queue()
    left: Queue[Task | None] = context.Queue()
    # One queue for all: a process that others slow down takes fewer.
    for task in (*tasks, *[None] * processes):
        left.put(task)
    workers = [
        context.Process(target=_work, args=(left, fitted, requests, deal_seed, scratch, seconds, results), daemon=True)
        for _ in range(min(processes, len(tasks)))
    ]
    for worker in workers:
        worker.start()
    working = len(workers)
    while working:
        try:
            made = results.get(timeout=_LOOK_S)
        except Empty:
            # Who is killed, as by a system without memory, does not say so.
            killed = [worker.exitcode for worker in workers if (worker.exitcode or 0) < 0]
            if not killed:
                continue
            for worker in workers:
                worker.kill()
            left.cancel_join_thread()
            raise RuntimeError(f"a process that played streams ended with {killed[0]}") from None
        if made is None:
            working -= 1
        else:
            done(made)
    # What nobody takes any more must not keep this process.
    left.cancel_join_thread()
    for worker in workers:
        worker.join()
        if worker.exitcode:
            raise RuntimeError(f"a process that played streams ended with {worker.exitcode}; see above")


def _work(
    tasks: Queue[Task | None],
    fitted: Path,
    requests: int,
    deal_seed: int,
    scratch: Path | None,
    seconds: float,
    results: Queue[Played | None],
) -> None:
    began = time.monotonic()
    try:
        # One process a core computes more than one process on all.
        torch.set_num_threads(1)
        folder = default_folder()
        assert folder is not None, "the command has looked for it"
        trial = Trial(Judge.load(fitted), BertEncoder(folder), requests, deal_seed, scratch)
        while time.monotonic() - began < seconds and (task := tasks.get()) is not None:
            results.put(trial.play(task.kind, task.split, task.seed))
    finally:
        results.put(None)
