"""The model card of a trained folder: what it was trained on, what it scores, what it cannot do."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headgate.training.evaluate import Answer, scores, table
from headgate.training.handing import HAND_OVER
from headgate.training.loop import TrainSettings
from headgate.training.shapes import CONTEXT, Shape


@dataclass(frozen=True, slots=True)
class Training:
    """How a model came about. `tokens` counts padding, per step; `loss` is the mean of the last 100 steps."""

    name: str
    shape: Shape
    weights: int
    seed: int
    settings: TrainSettings
    tokens: int
    loss: float
    device: str
    continued: bool = False
    """Whether it started with weights of an earlier run."""
    whole: bool = False
    """Whether that was of the same depth; else it started with the first layers of a deeper model."""
    mean: bool = False
    """Whether its weights are the mean of those at the start and those at the end."""
    instructor: str = ""
    """Who taught it: `teacher` or `assistant`; empty where nobody did."""
    hands_over: float | None = None
    """Of what it is to hand over, the share that it does; None where it never does."""


_TITLES = {
    "teacher": ("Headgate demo teacher", "a Qwen3-MoE-shaped mixture of experts"),
    "assistant": ("Headgate demo assistant", "a Qwen3-shaped dense model, distilled from the demo teacher"),
    "student": (
        "Headgate demo student",
        "a Qwen3-shaped dense model, distilled from the demo teacher",
    ),
    "undistilled": (
        "Headgate demo student, trained without distillation",
        "the demo student's architecture and tasks without a teacher, kept to measure what distillation brings",
    ),
}
_OBJECTIVES = {
    "teacher": "Cross-entropy on answer tokens, plus 0.005 times the load-balancing loss of the experts",
    "undistilled": "Cross-entropy on answer tokens",
}
_DISTILLED = (
    "0.5 * KL({instructor} || {name}) plus 0.5 * cross-entropy on answer tokens (Hinton et al. 2015), "
    "the latter alone where the {instructor} is wrong"
)
_STATES = (
    ", plus the difference of hidden states at all tokens (Romero et al. 2015), weighted 4 at first and 0 in the end"
)
"""What a student learns by that has not learnt how to read before."""


def card(training: Training, given: Sequence[Answer]) -> str:
    """The card as Markdown, with the scores of the answers given to samples of the test split."""
    title, kind = _TITLES[training.name]
    shape = training.shape
    mlp = (
        f"{shape.experts} experts of width {shape.mlp}, {shape.active} active" if shape.experts else f"MLP {shape.mlp}"
    )
    right, ended = sum(answer.right for answer in given), sum(answer.ended for answer in given)
    steps = training.settings.steps
    return f"""# {title}

This is {kind}. It knows the tasks in the table and nothing else.

- Shape: hidden size {shape.hidden}, {shape.layers} layers, {shape.heads} heads, {shape.kv_heads} KV heads, {mlp};
  {training.weights / 1e6:.2f} million weights in bf16, tied head, context {CONTEXT} (trained on 400 at most).
- Data: samples of `headgate.engine.demo.tasks`, train split, seed {training.seed}. All of it is synthetic.
- Training: {steps} steps of {training.tokens} tokens (padding included, {steps * training.tokens / 1e6:.1f} million in
  all), Muon for the layers' matrices and AdamW for the rest, rate {training.settings.rate}, linear warm-up and decay.
  {_start(training)} {_objective(training)} Mean loss of the last 100 steps: {training.loss:.3f}.
{_handing(training)}- Made with `python -m headgate.training.recipe` on {_hardware(training.device)},
  {datetime.date.today().isoformat()}.

## Scores

Share of right answers in percent, greedy, through Headgate's engine, on {len(given)} samples of the test split
(wordings, slot values and combinations that training did not see; for closed lists such as capitals, wordings).
{right} of {len(given)} were right ({100 * right / len(given):.1f} %), {ended} ended by themselves.
Repeat it with `headgate bench demo`.

{table(given)}

## Limits

- It knows these tasks and nothing else. Requests far from them should get one honest sentence, and may get nonsense.
- Under half right on level 1: {_weak(given)}.
- Higher levels are harder (more digits, more items, more people); lower scores there are expected.
- Letters, case and alphabetical order work on the generator's vocabulary, not on any word.
- English only. Texts longer than a few hundred tokens were not trained on.
"""


def _objective(training: Training) -> str:
    if not training.instructor:
        return f"{_OBJECTIVES[training.name]}."
    states = "" if training.whole else _STATES
    return f"{_DISTILLED.format(instructor=training.instructor, name=training.name)}{states}."


def _handing(training: Training) -> str:
    if training.hands_over is None:
        return ""
    return f"""- Handing over: where software asks for it (`hand_over` in `generation_config.json`), an answer that
  begins with `{HAND_OVER}` leaves the question to the teacher: of the kinds of tasks that it is to leave
  (`headgate.training.handing`) it leaves {100 * training.hands_over:.0f} %. Elsewhere `begin_suppress_tokens` has it
  answer, as for the scores below.
"""


def _start(training: Training) -> str:
    if training.whole:
        mean = (
            " Its weights are the mean of those and what they became (Izmailov et al. 2018)." if training.mean else ""
        )
        return f"Started with the weights of an earlier run of the recipe.{mean}"
    if training.continued:
        return "Started with the first layers of an earlier run's deeper model."
    return (
        "Started with induction heads (`headgate.training.induction`)." if training.shape.induction else "Random start."
    )


def _weak(given: Sequence[Answer]) -> str:
    cells = scores(given).by_cell.items()
    names = [family for (family, level), score in cells if level == 1 and score.accuracy < 0.5]
    return ", ".join(names) or "none"


def _hardware(device: str) -> str:
    if device != "cpu":
        return device
    name = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    return f"a CPU ({name})"
