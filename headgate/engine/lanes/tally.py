"""What a lane has seen of its sequences and steps, as distributions over fixed bounds. One thread writes it."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from headgate.engine.request import Finish, FinishReason

if TYPE_CHECKING:
    from headgate.engine.sequence import Sequence as Running

_LATENCY = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
)  # fmt: skip
_FIRST = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0,
    640.0, 2560.0,
)  # fmt: skip
_BETWEEN = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
_STEP = (1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0)
_CHOICES = (1.0, 2.0, 5.0, 10.0, 20.0)
"""Bounds are those with which vLLM publishes the same figures, so that its dashboards draw ours."""


class Spread:
    """Counts of values up to each bound, and their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds` ascend; a last one without end is added."""
        self.bounds = tuple(bounds)
        self.sum = 0.0
        self._counts = [0] * (len(self.bounds) + 1)

    def see(self, value: float, times: int = 1) -> None:
        """A value, so many times."""
        self._counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    @property
    def cumulative(self) -> list[int]:
        """Values up to each bound, and all of them."""
        return list(accumulate(self._counts.copy()))


class Tally:
    """Of the sequences that generate. Times are seconds from their submission to the engine, or parts of that."""

    def __init__(self, context_length: int) -> None:
        """`context_length`: most tokens that a request may ask for."""
        self.prompt_tokens = 0
        """Of the prompts whose first token came, cached ones included."""
        self.ends: Counter[FinishReason] = Counter()
        self.first_token = Spread(_FIRST)
        self.between_tokens = Spread(_BETWEEN)
        self.whole = Spread(_LATENCY)
        self.queue = Spread(_LATENCY)
        self.prefill = Spread(_LATENCY)
        self.decode = Spread(_LATENCY)
        self.inference = Spread(_LATENCY)
        """Prefill and decode together."""
        self.step_tokens = Spread(_STEP)
        self.choices = Spread(_CHOICES)
        self.asked_tokens = Spread(_one_two_five(context_length))

    def asked(self, n: int, max_tokens: int | None) -> None:
        """A request came; None: it may have what there is room for."""
        self.choices.see(n)
        if max_tokens is not None:
            self.asked_tokens.see(max_tokens)

    def stepped(self, tokens: int, steps: int) -> None:
        """So many steps computed so many tokens."""
        self.step_tokens.see(tokens / steps, steps)

    def emitted(self, sequence: Running, tokens: int, now: float) -> None:
        """A step gave a sequence so many tokens; called before the sequence knows of the first."""
        if sequence.first_token_at is None:
            self.prompt_tokens += sequence.prompt_length
            self.first_token.see(now - sequence.submitted_at)
        else:
            self.between_tokens.see((now - sequence.last_token_at) / tokens, tokens)
        sequence.last_token_at = now

    def ended(self, finish: Finish) -> None:
        """A sequence has ended."""
        self.ends[finish.reason] += 1
        if finish.reason not in ("stop", "length"):
            return
        inference = finish.prefill_s + finish.decode_s
        self.queue.see(finish.queue_s)
        self.prefill.see(finish.prefill_s)
        self.decode.see(finish.decode_s)
        self.inference.see(inference)
        self.whole.see(finish.queue_s + inference)


def _one_two_five(most: int) -> list[float]:
    """1, 2, 5, 10, 20, 50, … up to `most`."""
    found, power = [], 1
    while power <= most:
        found += [float(power * digit) for digit in (1, 2, 5) if power * digit <= most]
        power *= 10
    return found
