"""The figures of `headgate bench demo` as tables, JSON and sample dialogues."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import date

import torch
from rich.console import Console
from rich.table import Table

from headgate.bench.demo.measure import BATCHES, NAMES, TOGETHER, DemoFigures, Measured
from headgate.bench.output import table_of
from headgate.engine.demo import Name
from headgate.engine.demo.tasks import BEYOND
from headgate.training.evaluate import (
    Answer,
    Difference,
    Score,
    Scores,
    paired_difference,
    scores,
    trained_beside,
)

LABELS: dict[Name, str] = {"teacher": "teacher", "student": "student (distilled)", "undistilled": "undistilled"}


@dataclass(frozen=True, slots=True)
class Asked:
    """The command's options: `samples` and `timed` are per family and level."""

    samples: int
    seed: int
    split: str
    timed: int
    rounds: int


def print_report(console: Console, asked: Asked, figures: DemoFigures) -> None:
    """Prints all tables."""
    counted = {name: scores(model.answers) for name, model in figures.models.items()}
    console.print(_cells(asked, counted))
    console.print(_levels(counted, figures))
    console.print(_remarks(counted, figures), highlight=False)
    if figures.models["teacher"].beyond:
        console.print(_beyond(figures))
        console.print(_remarks_beyond(figures), highlight=False)
    console.print(_costs(asked, figures))
    machine, info = figures.machine, figures.models["student"].info
    console.print(
        f"{machine.device}, {machine.threads} threads, {info.dtype}, prefix cache off; the models take turns in every "
        f"round; torch {torch.__version__}, {date.today()}",
        highlight=False,
    )


def as_json(asked: Asked, figures: DemoFigures) -> dict[str, object]:
    """All figures as plain values: accuracies and shares from 0 to 1, times in seconds, sizes in bytes."""
    counted = {name: scores(model.answers) for name, model in figures.models.items()}
    return {
        **asdict(asked),
        "asked": counted["student"].overall.count,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": figures.machine.device,
        "threads": figures.machine.threads,
        "models": {name: _model_json(figures.models[name], counted[name]) for name in NAMES},
        "student_minus_undistilled": {
            "overall": asdict(difference(figures)),
            "by_level": {str(level): asdict(difference(figures, level)) for level in counted["student"].by_level},
            "beyond_training": asdict(_difference_beyond(figures)) if figures.models["student"].beyond else None,
        },
        "student_to_teacher": {
            "accuracy_level_1": _easy_ratio(counted),
            "decode_s": {str(batch): _decode_ratio(figures, batch) for batch in BATCHES},
        },
    }


def difference(figures: DemoFigures, level: int | None = None) -> Difference:
    """Accuracy of the distilled student minus that of the undistilled one, on all samples or on those of a level."""
    return paired_difference(
        *(
            [answer for answer in figures.models[name].answers if level in (None, answer.sample.difficulty)]
            for name in ("student", "undistilled")
        )
    )


def _difference_beyond(figures: DemoFigures) -> Difference:
    return paired_difference(figures.models["student"].beyond, figures.models["undistilled"].beyond)


def dialogues(console: Console, figures: DemoFigures, count: int) -> None:
    """Prints `count` questions, spread over families and levels, with every model's answer."""
    chosen = spread(figures.models["teacher"].answers, count)
    for place in chosen:
        sample = figures.models["teacher"].answers[place].sample
        tools = "".join(f"\n  tool: {tool['function']['name']}" for tool in sample.tools)
        lines = [f"{sample.family}, level {sample.difficulty}{tools}", f"  user: {_indented(sample.prompt)}"]
        for name in NAMES:
            answer = figures.models[name].answers[place]
            verdict = "right" if answer.right else "wrong"
            lines.append(f"  {name} ({verdict}): {_indented(answer.text)}")
        if not all(figures.models[name].answers[place].right for name in NAMES):
            lines.append(f"  reference: {_indented(sample.written)}")
        # Not as markup: brackets belong to the texts.
        console.print("\n".join(lines) + "\n", markup=False, highlight=False, soft_wrap=True)


