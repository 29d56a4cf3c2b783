"""Accuracy of a checkpoint folder on the demo tasks: `python -m headgate.training.evaluate DIR --samples 20`.

Answers are generated greedily by Headgate's own engine, many requests at once, as a server would, and graded by
program. `headgate bench demo` compares several models and measures what their answers cost.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import time
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from headgate.engine.demo.tasks import BEYOND, FAMILIES, Sample, each_beyond, each_cell, grade
from headgate.engine.engine import Engine
from headgate.engine.front.local import LocalModel
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.settings import EngineSettings, ModelSpec

T = TypeVar("T")

LONGEST_ANSWER = 192
"""Tokens after which an answer is cut and counts as not ended."""
CONCURRENCY = 32
"""Requests that `evaluate` keeps in the engine."""
# Quantile 0.975 of the standard normal distribution.
_Z = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model said to a sample, whether it is right, and what it cost.

    Attributes:
        ended: the model ended the answer by itself; otherwise it was cut at `LONGEST_ANSWER` or the context length.
        tokens: generated, the end token included.
        seconds: wall clock from the messages to the last token, waiting for other requests included.
        device_s: the request's share, by tokens computed, of the seconds the engine spent in forward steps.
    """

    sample: Sample
    text: str
    right: bool
    ended: bool
    tokens: int
    seconds: float = 0.0
    device_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Score:
    """`right` of `count` answers; `count` is at least 1."""

    right: int
    count: int

    @property
    def accuracy(self) -> float:
        """From 0 to 1."""
        return self.right / self.count

    @property
    def interval(self) -> tuple[float, float]:
        """The Wilson score interval at 95 % for the accuracy, within 0 to 1.

        Wilson, E. B. (1927), "Probable inference, the law of succession, and statistical inference", Journal of the
        American Statistical Association 22, 209-212. It takes the samples as drawn independently.
        """
        n, p, z = self.count, self.accuracy, _Z
        centre = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return max(0.0, centre - half), min(1.0, centre + half)


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of one model: of everything, by level, by family and by (family, level), families in their fixed order."""

    overall: Score
    by_level: Mapping[int, Score]
    by_family: Mapping[str, Score]
    by_cell: Mapping[tuple[str, int], Score]


@dataclass(frozen=True, slots=True)
class Difference:
    """Accuracy of one model minus that of another on the same samples, -1 to 1, with its 95 % interval."""

    value: float
    low: float
    high: float
    count: int


def scores(given: Sequence[Answer]) -> Scores:
    """Counts the right answers. Raises `ValueError` if there are no answers."""
    if not given:
        raise ValueError("there are no answers to score; at least one is needed")
    places = {family.name: place for place, family in enumerate(FAMILIES)}
    cells: dict[tuple[str, int], list[Answer]] = {}
    for answer in given:
        cells.setdefault((answer.sample.family, answer.sample.difficulty), []).append(answer)
    ordered = {key: cells[key] for key in sorted(cells, key=lambda key: (places[key[0]], key[1]))}
    levels = sorted({level for _, level in ordered})
    return Scores(
        overall=_score(given),
        by_level={level: _score([a for a in given if a.sample.difficulty == level]) for level in levels},
        by_family={name: _score([a for a in given if a.sample.family == name]) for name, _ in ordered},
        by_cell={key: _score(answers) for key, answers in ordered.items()},
    )


def _score(given: Sequence[Answer]) -> Score:
    return Score(sum(answer.right for answer in given), len(given))


def paired_difference(first: Sequence[Answer], second: Sequence[Answer]) -> Difference:
    """Accuracy of `first` minus accuracy of `second`, the samples being the same in the same order.

    The interval is the adjusted Wald interval of Bonett and Price (2012), "Adjusted Wald confidence interval for a
    difference of binomial proportions based on paired data", Journal of Educational and Behavioral Statistics 37,
    479-488: with b samples that only `first` has right and c that only `second` has right, of n, it is
    p - q +- z sqrt((p + q - (p - q)^2) / (n + 2)), where p = (b + 1) / (n + 2) and q = (c + 1) / (n + 2).
    Its centre is drawn towards 0 a little; `value` is the plain (b - c) / n.

    Raises:
        ValueError: there are no answers, or the samples differ.
    """
    if not first or [answer.sample for answer in first] != [answer.sample for answer in second]:
        raise ValueError("a paired difference needs answers of both models to the same samples in the same order")
    n = len(first)
    only_first = sum(a.right and not b.right for a, b in zip(first, second, strict=True))
    only_second = sum(b.right and not a.right for a, b in zip(first, second, strict=True))
    p, q = (only_first + 1) / (n + 2), (only_second + 1) / (n + 2)
    half = _Z * math.sqrt((p + q - (p - q) ** 2) / (n + 2))
    return Difference((only_first - only_second) / n, max(-1.0, p - q - half), min(1.0, p - q + half), n)


def distinct(samples: Sequence[Sample]) -> list[Sample]:
    """The samples without those that ask what an earlier one asked, word for word.

    Families with a closed list of questions repeat themselves; an answer counted twice says nothing new, and the
    intervals would be too narrow.
    """
    seen: set[str] = set()
    kept: list[Sample] = []
    for sample in samples:
        asked = json.dumps([[[turn.role, turn.content] for turn in sample.messages], sample.tools])
        if asked not in seen:
            seen.add(asked)
            kept.append(sample)
    return kept


def evaluate(
    folder: Path,
    samples: Sequence[Sample],
    *,
    concurrency: int = CONCURRENCY,
    device: str = "auto",
    threads: int | None = None,
) -> list[Answer]:
    """The greedy answers of the checkpoint in `folder`, in the order of the samples. Not to be called in an event loop.

    `device` and `threads` are those of `EngineSettings`.

    Raises:
        EngineError, TokenizerError: the folder cannot be served, or a prompt does not fit its context length.
        NoChatTemplate, TemplateError: it has no chat template, or one that refuses a sample.
    """
    engine = Engine(EngineSettings(device=device, threads=threads, prefix_cache=False))
    engine.load(ModelSpec("evaluated", folder))
    engine.start()
    try:
        return asyncio.run(ask(engine.models["evaluated"], samples, concurrency=concurrency))
    finally:
        engine.stop()


async def ask(model: LocalModel, samples: Sequence[Sample], *, concurrency: int = CONCURRENCY) -> list[Answer]:
    """The model's greedy answers in the order of the samples, at most `concurrency` requests in the engine at a time.

    Raises:
        PromptTooLong, NoChatTemplate, TemplateError: a sample cannot be asked; none of the rest is waited for.
        RuntimeError: a request failed in the engine.
    """
    given: dict[int, Answer] = {}
    remaining: Iterator[tuple[int, Sample]] = iter(enumerate(samples))

    async def work() -> None:
        # The workers share the iterator: each takes the next sample when it is done with its last.
        for place, sample in remaining:
            given[place] = await _ask(model, sample, place)

    await all_of(work() for _ in range(min(concurrency, len(samples))))
    return [given[place] for place in range(len(samples))]


async def all_of(requests: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All at once; the first that fails cancels the others, and its plain error is what callers see."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(request) for request in requests]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


async def _ask(model: LocalModel, sample: Sample, place: int) -> Answer:
    started = time.perf_counter()
    prompt = await model.render_chat(*sample.conversation)
    # Nobody else is there to answer what it would leave to a larger model.
    suppressed = model.info.defaults.begin_suppress_tokens
    sampling = SamplingParams(temperature=0.0, max_tokens=LONGEST_ANSWER, begin_suppress_tokens=suppressed)
    text, finish = "", None
    async for delta in model.generate(f"sample-{place}", prompt, sampling):
        text += delta.text
        finish = delta.finish or finish
    if finish is None or finish.reason not in ("stop", "length"):
        reason = "nothing" if finish is None else finish.error or finish.reason
        raise RuntimeError(f"{model.info.name}: the engine ended sample {place} ({sample.family}) with {reason}")
    return Answer(
        sample=sample,
        text=text,
        right=grade(sample, text),
        ended=finish.reason == "stop",
        tokens=finish.completion_tokens,
        seconds=time.perf_counter() - started,
        device_s=finish.device_s,
    )


def table(given: Sequence[Answer]) -> str:
    """The accuracy in percent with its 95 % interval as a Markdown table: a row per family, a column per level."""
    counted = scores(given)
    levels = list(counted.by_level)
    heads = ["family", "samples", *(f"level {level}" for level in levels), "all"]
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
    for name, score in counted.by_family.items():
        cells = [_cell(counted.by_cell.get((name, level))) for level in levels]
        lines.append("| " + " | ".join([name, str(score.count), *cells, _cell(score)]) + " |")
    cells = [_cell(counted.by_level[level]) for level in levels]
    lines.append("| " + " | ".join(["all", str(counted.overall.count), *cells, _cell(counted.overall)]) + " |")
    return "\n".join(lines)


def trained_beside(given: Sequence[Answer], beyond: Sequence[Answer]) -> list[Answer]:
    """What of `given` the answers `beyond` training are to be read beside: the level below, of the same families."""
    families = {answer.sample.family for answer in beyond}
    return [a for a in given if a.sample.difficulty == BEYOND - 1 and a.sample.family in families]


def beyond_table(given: Sequence[Answer], beyond: Sequence[Answer]) -> str:
    """As `table`, of the level beyond training, with the level below of the same families beside it.

    `given` are answers of the levels that training has; each family of `beyond` needs some of the level below.
    """
    counted, below = scores(beyond), scores(trained_beside(given, beyond))
    lines = [f"| family | samples | level {BEYOND} | level {BEYOND - 1} |", "|---|---:|---:|---:|"]
    for name, score in counted.by_family.items():
        lines.append(f"| {name} | {score.count} | {_cell(score)} | {_cell(below.by_family[name])} |")
    lines.append(f"| all | {counted.overall.count} | {_cell(counted.overall)} | {_cell(below.overall)} |")
    return "\n".join(lines)


def _cell(score: Score | None) -> str:
    if score is None:
        return "-"
    low, high = score.interval
    return f"{100 * score.accuracy:.0f} ({100 * low:.0f}–{100 * high:.0f})"


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the command line and prints the tables; that of the level beyond training for the test split only."""
    parser = argparse.ArgumentParser(prog="python -m headgate.training.evaluate", description="Accuracy by family.")
    parser.add_argument("folder", type=Path, metavar="DIR", help="checkpoint folder")
    parser.add_argument("--samples", type=int, default=20, help="samples per family and level")
    parser.add_argument("--seed", type=int, default=0, help="seed of the samples")
    parser.add_argument(
        "--split", choices=["train", "calibration", "test"], default="test", help="split of the samples"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--threads", type=int, help="threads of CPU operators")
    parser.add_argument("--wrong", type=Path, help="write the wrong answers there, as JSON lines")
    options = parser.parse_args(arguments)
    for name in ("samples", "threads"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            parser.error(f"--{name} is {getattr(options, name)}; it must be at least 1")
    samples = distinct(each_cell(options.samples, seed=options.seed, split=options.split))
    harder = distinct(each_beyond(options.samples, seed=options.seed)) if options.split == "test" else []
    answers = evaluate(options.folder, [*samples, *harder], device=options.device, threads=options.threads)
    given, beyond = answers[: len(samples)], answers[len(samples) :]
    print(table(given))
    print(f"\nended by themselves: {sum(answer.ended for answer in given)} of {len(given)}")
    if beyond:
        print(f"\nBeyond training, level {BEYOND}, which counts in none of the above:\n\n{beyond_table(given, beyond)}")
        print(f"\nended by themselves: {sum(answer.ended for answer in beyond)} of {len(beyond)}")
    if options.wrong is not None:
        with options.wrong.open("w", encoding="utf-8") as file:
            for answer in answers:
                if not answer.right:
                    file.write(json.dumps(_record(answer), ensure_ascii=False) + "\n")


def _record(answer: Answer) -> dict[str, object]:
    sample = answer.sample
    return {
        "family": sample.family,
        "level": sample.difficulty,
        "messages": [[turn.role, turn.content] for turn in sample.messages],
        "expected": sample.written,
        "given": answer.text,
        "ended": answer.ended,
    }


if __name__ == "__main__":
    main()
