"""The training loop of teacher and student: AdamW, linear warm-up and decay, resumable, atomic checkpoints."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch.nn import functional as F

from headgate.engine.demo.data import Batch, Cursor, stream

Loss = Callable[[Any, Batch], torch.Tensor]
Report = Callable[[int, float, float], None]
"""Called after each step with the step's number, its loss and tokens per second so far."""


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """How long and how fast to train. `tokens` counts padding; `save_every` is in steps."""

    steps: int
    seed: int = 0
    tokens: int = 1024
    rate: float = 2e-3
    warmup: int = 200
    weight_decay: float = 0.05
    clip: float = 1.0
    save_every: int = 500


class NonFiniteLossError(RuntimeError):
    """The loss became NaN or infinite; training stops with the last checkpoint intact."""


def answer_logits(model: Any, batch: Batch) -> torch.Tensor:
    """fp32 logits [answers, vocabulary] where an answer token comes next; the head is computed only there."""
    hidden = model.model(input_ids=batch.ids, use_cache=False).last_hidden_state
    logits: torch.Tensor = model.lm_head(hidden.flatten(0, 1)[batch.positions])
    return logits.float()


def teacher_loss(balance: float = 0.005) -> Loss:
    """Cross-entropy on answer tokens plus `balance` times the load-balancing loss of the experts.

    Load balancing: Fedus et al. 2021, "Switch Transformers", equations 4 to 6.
    """
    from transformers.models.qwen3_moe.modeling_qwen3_moe import load_balancing_loss_func

    def loss(model: Any, batch: Batch) -> torch.Tensor:
        output = model.model(input_ids=batch.ids, use_cache=False, output_router_logits=True)
        logits = model.lm_head(output.last_hidden_state.flatten(0, 1)[batch.positions]).float()
        spread = load_balancing_loss_func(
            output.router_logits, model.config.num_experts, model.config.num_experts_per_tok, batch.mask
        )
        total: torch.Tensor = F.cross_entropy(logits, batch.targets) + balance * spread
        return total

    return loss


def rate_at(step: int, settings: TrainSettings) -> float:
    """The learning rate of a step (from 0): linear up over `warmup` steps, then linear down to zero at `steps`."""
    up = (step + 1) / max(1, settings.warmup)
    down = (settings.steps - step) / max(1, settings.steps - settings.warmup)
    return settings.rate * min(1.0, up, down)


def train(
    model: Any,
    tokenizer: Tokenizer,
    loss: Loss,
    settings: TrainSettings,
    checkpoint: Path,
    *,
    report: Report | None = None,
) -> list[float]:
    """Trains `model` in place and returns the loss of every step.

    Continues from `checkpoint` if that file exists, and writes it every `save_every` steps and at the end; a resumed
    run gives the same weights as an uninterrupted one. `report` is called before a checkpoint is written.
    On a CPU with bf16 instructions matrix products run in bf16 under autocast, the weights stay fp32.
    Raises `NonFiniteLossError` naming the step.
    """
    device = next(model.parameters()).device
    optimizer = torch.optim.AdamW(_groups(model, settings), lr=settings.rate, betas=(0.9, 0.95), fused=True)
    step, cursor, losses = 0, Cursor(), list[float]()
    if checkpoint.exists():
        state = torch.load(checkpoint, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step, losses, cursor = state["step"], state["losses"], Cursor(*state["cursor"])
    started, seen = time.perf_counter(), 0
    batches = stream(tokenizer, seed=settings.seed, tokens=settings.tokens, start=cursor)
    model.train()
    while step < settings.steps:
        batch, cursor = next(batches)
        batch = _to(batch, device)
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, settings)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            value = loss(model, batch)
        number = value.item()
        if not math.isfinite(number):
            raise NonFiniteLossError(
                f"step {step}: loss is {number}; lower the rate ({settings.rate}) and resume from {checkpoint.name}"
            )
        optimizer.zero_grad()
        torch.autograd.backward(value)
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
        optimizer.step()
        step += 1
        losses.append(number)
        seen += batch.ids.numel()
        if report is not None:
            report(step, number, seen / (time.perf_counter() - started))
        if step % settings.save_every == 0 or step == settings.steps:
            save_state(
                {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "step": step,
                    "cursor": (cursor.chunk, cursor.used),
                    "losses": losses,
                },
                checkpoint,
            )
    model.eval()
    return losses


def _groups(model: Any, settings: TrainSettings) -> list[dict[str, Any]]:
    """Matrices decay, norms do not."""
    matrices = [weight for weight in model.parameters() if weight.dim() > 1]
    vectors = [weight for weight in model.parameters() if weight.dim() <= 1]
    return [
        {"params": matrices, "weight_decay": settings.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]


def _to(batch: Batch, device: torch.device) -> Batch:
    return Batch(batch.ids.to(device), batch.mask.to(device), batch.positions.to(device), batch.targets.to(device))


def save_state(state: dict[str, Any], path: Path) -> None:
    """Writes a training state so that a crash leaves either the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    torch.save(state, temporary)
    temporary.replace(path)
