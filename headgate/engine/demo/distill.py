"""Distillation: the student learns the teacher's distribution and the reference answers.

Hinton, Vinyals, Dean 2015, "Distilling the Knowledge in a Neural Network".
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from headgate.engine.demo.data import Batch
from headgate.engine.demo.train import Loss, answer_logits


def distillation_loss(
    student: torch.Tensor, teacher: torch.Tensor, targets: torch.Tensor, *, temperature: float, soft: float
) -> torch.Tensor:
    """`soft` * T^2 * KL(teacher_T || student_T) + (1 - `soft`) * cross-entropy(student, targets), averaged over rows.

    `student` and `teacher` are fp32 logits [answers, vocabulary], `targets` int64 [answers]; the index T divides the
    logits by the temperature. T^2 keeps the gradient of the soft part at the scale of the hard part (Hinton et al.
    2015, section 2).
    """
    divergence = F.kl_div(
        F.log_softmax(student / temperature, dim=-1),
        F.log_softmax(teacher / temperature, dim=-1),
        reduction="batchmean",
        log_target=True,
    )
    return soft * temperature**2 * divergence + (1 - soft) * F.cross_entropy(student, targets)


def student_loss(teacher: Any, *, temperature: float = 2.0, soft: float = 0.7) -> Loss:
    """The distillation loss against a frozen teacher, computed on the fly."""
    teacher.eval().requires_grad_(False)

    def loss(model: Any, batch: Batch) -> torch.Tensor:
        with torch.no_grad():
            soft_targets = answer_logits(teacher, batch)
        return distillation_loss(
            answer_logits(model, batch), soft_targets, batch.targets, temperature=temperature, soft=soft
        )

    return loss
