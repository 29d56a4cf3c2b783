"""Whether a small model's answer stands, by how sure it was of its tokens.

A sum of log-probabilities punishes long answers and a mean drowns the few tokens in which an answer is wrong, so a low
quantile decides (Gupta et al. 2024, "Language model cascades: token-level uncertainty and beyond").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

QUANTILES = (0.0, 0.05, 0.1, 0.25, 0.5)
"""Those for which outcome tables tell how sure a model was, and bounds are calibrated."""
HELD_TOKENS = 32
"""The first tokens of an answer, as many as they look at."""


@dataclass(frozen=True, slots=True)
class Cascade:
    """When the small model's answer stands, and how long it is held back to find out."""

    quantile: float = 0.1
    """Share of the tokens that may be less sure than `least`."""
    least: float = -0.7
    """Natural logarithm of the least probability of a token at the quantile."""
    hold_tokens: int = 32
    """Tokens after which it is decided, if the answer has not ended before."""
    hold_s: float = 2.0
    """Seconds after which it is decided whatever there is by then."""
    guards: bool = False
    """Whether `least` was calibrated to keep a loss by itself, so that no estimate has to."""

    def __post_init__(self) -> None:
        if not 0 <= self.quantile <= 1:
            raise ValueError(f"quantile must be in [0, 1], got {self.quantile}")
        if self.least > 0:
            raise ValueError(f"least is a logarithm of a probability and at most 0, got {self.least}")
        if self.hold_tokens < 1 or self.hold_s <= 0:
            raise ValueError(f"hold_tokens must be at least 1 and hold_s positive: {self.hold_tokens}, {self.hold_s}")

    def stands(self, logprobs: Sequence[float]) -> bool:
        """Whether an answer stands whose first tokens have these natural-log probabilities; one without tokens does
        not."""
        return bool(logprobs) and quantile_of(logprobs, self.quantile) >= self.least


def quantile_of(logprobs: Sequence[float], share: float) -> float:
    """Log-probability below which `share` (0 to 1) of the tokens are: the smallest one at 0, the greatest at 1."""
    ordered = sorted(logprobs)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
