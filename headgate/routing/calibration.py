"""Thresholds with a proof: which one keeps a stated target, from counts on prompts that nothing was fitted on.

The small model answers where it is estimated to be right with a probability above a threshold. For a row of thresholds,
fixed before the calibration prompts were looked at, upper bounds are kept on

- the loss: of the requests that the large model answers rightly, the share that the routing answers wrongly. The
  routing is right on at least (1 - loss) times as many requests as the large model alone: "at most 5 % worse" is a loss
  of at most 0.05. What the small model has right and the large one has not is not counted in its favour.
- the device seconds of a request.

Each bound holds for its own threshold with the stated confidence. To choose one for a target they are tested in a fixed
order, from the safest on, until the first whose bound is above the target; the last before it is taken. A wrong one is
taken with probability 1 - confidence at most: the first wrong one in the order would have to pass, and all after it
come only if it did (fixed-sequence testing; for thresholds: Angelopoulos, Bates, Candes, Jordan and Lei 2021, "Learn
then test"). The bounds are those tests: "the loss is above the target" is rejected exactly where the bound is not above
it, so that one row of bounds serves every target.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.routing.regression import Array

ALWAYS_SMALL, ALWAYS_LARGE = 0.0, 1.0
"""Thresholds that every estimate is above, and none is."""


class Infeasible(ValueError):
    """No threshold is known to keep a target; the message names the best that one is known to keep."""


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """Bounds for rising thresholds, the first `ALWAYS_SMALL` and the last `ALWAYS_LARGE`; float64 `[thresholds]` each.

    Attributes:
        thresholds: on the small model's estimate, rising.
        loss: upper bounds on the loss, 0 to 1; the last is 0, since there the large model answers everything.
        seconds: upper bounds on the mean device seconds of a request.
        small: shares of the calibration prompts that stay with the small model, for display.
        confidence: that one bound holds, 0 to 1.
        prompts: of the calibration.
    """

    thresholds: Array
    loss: Array
    seconds: Array
    small: Array
    confidence: float
    prompts: int

    def __post_init__(self) -> None:
        counts = {len(self.thresholds), len(self.loss), len(self.seconds), len(self.small)}
        if len(counts) != 1 or len(self.thresholds) < 2:
            raise ValueError(
                f"thresholds, loss, seconds, small have {sorted(counts)} entries; equally many are accepted"
            )
        if np.any(np.diff(self.thresholds) <= 0):
            raise ValueError("thresholds do not rise; strictly rising ones are accepted")

    def for_loss(self, most: float) -> float:
        """The lowest threshold, with the fewest requests for the large model, that is known to keep a loss.

        Args:
            most: 0 to 1; 0.05 for "at most 5 % worse than the large model alone".

        Raises:
            ValueError: `most` is out of range.
            Infeasible: no threshold but that of the large model alone keeps it.
        """
        if not 0.0 <= most <= 1.0:
            raise ValueError(f"most is {most}; 0 to 1 is accepted")
        kept = _leading(self.loss[::-1] <= most)
        if kept <= 1:
            raise Infeasible(
                f"at most {most:.2%} worse than the large model alone cannot be shown for any use of the small one; "
                f"{self.loss[-2]:.2%} is the least that {self.prompts} calibration prompts show"
            )
        return float(self.thresholds[-kept])

    def for_seconds(self, most: float) -> float:
        """The highest threshold, with the best answers, that is known to keep a mean of device seconds a request.

        Raises:
            Infeasible: not even the small model alone keeps it.
        """
        kept = _leading(self.seconds <= most)
        if not kept:
            raise Infeasible(
                f"at most {1000 * most:.4g} device seconds for 1,000 requests cannot be shown; "
                f"{1000 * self.seconds[0]:.4g}, with the small model alone, is the least"
            )
        return float(self.thresholds[kept - 1])


def _leading(passed: NDArray[np.bool_]) -> int:
    """How many pass before the first that does not."""
    return len(passed) if passed.all() else int(np.argmin(passed))
