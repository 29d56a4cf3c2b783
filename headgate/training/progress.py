"""What a person sees of a training run: a progress bar, and a plot of the losses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Reporter:
    """Counts steps and shows the smoothed loss and the speed; called after each step."""

    def __init__(self, name: str, steps: int, display: Any, bar: Any) -> None:
        self._name, self._total, self._display, self._bar = name, steps, display, bar
        self._recent: list[float] = []
        self.steps = 0
        """Steps taken in this process."""

    def __call__(self, step: int, loss: float, speed: float) -> None:
        """Shows step number `step`, its loss, and tokens per second."""
        self.steps += 1
        self._recent = [*self._recent[-49:], loss]
        mean = sum(self._recent) / len(self._recent)
        self._display.update(self._bar, completed=step, loss=mean, speed=speed)
        if not self._display.console.is_terminal and step % 100 == 0:
            self._display.console.print(f"{self._name} {step}/{self._total} loss {mean:.4f} {speed:.0f} tokens/s")


@contextmanager
def progress(name: str, steps: int) -> Iterator[Reporter]:
    """A progress bar; where the output is no terminal, a line every 100 steps."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns: tuple[Any, ...] = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("loss {task.fields[loss]:.4f}"),
        TextColumn("{task.fields[speed]:.0f} tokens/s"),
    )
    with Progress(*columns) as display:
        yield Reporter(name, steps, display, display.add_task(name, total=steps, loss=float("nan"), speed=0.0))


def plot(curves: Mapping[str, Sequence[float]], path: Path) -> None:
    """Writes the losses, each point the mean of a hundredth of the run, as a picture, if matplotlib is installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for name, losses in curves.items():
        width = max(1, len(losses) // 100)
        means = [sum(losses[start : start + width]) / width for start in range(0, len(losses) - width + 1, width)]
        axes.plot([width * (index + 1) for index in range(len(means))], means, label=name)
    axes.set_xlabel("step")
    axes.set_ylabel("training loss (each its own objective)")
    axes.set_yscale("log")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)
