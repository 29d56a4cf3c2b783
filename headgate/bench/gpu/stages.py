"""`headgate bench gpu`, its course: stage after stage in a given time, whatever becomes of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass

from headgate.engine.kernels.checks.line import Line


@dataclass(frozen=True, slots=True)
class Stage:
    """Something to check or to time. `seconds` must be left for it to begin."""

    name: str
    seconds: float
    work: Callable[[], Iterable[Line]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a stage gave until it ended. `failure`: why it was not run, or what stopped it; empty if neither."""

    name: str
    seconds: float
    lines: tuple[Line, ...]
    failure: str = ""

    @property
    def ok(self) -> bool:
        """Whether it ran to its end and all is as it must be."""
        return not self.failure and all(line.ok for line in self.lines)

    def as_json(self) -> dict[str, object]:
        """Plain values."""
        return asdict(self) | {"lines": [line.as_json() for line in self.lines], "ok": self.ok}


class StageFailed(Exception):
    """Why a stage that runs elsewhere did not come to its end."""


def run_stages(
    stages: Sequence[Stage],
    budget_s: float,
    report: Callable[[Outcome], None],
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Run those that `budget_s` leaves time for, in order, and report each when it ends.

    A stage that fails keeps what it had, and does not keep the next from running: the machine is lent by the minute,
    and what one call tells decides what the next one tries.
    """
    end = clock() + budget_s
    for stage in stages:
        began, lines, failure = clock(), list[Line](), ""
        if end - began < stage.seconds:
            report(Outcome(stage.name, 0.0, (), f"not run: {max(0.0, end - began):.0f} s were left"))
            continue
        try:
            for line in stage.work():
                lines.append(line)  # one by one: what came before an error counts
        except StageFailed as error:
            failure = str(error)
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"[:2000]
        report(Outcome(stage.name, clock() - began, tuple(lines), failure))
