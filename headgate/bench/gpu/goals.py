"""`headgate bench gpu`, its goals: what the figures should be on an H200, and which are not there yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headgate.bench.gpu.stages import Outcome
from headgate.engine.kernels.checks.line import Line

_QWEN, _MIXTURE, _LLAMA = (
    "speed of the engine, qwen3-0.6b",
    "speed of the engine, qwen3-30b-a3b, fp8",
    "speed of the engine, llama-3-8b, ",
)


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure of a line of a stage, and what it should be at least, or at most where `less` is better."""

    stage: str
    line: str
    figure: str
    bound: float
    unit: str
    less: bool = False

    def reached(self, value: float) -> bool:
        """Whether the value will do."""
        return value <= self.bound if self.less else value >= self.bound


GOALS = (
    Goal(_QWEN, "decode b1", "decode_tokens_s", 1450, "tokens/s"),
    Goal(_QWEN, "256 sequences", "tokens_s", 22_000, "tokens/s"),
    Goal(_MIXTURE, "decode b1", "decode_tokens_s", 565, "tokens/s"),
    Goal(_MIXTURE, "128 after 1024", "decode_tokens_s", 6400, "tokens/s"),
    Goal(f"{_LLAMA}fp8", "decode b1", "decode_tokens_s", 400, "tokens/s"),
    Goal(f"{_LLAMA}bfloat16", "prompt of 8192", "rate", 0.55 * 790e12, "FLOP/s"),
    Goal("through HTTP", "512 streams", "lost", 0.05, "of the tokens/s", less=True),
    Goal("start and sleep", "warm start", "seconds", 10, "s", less=True),
)


def against_goals(outcomes: Sequence[Outcome], goals: Sequence[Goal] = GOALS) -> Iterator[Line]:
    """A line per goal; none is wrong, since the goals are those of one kind of GPU."""
    found = {(o.name, line.name): line.figures for o in outcomes for line in o.lines}
    for goal in goals:
        name, most = f"{goal.stage}: {goal.line}", "at most" if goal.less else "at least"
        value = found.get((goal.stage, goal.line), {}).get(goal.figure)
        if value is None:
            yield Line(name, f"not measured; {most} {goal.bound:,g} {goal.unit}")
            continue
        reached = goal.reached(value)
        text = f"{value:,g} {goal.unit}, {'reached' if reached else 'MISSED'}: {most} {goal.bound:,g}"
        yield Line(name, text, {"value": value, "bound": goal.bound, "reached": float(reached)})
