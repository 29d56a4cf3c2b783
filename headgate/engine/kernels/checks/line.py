"""What a check gives: a line that says how far something is from what it must be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import torch
from torch import Tensor

from headgate.engine.kernels.checks.inputs import Draw

ALLOWED = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}
"""Most relative error by dtype: products of float32 with sums in float32, or two to three roundings to the dtype."""


@dataclass(frozen=True, slots=True)
class Line:
    """One result. `ok` is false where it is not what it must be; a figure without a bound is ok."""

    name: str
    text: str
    figures: Mapping[str, float] = field(default_factory=dict)
    ok: bool = True

    def as_json(self) -> dict[str, object]:
        """Plain values. A figure that is not finite is null: JSON has no such numbers."""
        finite = {name: value if math.isfinite(value) else None for name, value in self.figures.items()}
        return asdict(self) | {"figures": finite}


def relative_error(got: Tensor, expected: Tensor) -> float:
    """|got - expected| / |expected|, infinite where an element of either is not finite."""
    got, expected = got.double(), expected.double()
    error = float((got - expected).norm() / expected.norm())
    return error if math.isfinite(error) else math.inf


def judged(
    name: str, draw: Draw, got: Tensor, expected: Tensor, *, allowed: float | None = None, again: Tensor | None = None
) -> Line:
    """How far `got` is from what is expected; `again` is what a second call gave: other bits mean a race."""
    error, allowed = relative_error(got, expected), allowed or ALLOWED[draw.dtype]
    if again is not None and not torch.equal(got, again):
        return Line(name, f"not the same twice, by {relative_error(again, got):.1e}", ok=False)
    kind = str(draw.dtype).removeprefix("torch.")
    figures = {"error": error, "allowed": allowed}
    return Line(f"{name}, {kind}", f"error {error:.1e}, at most {allowed:.0e}", figures, error <= allowed)
