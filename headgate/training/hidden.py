"""Distillation of hidden states: at every token of a text the student also learns what the teacher's layers hold there.

Answers alone teach at answer tokens; most of a text is prompt, and there the teacher's states say how it reads it.
Romero et al. 2015, "FitNets: Hints for Thin Deep Nets"; all layers at evenly spaced depths as in Jiao et al. 2020,
"TinyBERT", section 3.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

_NAME = "hidden_match"


class HiddenMatch(nn.Module):
    """A linear map from each of the student's layers to the teacher's layer at the same relative depth."""

    def __init__(self, student: Any, teacher: Any) -> None:
        """`student` and `teacher` are `transformers` configurations."""
        super().__init__()
        layers, theirs = student.num_hidden_layers, teacher.num_hidden_layers
        self.depths = [(own, round(own * theirs / layers)) for own in range(1, layers + 1)]
        self.maps = nn.ModuleList(nn.Linear(student.hidden_size, teacher.hidden_size, bias=False) for _ in self.depths)

    def forward(
        self, student: Sequence[torch.Tensor], teacher: Sequence[torch.Tensor], mask: torch.Tensor
    ) -> torch.Tensor:
        """The mean squared difference between mapped student and teacher states, both scaled to root mean square 1.

        `student` and `teacher` are hidden states [rows, length, hidden] by layer, the embeddings first; `mask` is bool
        [rows, length]. A map to zero would cost 1.
        """
        total = torch.zeros((), device=mask.device)
        for (own, their), mapped in zip(self.depths, self.maps, strict=True):
            given = mapped(_scaled(student[own][mask])).float()
            total = total + (given - _scaled(teacher[their][mask])).square().mean()
        return total / len(self.depths)


def _scaled(states: torch.Tensor) -> torch.Tensor:
    states = states.float()
    return states * torch.rsqrt(states.square().mean(-1, keepdim=True) + 1e-6)


def attach(student: Any, teacher: Any) -> None:
    """Gives the student the maps, so that they are trained and saved with it until `detach`."""
    generator_state = torch.get_rng_state()
    torch.manual_seed(0)
    student.add_module(_NAME, HiddenMatch(student.config, teacher.config).to(next(student.parameters()).device))
    torch.set_rng_state(generator_state)


def attached(student: Any) -> HiddenMatch | None:
    """The student's maps, if it has some."""
    match = getattr(student, _NAME, None)
    return match if isinstance(match, HiddenMatch) else None


def detach(student: Any) -> None:
    """Takes the maps away: the finished model has no use for them."""
    if attached(student) is not None:
        delattr(student, _NAME)
