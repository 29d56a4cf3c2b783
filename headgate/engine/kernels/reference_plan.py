"""A step's geometry as plain torch attends to it: which slots to gather, and which of their keys a query sees."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Decodes:
    """Rows of single-token queries with similar contexts, attended in one call."""

    rows: Tensor
    slots: Tensor
    """[rows, longest] int64; past a row's context it repeats slot numbers that the mask hides."""
    distance: Tensor
    """[rows, longest]: positions from the query back to the key; negative past the context."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Consecutive query rows of one sequence."""

    start: int
    stop: int
    slots: Tensor
    distance: Tensor
    """[queries, context]: positions from the query back to the key; negative for later keys, or 0 if it sees them."""


@dataclass(frozen=True, slots=True)
class ReferencePlan:
    """Gather indices and distances of one step; masks are made once per window."""

    decodes: list[Decodes]
    prompts: list[Prompt]
    masks: dict[tuple[int, int | None], Tensor] = field(default_factory=dict)

    def mask(self, part: Decodes | Prompt, window: int | None) -> Tensor:
        """True where the query sees the key."""
        key = (id(part), window)
        if key not in self.masks:
            visible = part.distance >= 0
            self.masks[key] = visible if window is None else visible & (part.distance < window)
        return self.masks[key]
