"""How large a step may be: as it was set, and as the device's memory allows at present."""

from __future__ import annotations

from dataclasses import dataclass

_PATIENCE = 32
"""Steps that fit, after which one of twice as many tokens is tried again."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one step.

    Attributes:
        max_step_tokens: token budget.
        max_running: most sequences.
        max_sequence_share: part of a step's tokens one prompt may take while others want some.
        knee_tokens: step size up to which background work joins users' sequences; 0: it never does.
        background_step_tokens: most tokens of a step with nothing but background work. It bounds how long a user who
            arrives meanwhile waits.
        pinned_share: part of the blocks that prompts may hold which are to stay in the prefix cache.
    """

    max_step_tokens: int = 512
    max_running: int = 64
    max_sequence_share: float = 0.5
    knee_tokens: int = 0
    background_step_tokens: int = 64
    pinned_share: float = 0.1

    def __post_init__(self) -> None:
        if self.max_running < 1:
            raise ValueError(f"max_running must be at least 1, got {self.max_running}")
        if self.max_step_tokens <= self.max_running:
            raise ValueError(
                f"max_step_tokens must exceed max_running ({self.max_running}), so that prompts advance while every "
                f"running sequence decodes; got {self.max_step_tokens}"
            )
        if not 0 < self.max_sequence_share <= 1:
            raise ValueError(f"max_sequence_share must be in (0, 1], got {self.max_sequence_share}")
        if not 0 <= self.knee_tokens <= self.max_step_tokens:
            raise ValueError(
                f"knee_tokens must be from 0 to max_step_tokens ({self.max_step_tokens}), got {self.knee_tokens}"
            )
        if not 0 <= self.pinned_share < 1:
            raise ValueError(f"pinned_share must be in [0, 1), got {self.pinned_share}")
        if self.background_step_tokens < 1:
            raise ValueError(f"background_step_tokens must be at least 1, got {self.background_step_tokens}")


class StepRoom:
    """The token budget of the next step. It falls when a step does not fit the device's memory, and rises again."""

    def __init__(self, most: int, *, careful: bool = False) -> None:
        """`most`: where memory suffices. `careful`: it rises again only where no sequence loses by a step too large."""
        self.tokens = most
        self._most = most
        self._careful = careful
        self._fitted = 0

    def shrink(self, tokens: int, sequences: int) -> bool:
        """A step of so many tokens of so many sequences does not fit. False where there is no smaller one.

        Prompts are read in smaller parts first; where sequences lack one token each, one of them less gets its own.
        """
        self._fitted = 0
        if tokens < 2:
            # Who it was for is given up, and with him what memory he needed.
            self.tokens = self._most
            return False
        self.tokens = max(tokens // 2, sequences) if tokens > sequences else tokens - 1
        return True

    def fitted(self) -> None:
        """A step fits."""
        if self.tokens == self._most or self._careful:
            return
        self._fitted += 1
        if self._fitted == _PATIENCE:
            self._fitted = 0
            self.tokens = min(2 * self.tokens, self._most)

    def emptied(self) -> None:
        """No sequence is there that would lose anything."""
        if self._careful:
            self.tokens = self._most
