"""How many steps of one kind follow each other before the next one is decided on."""

from __future__ import annotations

import math
from collections.abc import Callable

_MOST_STEPS = 64
"""Most steps in a row. Blocks for as many tokens are taken beforehand."""
_SHARE, _LONGEST_RUN_S = 20, 0.064
"""Steps in a row may take so many times what it costs to decide about them and to report, up to the time: with hundreds
of sequences that is as much as a large GPU's step, and takes the interpreter from those who write the tokens out."""


class Pace:
    """What a step takes, and what deciding about it and reporting take beside. The step thread's own.

    Of each step that thread says when it begins to decide, when it computes instead, and when all is reported.
    """

    def __init__(self, cpu_clock: Callable[[], float]) -> None:
        """`cpu_clock` gives the seconds that the calling thread has computed."""
        self._cpu_clock = cpu_clock
        self._spent_s = 0.0  # deciding, on the present step
        self._deciding_s = 0.0  # on the last one that was computed
        self._step_s = math.inf  # of the latest one without proposed tokens

    def begin(self) -> None:
        """Deciding begins."""
        self._spent_s = -self._cpu_clock()

    def pause(self) -> None:
        """It is computed from now on."""
        self._spent_s += self._cpu_clock()

    def resume(self) -> None:
        """It is decided and reported again."""
        self._spent_s -= self._cpu_clock()

    def end(self) -> None:
        """All is reported."""
        self._deciding_s = self._spent_s + self._cpu_clock()

    def see(self, step_s: float) -> None:
        """A step without proposed tokens took so many seconds."""
        self._step_s = step_s

    def steps(self, run_s: float, ahead: int) -> int:
        """How many steps take about `run_s` seconds, or longer where it is dear to decide; 0 seconds: one step.

        And beside them the `ahead` ones that are only begun.
        """
        if run_s:
            run_s = max(run_s, min(_SHARE * self._deciding_s, _LONGEST_RUN_S))
        return min(_MOST_STEPS, max(1, int(run_s / self._step_s)) + ahead)
