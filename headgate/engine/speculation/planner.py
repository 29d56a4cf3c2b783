"""Whether a step is to compute drafted tokens, and how many: as many as make tokens come fastest.

A step that computes a few tokens more takes little longer as long as reading the weights is what takes the time, and in
proportion longer after that; how much, and from where on, depends on model, device, context and batch. So it is
measured: by steps that checked drafts, beside steps of the same batch that checked none. Where models are so small that
they take several steps in one call, one step that checks a draft has to make up for all of these.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from headgate.engine.scheduling.chunk import Chunk

_WIDTHS = (1, 3, 7, 15, 31)
"""Most tokens proposed for one sequence: with the known one, powers of 2."""
_GAIN = 1.05
"""How much faster tokens must be expected to come."""
_LONGER = 1.5
"""How much longer a step may take for others that are in it, whose tokens come no faster by its drafts."""
_UNFELT_S = 0.01
"""Seconds that a step may take in any case."""
_UNKNOWN = 0.1
"""Of a step's time, what each further token is taken to cost until it was measured."""
_LATEST = 4
"""Steps of a size that count: the fastest of them, since whatever else runs on a machine only delays one."""
_FORGOTTEN = 512
"""Steps after which a time counts no more: contexts have grown since, and a time that was too long must not stay."""


@dataclass(frozen=True, slots=True)
class _Timed:
    step: int
    tokens: int
    seconds: float


class StepTimes:
    """Seconds of the latest steps, by how many tokens they computed."""

    def __init__(self) -> None:
        self._latest: dict[int, deque[_Timed]] = {}

    def see(self, step: int, tokens: int, seconds: float) -> None:
        """The `step`-th step computed so many tokens."""
        self._latest.setdefault(tokens.bit_length(), deque(maxlen=_LATEST)).append(_Timed(step, tokens, seconds))

    def near(self, step: int, tokens: int) -> float | None:
        """Seconds of steps up to `step` of about so many tokens, at most twice as many or half; None where unknown."""
        found = self._best(step, tokens.bit_length())
        return None if found is None else found.seconds

    def beyond(self, step: int, tokens: int) -> list[tuple[int, float]]:
        """Numbers of tokens above `tokens`, ascending, and the seconds of steps of so many."""
        found = (self._best(step, size) for size in sorted(self._latest))
        return [(timed.tokens, timed.seconds) for timed in found if timed is not None and timed.tokens > tokens]

    def _best(self, step: int, size: int) -> _Timed | None:
        fresh = (timed for timed in self._latest.get(size, ()) if step - timed.step <= _FORGOTTEN)
        return min(fresh, key=lambda timed: timed.seconds, default=None)


class Guess(Protocol):
    """What may be proposed of one answer."""

    @property
    def left(self) -> int:
        """Tokens that may be proposed now."""
        ...

    @property
    def first(self) -> float:
        """How likely the next proposed token is the answer's."""
        ...

    def expected(self, count: int) -> float:
        """How many of the next `count` proposed tokens are the answer's, probably."""
        ...


@dataclass(frozen=True, slots=True)
class _Able:
    """A chunk, by its number, behind which up to `most` tokens may be proposed."""

    number: int
    guess: Guess
    most: int


class Planner:
    """Of one model, and of proposals that cost alike to make. The step thread's own."""

    def __init__(self) -> None:
        self._steps = 0
        self._plain, self._checking = StepTimes(), StepTimes()

    def see(self, chunks: Seq[Chunk], steps: int, seconds: float) -> None:
        """A step of these chunks came so many times in a row and took so long, all together."""
        self._steps += steps
        if any(chunk.drafted for chunk in chunks):
            self._checking.see(self._steps, sum(chunk.count for chunk in chunks), seconds)
        elif all(chunk.count == 1 for chunk in chunks):
            self._plain.see(self._steps, len(chunks), seconds / steps)

    def plan(self, chunks: Seq[Chunk], guesses: Seq[Guess | None], room: int) -> dict[int, int]:
        """How many tokens to propose, by the chunks' numbers.

        None while a sequence reads its prompt: further tokens are no cheaper in a step that has many.

        Args:
            chunks: of the step.
            guesses: what there is for each of them.
            room: how many tokens more the step may have.
        """
        if any(chunk.count > 1 for chunk in chunks):
            return {}
        both = enumerate(zip(chunks, guesses, strict=True))
        able = [able for number, pair in both if (able := _able(number, *pair)) is not None]
        plain = self._plain.near(self._steps, len(chunks)) if able else None
        if plain is None:
            return {}
        able.sort(key=lambda one: -one.guess.first)
        line = [(len(chunks), plain), *self._checking.beyond(self._steps, len(chunks))]
        longest = max(_LONGER * plain, _UNFELT_S)
        best, chosen = _GAIN * len(chunks) / plain, dict[int, int]()
        for width in _WIDTHS:
            counts, tokens, expected = dict[int, int](), len(chunks), float(len(chunks))
            for one in able:
                count = min(width, one.most, room + len(chunks) - tokens)
                if count < 1:
                    break
                counts[one.number] = count
                tokens += count
                expected += one.guess.expected(count)
                seconds = _on(line, tokens)
                if expected / seconds > best and (len(chunks) == 1 or seconds <= longest):
                    best, chosen = expected / seconds, counts.copy()
        return chosen


def _able(number: int, chunk: Chunk, guess: Guess | None) -> _Able | None:
    if guess is None or not chunk.samples:
        return None
    # Behind the last token that there is room for none is chosen.
    most = min(guess.left, chunk.sequence.limit - len(chunk.sequence.tokens) - 1)
    return _Able(number, guess, most) if most > 0 else None


def _on(line: Seq[tuple[int, float]], tokens: int) -> float:
    """Seconds of a step of so many tokens, by straight lines between those that are known, and on from the last."""
    (first, least) = line[0]
    if len(line) == 1:
        return least * (1 + _UNKNOWN * (tokens - first))
    for (low, fast), (high, slow) in pairwise(line):
        slope = (slow - fast) / (high - low)
        if tokens <= high:
            break
    return max(least, fast + slope * (tokens - low))
