"""The training loop: linear warm-up and decay, resumable, checkpoints that are whole or not there."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from headgate.training.batches import Cursor, Stream
from headgate.training.forward import products
from headgate.training.losses import Loss
from headgate.training.optimizer import optimizers
from headgate.training.parallel import GradientMean, mean, rank, shared
from headgate.training.runs import whole

Report = Callable[[int, float, float], None]
"""Called after each step with the step's number, its loss and tokens per second so far."""


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """How long and how fast to train; `save_every` is in steps."""

    steps: int
    rate: float = 2e-3
    warmup: int = 100
    clip: float = 1.0
    save_every: int = 200


class NonFiniteLossError(RuntimeError):
    """The loss became NaN or infinite; training stops with the last checkpoint intact."""


class UnsavedStateError(RuntimeError):
    """A training state could not be written; the one before is intact."""


class CheckpointMismatchError(RuntimeError):
    """The training state on disk belongs to another model or run."""


def rate_at(step: int, settings: TrainSettings) -> float:
    """The learning rate of a step (from 0): linear up over `warmup` steps, then linear down to zero at `steps`."""
    up = (step + 1) / max(1, settings.warmup)
    down = (settings.steps - step) / max(1, settings.steps - settings.warmup)
    return settings.rate * min(1.0, up, down)


def train(
    model: Any,
    batches: Stream,
    loss: Loss,
    settings: TrainSettings,
    checkpoint: Path,
    *,
    of: str = "",
    report: Report | None = None,
) -> list[float]:
    """Trains `model` in place and returns the loss of every step.

    Continues from `checkpoint` if that file exists, and writes it every `save_every` steps and at the end; a resumed
    run gives the same weights as an uninterrupted one. `of` names what the run was started with; a checkpoint that was
    written with another name is none of its own. `report` is called before a checkpoint is written.
    Matrix products run in bf16 under autocast where that is the faster type (`fastest`); the weights stay fp32.

    Under `torchrun` each process takes its share of the batches (see `shared`), the gradients are averaged, so that a
    step is as one on all their batches, and the first process keeps the checkpoint.
    Raises `NonFiniteLossError` naming the step, `CheckpointMismatchError` if the file is another model's or
    run's, and `UnsavedStateError` if it cannot be written.
    """
    device = next(model.parameters()).device
    rules = optimizers(model, settings.rate)
    step, cursor, losses = 0, Cursor(), list[float]()
    if checkpoint.exists():
        step, cursor, losses = _restore(checkpoint, model, rules, of)
    started, seen = time.perf_counter(), 0
    source = shared(batches)(cursor)
    average = GradientMean(model)
    first = rank() == 0
    model.train()
    while step < settings.steps:
        batch, cursor = next(source)
        batch = batch.to(device)
        for rule in rules:
            rule.zero_grad()
            for group in rule.param_groups:
                group["lr"] = rate_at(step, settings)
        # So that a step draws the same noise in a resumed run, where a model has any (dropout, jitter of routers).
        torch.manual_seed(step)
        with products(device):
            value = loss(model, batch, step / settings.steps)
        number = mean(value)
        if not math.isfinite(number):
            raise NonFiniteLossError(
                f"step {step}: loss is {number}; lower the rate ({settings.rate}) and resume from {checkpoint}"
            )
        torch.autograd.backward(value)
        average()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
        for rule in rules:
            rule.step()
        step += 1
        losses.append(number)
        seen += batch.ids.numel()
        if report is not None:
            report(step, number, seen / (time.perf_counter() - started))
        if first and (step % settings.save_every == 0 or step == settings.steps):
            save_state(
                {
                    "model": model.state_dict(),
                    "optimizers": [rule.state_dict() for rule in rules],
                    "step": step,
                    "cursor": (cursor.chunk, cursor.used),
                    "losses": losses,
                    "of": of,
                },
                checkpoint,
            )
    model.eval()
    return losses


def _restore(
    checkpoint: Path, model: Any, rules: tuple[torch.optim.Optimizer, ...], of: str
) -> tuple[int, Cursor, list[float]]:
    state = torch.load(checkpoint, map_location=next(model.parameters()).device, weights_only=True)
    # Earlier states have no name.
    if (found := state.get("of", of)) != of:
        raise CheckpointMismatchError(
            f"{checkpoint} is the state of a run with {found}, not with {of}; "
            "delete it to start afresh, or name another output folder"
        )
    try:
        model.load_state_dict(state["model"])
        for rule, saved in zip(rules, state["optimizers"], strict=True):
            rule.load_state_dict(saved)
    except (KeyError, RuntimeError, ValueError) as error:
        raise CheckpointMismatchError(
            f"{checkpoint} is not a state of this run ({str(error).splitlines()[0]}); "
            "delete it to start afresh, or name another output folder"
        ) from error
    return state["step"], Cursor(*state["cursor"]), state["losses"]


def save_state(state: dict[str, Any], path: Path) -> None:
    """Writes a training state so that a crash leaves either the old file or the new one.

    Raises `UnsavedStateError` naming the file if it cannot be written; nothing half written stays.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole(path) as file:
            torch.save(state, file)
    except OSError as error:
        raise UnsavedStateError(f"{path}: cannot be written: {error.strerror or error}") from error
    except RuntimeError as error:
        # Of what failed torch's writer tells only that it stands at another place than it should.
        raise UnsavedStateError(f"{path}: cannot be written; is the disk full?") from error