def spread(answers: Sequence[Answer], count: int) -> list[int]:
    """Places of up to `count` answers: over all families first, with their levels in turn, then further ones."""
    cells: dict[str, dict[int, list[int]]] = {}
    for place, answer in enumerate(answers):
        levels = cells.setdefault(answer.sample.family, {})
        levels.setdefault(answer.sample.difficulty, []).append(place)
    order: list[int] = []
    # Every pass takes one sample of each family; with n levels a family is back at the first after n passes.
    for turn in range(len(answers)):
        for number, levels in enumerate(cells.values()):
            known = sorted(levels)
            left = levels[known[(turn + number) % len(known)]]
            if left:
                order.append(left.pop(0))
    families = len(cells)
    return [order[place * families // count] for place in range(count)] if count < families else order[:count]


def _model_json(model: Measured, counted: Scores) -> dict[str, object]:
    levels = list(counted.by_level)
    return {
        "path": model.info.path,
        "architecture": model.info.architecture,
        "dtype": model.info.dtype,
        "file_bytes": model.file_bytes,
        "parameters": model.info.parameters,
        "active_parameters": model.info.active_parameters,
        "overall": _score_json(counted.overall),
        "by_level": {str(level): _score_json(score) for level, score in counted.by_level.items()},
        "by_family": {name: _score_json(score) for name, score in counted.by_family.items()},
        "by_family_and_level": [
            {"family": family, "level": level, **_score_json(score)}
            for (family, level), score in counted.by_cell.items()
        ],
        "beyond_training": _beyond_json(model) if model.beyond else None,
        "ended": {"all": model.ended(), "out_of_domain": model.ended("out_of_domain")},
        "tokens_per_answer": sum(answer.tokens for answer in model.answers) / len(model.answers),
        "decode_token_s": {str(batch): model.decode_token_s(batch) for batch in BATCHES},
        "decode_token_s_rounds": {str(batch): list(model.decode_s[batch]) for batch in BATCHES},
        "seconds_per_right": _by_level_json(model.seconds_per_right, levels),
        "device_s_per_right": _by_level_json(model.device_s_per_right, levels),
    }


def _beyond_json(model: Measured) -> dict[str, object]:
    counted, below = scores(model.beyond), scores(trained_beside(model.answers, model.beyond))
    return {
        "level": BEYOND,
        "overall": _score_json(counted.overall),
        "by_family": {name: _score_json(score) for name, score in counted.by_family.items()},
        "level_below_of_the_same_families": _score_json(below.overall),
        "ended": _ended(model.beyond),
        "tokens_per_answer": sum(answer.tokens for answer in model.beyond) / len(model.beyond),
    }


def _ended(answers: Sequence[Answer]) -> float:
    return sum(answer.ended for answer in answers) / len(answers)


def _score_json(score: Score) -> dict[str, object]:
    low, high = score.interval
    return {"right": score.right, "count": score.count, "accuracy": score.accuracy, "low": low, "high": high}


def _by_level_json(cost: Callable[[int | None], float | None], levels: Sequence[int]) -> dict[str, float | None]:
    return {"all": cost(None), **{str(level): cost(level) for level in levels}}


def _cells(asked: Asked, counted: dict[Name, Scores]) -> Table:
    title = (
        f"right answers in %, 95 % intervals; split {asked.split}, seed {asked.seed}, up to {asked.samples} "
        "different questions a cell"
    )
    table = table_of(title, ("family",), ("level", "samples", *LABELS.values()), min_width=100)
    cells = list(counted["teacher"].by_cell)
    for place, key in enumerate(cells):
        family, level = key
        last = place + 1 == len(cells) or cells[place + 1][0] != family
        shown = _scored([counted[name].by_cell[key] for name in NAMES])
        table.add_row(family if level == 1 else "", str(level), *shown, end_section=last)
    return table


def _levels(counted: dict[Name, Scores], figures: DemoFigures) -> Table:
    heads = ("level", "samples", *LABELS.values(), "student - undistilled")
    table = table_of("right answers in %, by level and overall", (), heads, min_width=100)
    for level in counted["teacher"].by_level:
        shown = _scored([counted[name].by_level[level] for name in NAMES])
        table.add_row(str(level), *shown, _points(difference(figures, level)))
    table.add_row("all", *_scored([counted[name].overall for name in NAMES]), _points(difference(figures)))
    return table


def _beyond(figures: DemoFigures) -> Table:
    title = f"beyond training: right answers in % on level {BEYOND}, which no other figure counts"
    table = table_of(title, ("family",), ("samples", *LABELS.values()), min_width=100)
    counted = {name: scores(model.beyond) for name, model in figures.models.items()}
    below = {name: scores(answers) for name, answers in _below(figures).items()}
    families = list(counted["teacher"].by_family)
    for family in families:
        shown = _scored([counted[name].by_family[family] for name in NAMES])
        table.add_row(family, *shown, end_section=family == families[-1])
    for title, found in (("all", counted), (f"level {BEYOND - 1} of these families", below)):
        table.add_row(title, *_scored([found[name].overall for name in NAMES]))
    return table


def _below(figures: DemoFigures) -> dict[Name, list[Answer]]:
    return {name: trained_beside(model.answers, model.beyond) for name, model in figures.models.items()}


def _remarks_beyond(figures: DemoFigures) -> str:
    below = _below(figures)
    ended = ", ".join(f"{name} {_ended(model.beyond):.1%}" for name, model in figures.models.items())
    return (
        f"student - undistilled: {_points(_difference_beyond(figures))}, on level {BEYOND - 1} of these families "
        f"{_points(paired_difference(below['student'], below['undistilled']))}\n"
        f"answers that ended by themselves: {ended}"
    )


def _remarks(counted: dict[Name, Scores], figures: DemoFigures) -> str:
    ratio = _easy_ratio(counted)
    ended = ", ".join(f"{name} {figures.models[name].ended():.1%}" for name in NAMES)
    foreign = ", ".join(f"{name} {figures.models[name].ended('out_of_domain'):.1%}" for name in NAMES)
    return (
        f"level 1, student / teacher: {'-' if ratio is None else f'{ratio:.3f}'}\n"
        f"answers that ended by themselves: {ended}\n"
        f"  of out_of_domain: {foreign}"
    )


def _costs(asked: Asked, figures: DemoFigures) -> Table:
    timed = len(figures.models["teacher"].alone[0])
    table = table_of("size and cost", ("",), (*LABELS.values(), "student / teacher"), min_width=100)
    models = [figures.models[name] for name in NAMES]

    def row(title: str, values: Sequence[float | None], *, last: bool = False) -> None:
        ratio = _ratio(values[NAMES.index("student")], values[NAMES.index("teacher")])
        shown = "-" if ratio is None else f"{ratio:.3f}"
        table.add_row(title, *(_figure(value) for value in values), shown, end_section=last)

    row("weights, MB", [model.file_bytes / 1e6 for model in models])
    row("parameters, millions", [model.info.parameters / 1e6 for model in models])
    row("active parameters, millions", [model.info.active_parameters / 1e6 for model in models], last=True)
    for batch in BATCHES:
        title = f"decode at batch {batch}, ms/token"
        row(title, [1e3 * model.decode_token_s(batch) for model in models], last=batch == BATCHES[-1])
    levels: list[int | None] = [None, *scores(figures.models["teacher"].answers).by_level]
    for level in levels:
        title = "ms per right answer, one at a time" if level is None else f"  level {level}"
        row(title, [_ms(model.seconds_per_right(level)) for model in models], last=level == levels[-1])
    for level in levels:
        title = f"device-ms per right answer, {TOGETHER} at a time" if level is None else f"  level {level}"
        row(title, [_ms(model.device_s_per_right(level)) for model in models])
    table.caption = (
        f"Medians of {asked.rounds} rounds. Decode: 96 tokens after prompts of 128, time over all requests' tokens. "
        f"One at a time: the first {asked.timed} samples of every family and level, {timed} in all, wall clock. "
        f"{TOGETHER} at a time: all samples once, time inside forward steps. Wrong answers' time counts too."
    )
    return table


def _easy_ratio(counted: dict[Name, Scores]) -> float | None:
    return _ratio(counted["student"].by_level[1].accuracy, counted["teacher"].by_level[1].accuracy)


def _decode_ratio(figures: DemoFigures, batch: int) -> float | None:
    return _ratio(figures.models["student"].decode_token_s(batch), figures.models["teacher"].decode_token_s(batch))


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1e3 * seconds


def _figure(value: float | None) -> str:
    """Three digits or more, "-" for what could not be measured."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _scored(found: Sequence[Score]) -> list[str]:
    """How many were asked, and what part of them each model has right."""
    return [str(found[0].count), *map(_percent, found)]


def _percent(score: Score) -> str:
    low, high = score.interval
    return f"{100 * score.accuracy:.1f} ({100 * low:.1f}–{100 * high:.1f})"


def _points(found: Difference) -> str:
    return f"{100 * found.value:+.1f} ({100 * found.low:+.1f} to {100 * found.high:+.1f})"


def _indented(text: str) -> str:
    return text.replace("\n", "\n    ")
