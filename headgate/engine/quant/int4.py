"""Four bits per weight: int8 weights thinned, group by group, to sixteen evenly spaced values.

For output o and its group g of 32 inputs

    weight = scale[o] * (step[o, g] * (code - 8) + centre[o, g]),   code in 0..15,

with whole steps (1..17) and centres such that the bracket fits in int8. That takes 4.5 bits per weight, 32 per output.
Every product is an exact int32 sum, the one that an int8 layer of the same values computes: how a kernel blocks it, or
how many tokens it serves at a time, changes no bit of the result.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

GROUP = 32
"""Inputs that share a step and a centre."""
# Where the centre starts its search, in steps from the middle of the group's range.
_PHASES = (0.0, -0.3, 0.3, -0.8, 0.8)
_ROWS_AT_A_TIME = 4096


def importance_behind(norm: Tensor) -> Tensor:
    """How much the error at each input counts for a layer behind a norm of weights `norm` [inputs]; float32, mean 1.

    What a norm puts out has the mean square norm^2, and the error of an output that of its weights times that. A floor
    keeps inputs that hardly count from being given up.
    """
    squares = norm.float().square()
    return (squares / squares.mean().clamp_min(1e-30)).clamp_min_(1e-3)


@dataclass(frozen=True, slots=True)
class Thinned:
    """A weight matrix as codes. Inputs are rounded up to `GROUP`; the added ones mean nothing to a product.

    Attributes:
        codes: uint8 [outputs, groups * GROUP].
        steps: uint8 [outputs, groups].
        centres: int8 [outputs, groups].
        scales: float32 [outputs].
    """

    codes: Tensor
    steps: Tensor
    centres: Tensor
    scales: Tensor

    def expand(self) -> Tensor:
        """The int8 values the codes stand for, [outputs, groups * GROUP]."""
        grouped = self.codes.view(*self.steps.shape, GROUP).int() - 8
        values = grouped * self.steps.int().unsqueeze(-1) + self.centres.int().unsqueeze(-1)
        return values.to(torch.int8).flatten(1)


def thin(weight: Tensor, importance: Tensor | None = None) -> Thinned:
    """Codes for `weight` [outputs, inputs] in floating point.

    The scale is max|weight| / 127 of the output. For every group the two smallest steps that can nearly cover its range
    are tried, each with centres at several phases; each centre is tried again at the mean of what the codes leave (the
    least-squares centre for them). The smallest squared error wins, where that of an input counts `importance` times
    (positive float32 [inputs]; all alike without it).
    """
    counts = weight.new_ones(weight.shape[1], dtype=torch.float32) if importance is None else importance
    counts = F.pad(counts, (0, -weight.shape[1] % GROUP), value=1.0).view(-1, GROUP)
    starts = range(0, weight.shape[0], _ROWS_AT_A_TIME)
    parts = [_thin_rows(weight[start : start + _ROWS_AT_A_TIME], counts) for start in starts]
    return Thinned(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))


def _thin_rows(weight: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    values = F.pad(weight.float(), (0, -weight.shape[1] % GROUP))
    most = values.abs().amax(dim=-1)
    scales = torch.where(most == 0, torch.ones_like(most), most / 127)
    grouped = (values / scales.unsqueeze(-1)).nan_to_num().view(weight.shape[0], -1, GROUP)
    low, high = grouped.amin(-1, keepdim=True), grouped.amax(-1, keepdim=True)
    widest = ((high - low) / 15).ceil().clamp_(min=1)
    best = _Best(grouped, counts)
    for step in (widest, (widest - 1).clamp_(min=1)):
        for phase in _PHASES:
            mean = best.attempt(step, ((low + high) / 2 + step * (0.5 + phase)).round())
            best.attempt(step, mean.round())
    return (
        (best.codes + 8).to(torch.uint8).flatten(1),
        best.step.squeeze(-1).to(torch.uint8),
        best.centre.squeeze(-1).to(torch.int8),
        scales,
    )


class _Best:
    """The best codes found so far for groups of values [outputs, groups, GROUP] in units of the output's scale.

    An error counts as often as `counts` [groups, GROUP] says.
    """

    def __init__(self, values: Tensor, counts: Tensor) -> None:
        self._values = values
        self._counts = counts
        self._all = counts.sum(dim=-1, keepdim=True)
        self._error = torch.full_like(values[..., :1], torch.inf)
        self.codes = torch.zeros_like(values)
        self.step = torch.ones_like(self._error)
        self.centre = torch.zeros_like(self._error)

    def attempt(self, step: Tensor, centre: Tensor) -> Tensor:
        """Codes for these steps and about these centres, kept where they are better; the mean of what steps leave."""
        centre = torch.minimum(torch.maximum(centre, 8 * step - 128), 127 - 7 * step)
        codes = ((self._values - centre) / step).round().clamp_(-8, 7)
        left = self._values - step * codes
        error = (left - centre).square_().mul_(self._counts).sum(dim=-1, keepdim=True)
        better = error < self._error
        self._error = torch.where(better, error, self._error)
        self.codes = torch.where(better, codes, self.codes)
        self.step = torch.where(better, step, self.step)
        self.centre = torch.where(better, centre, self.centre)
        return (left * self._counts).sum(dim=-1, keepdim=True) / self._all
