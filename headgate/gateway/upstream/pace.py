"""How fast an upstream answers, by what was seen of it: for prices, reservations and hedges."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from headgate.routing.price import Load, Rates, StepRates, Work

_FIRST = Rates(step_s=0.02, prompt_s=2e-4, sequence_s=1e-6)
"""Of a server that nobody has seen yet: 50 tokens a second, a thousand prompt tokens in 0.2 s."""
_TOKENS_PER_CHAR = 0.3
_LEARNED = 0.05
_MOST_OF_ATTACHED = 16.0
_RECENT = 128
_LEAST_SEEN = 8
"""Answers from which on a quantile says something."""
_REPORT_S = 0.1


class Pace:
    """Of one upstream. All calls come from one event loop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: monotonic seconds."""
        self._clock = clock
        self._rates = StepRates(_FIRST, clock)
        self._first = _Sums()
        self._rest = _Sums()
        self._fitted = Work()
        self._reported = clock()
        self._recent: deque[float] = deque(maxlen=_RECENT)
        self._per_char = _TOKENS_PER_CHAR
        self._per_attached = 1.0
        self.in_flight = 0

    def tokens(self, chars: int, attached: int = 0) -> int:
        """About how many tokens a prompt of so many characters has there.

        `attached`: what pictures, sound and files in it are worth at a server that nobody has seen yet.
        """
        return max(1, math.ceil(chars * self._per_char + attached * self._per_attached))

    def counted(self, chars: int, tokens: int, attached: int = 0) -> None:
        """A prompt of so many characters, and attachments worth so much, had so many tokens."""
        if not tokens:
            return  # it was not counted
        if attached:
            seen = max(0.0, tokens - chars * self._per_char) / attached
            self._per_attached += _LEARNED * (min(seen, _MOST_OF_ATTACHED) - self._per_attached)
        elif chars:
            self._per_char += _LEARNED * (min(tokens / chars, 4.0) - self._per_char)

    def began(self, seconds: float) -> None:
        """An answer began so long after it was asked for."""
        self._recent.append(seconds)

    def quantile(self, share: float) -> float | None:
        """Seconds within which this share of recent answers began; None before enough were seen."""
        if len(self._recent) < _LEAST_SEEN:
            return None
        ordered = sorted(self._recent)
        return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]

    def answered(self, prompt_tokens: int, tokens: int, first_s: float, total_s: float) -> None:
        """An answer of so many tokens is whole."""
        self._first.add(1, prompt_tokens, first_s)
        self._rest.add(max(0, tokens - 1), 0, max(0.0, total_s - first_s))

    @property
    def load(self) -> Load:
        """The requests that it answers for us. What others ask of it shows in its rates."""
        return Load(running=self.in_flight, max_running=1_000_000, max_step_tokens=1_000_000_000)

    @property
    def rates(self) -> Rates:
        """As if one server with steps of its own answered."""
        now = self._clock()
        if now - self._reported >= _REPORT_S:
            self._reported = now
            # Two equations: what it takes to begin, and what it takes to go on.
            for part in (self._first, self._rest):
                self._fitted = part.beside(self._fitted)
                self._rates.report(self._fitted)
            self._first, self._rest = _Sums(), _Sums()
        return self._rates.rates


class _Sums:
    """Of the answers since the last report. Each of their tokens was a step of its own, for all that is known."""

    __slots__ = ("prompt_tokens", "seconds", "steps")

    def __init__(self) -> None:
        self.steps = self.prompt_tokens = 0
        self.seconds = 0.0

    def add(self, steps: int, prompt_tokens: int, seconds: float) -> None:
        """One more answer."""
        self.steps += steps
        self.prompt_tokens += prompt_tokens
        self.seconds += seconds

    def beside(self, before: Work) -> Work:
        """All work so far."""
        return Work(
            before.steps + self.steps,
            before.prompt_tokens + self.prompt_tokens,
            before.generated_tokens + self.steps,
            before.seconds + self.seconds,
        )
