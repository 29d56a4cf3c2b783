"""The model card of a trained folder: what it was trained on, what it scores, what it cannot do."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headgate.engine.demo.evaluate import Answer, scores, table
from headgate.engine.demo.pair import Name, Shape


@dataclass(frozen=True, slots=True)
class Training:
    """How a model came about. `tokens` counts padding, per step; `loss` is the mean of the last 100 steps."""

    name: Name
    shape: Shape
    weights: int
    seed: int
    steps: int
    tokens: int
    loss: float
    device: str


_TITLES = {
    "teacher": ("Headgate demo teacher", "a Qwen3-MoE-shaped mixture of experts"),
    "student": ("Headgate demo student", "a Qwen3-shaped dense model, distilled from the demo teacher"),
}


def card(training: Training, given: Sequence[Answer]) -> str:
    """The card as Markdown, with the scores of the answers given to samples of the test split."""
    title, kind = _TITLES[training.name]
    shape = training.shape
    mlp = (
        f"{shape.experts} experts of width {shape.mlp}, {shape.active} active" if shape.experts else f"MLP {shape.mlp}"
    )
    right, ended = sum(answer.right for answer in given), sum(answer.ended for answer in given)
    objective = (
        "Cross-entropy on answer tokens, plus 0.005 times the load-balancing loss of the experts."
        if training.name == "teacher"
        else "0.7 * T^2 * KL(teacher || student) with T = 2, plus 0.3 * cross-entropy (Hinton et al. 2015)."
    )
    return f"""# {title}

This is {kind}. It knows the tasks in the table and nothing else.

- Shape: hidden size {shape.hidden}, {shape.layers} layers, {shape.heads} heads, {shape.kv_heads} KV heads, {mlp};
  {training.weights / 1e6:.2f} million weights in bf16, tied head, context 2048 (trained on up to about 300 tokens).
- Data: samples of `headgate.engine.demo.tasks`, train split, seed {training.seed}. Nothing was downloaded.
- Training: {training.steps} steps of up to {training.tokens} tokens (padding included), AdamW, linear warm-up and
  decay. {objective}
  Mean loss of the last 100 steps: {training.loss:.3f}.
- Made with `python -m headgate.engine.demo.recipe` on {_hardware(training.device)},
  {datetime.date.today().isoformat()}.

## Scores

Share of exact answers in percent, greedy, on {len(given)} samples of the test split (slot values and wordings that
training did not see; for the closed list of facts, pairs of fact and wording). {right} of {len(given)} were right,
{ended} ended by themselves.

{table(given)}

## Limits

- It knows these tasks and nothing else. Requests far from them should get one honest sentence, and may get nonsense.
- Weak, under half right even on level 1: {_weak(given)}.
- Higher levels are harder (more digits, more items, more people); low scores there are expected.
- Upper and lower case, sorting and word order work on the generator's vocabulary, not on any word.
- English only. Texts longer than a few hundred tokens were not trained on.
"""


def _weak(given: Sequence[Answer]) -> str:
    names = [score.family for score in scores(given) if score.difficulty == 1 and score.accuracy < 0.5]
    return ", ".join(names) or "none"


def write_card(folder: Path, training: Training, given: Sequence[Answer]) -> None:
    """Writes the card as the folder's README.md."""
    (folder / "README.md").write_text(card(training, given), encoding="utf-8")


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
