"""What an answer will cost at a destination: seconds for who asks, seconds for who else is served there, money.

A step of a model that reads `p` prompt tokens and continues `d` sequences takes about

    seconds = step_s + prompt_s * p + sequence_s * d

Its three rates are fitted to what the engine's steps took, by least squares in which older steps weigh less. A request
then costs the wait for its turn, the prompt tokens that no resident block holds, and one step per expected token at the
batch that it joins. Models that share a device take turns, step by step: the others' steps are waited for too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from headgate.routing.types import Price


@dataclass(frozen=True, slots=True)
class Rates:
    """Seconds of one model's steps. All positive."""

    step_s: float
    """A step, whatever is in it: reading the weights, above all."""
    prompt_s: float
    """A prompt token."""
    sequence_s: float
    """A sequence that gets its next token."""

    def round_s(self, sequences: int) -> float:
        """A step that gives so many sequences a token each."""
        return self.step_s + self.sequence_s * sequences if sequences else 0.0


@dataclass(frozen=True, slots=True)
class Work:
    """What a model's steps have done so far: counters that only grow."""

    steps: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    seconds: float = 0.0


_LEAST_SHARE = 0.02
"""No rate falls below this share of what it usually is: steps of one kind say nothing of the others."""
_LEAST_SECONDS = 0.002
_SWEEPS = 12
_USUAL_SHARE = 0.03
"""How fast the usual follows the present once it is known: the present's half-life over its own. Before, it is the
mean of all that was measured."""


_HALF_LIFE_S = 20.0
_USUAL_S = 0.001


class StepRates:
    """Fits a model's rates to the work it reports. Belongs to one thread.

    Each report is one equation, which weighs as much as the work that it is about, and half of that after each
    `_HALF_LIFE_S`. What is usual weighs `_USUAL_S` seconds of work all the time and follows what is measured slowly. So
    a rate that the present traffic says nothing about stays as it was, and a destination that was slow for a moment,
    and gets no requests since, is believed to be what it usually is: otherwise it would never be tried again.
    """

    def __init__(self, first: Rates, clock: Callable[[], float]) -> None:
        """Start from `first`. ValueError for a rate that is not positive."""
        if min(_of(first)) <= 0:
            raise ValueError(f"rates must be positive, got {first}")
        self._usual = self._rates = first
        self._clock = clock
        self._seen = Work()
        self._seen_work = 0.0
        self._at = clock()
        # Normal equations of the rates as multiples of the usual: sums of weight * x_i * x_j and of weight * x_i * s.
        self._products = [[0.0] * 3 for _ in range(3)]
        self._sums = [0.0] * 3

    @property
    def rates(self) -> Rates:
        """By everything reported until now."""
        self._fade()
        return self._rates

    def report(self, work: Work) -> None:
        """The counters as they stand; what happened since the last report is learned from."""
        seen = self._seen
        seconds = work.seconds - seen.seconds
        if seconds < _LEAST_SECONDS or work.steps == seen.steps:
            return
        self._seen = work
        self._fade()
        usual = self._usual
        row = (
            (work.steps - seen.steps) * usual.step_s,
            (work.prompt_tokens - seen.prompt_tokens) * usual.prompt_s,
            (work.generated_tokens - seen.generated_tokens) * usual.sequence_s,
        )
        weight = 1 / sum(row)
        for i in range(3):
            self._sums[i] += weight * row[i] * seconds
            for j in range(3):
                self._products[i][j] += weight * row[i] * row[j]
        self._solve()
        self._seen_work += sum(row)
        self._settle(max(min(1.0, _USUAL_SHARE * seconds / _HALF_LIFE_S), sum(row) / self._seen_work))

    def _fade(self) -> None:
        now = self._clock()
        keep = 0.5 ** ((now - self._at) / _HALF_LIFE_S)
        if keep > 0.999:
            return
        self._at = now
        self._sums = [keep * value for value in self._sums]
        self._products = [[keep * value for value in row] for row in self._products]
        self._solve()

    def _settle(self, share: float) -> None:
        """Move what is usual towards what is measured, and restate the equations in the new units."""
        old = _of(self._usual)
        new = tuple(a ** (1 - share) * b**share for a, b in zip(old, _of(self._rates), strict=True))
        scale = [b / a for a, b in zip(old, new, strict=True)]
        self._usual = Rates(*new)
        self._sums = [value * scale[i] for i, value in enumerate(self._sums)]
        self._products = [
            [value * scale[i] * scale[j] for j, value in enumerate(row)] for i, row in enumerate(self._products)
        ]

    def _solve(self) -> None:
        """Least squares, pulled to the usual and bounded from below, by projected coordinate descent."""
        usual = _of(self._usual)
        x = [b / a for a, b in zip(usual, _of(self._rates), strict=True)]
        for _ in range(_SWEEPS):
            for i in range(3):
                others = sum(self._products[i][j] * x[j] for j in range(3) if j != i)
                value = (self._sums[i] + _USUAL_S - others) / (self._products[i][i] + _USUAL_S)
                x[i] = max(_LEAST_SHARE, value)
        self._rates = Rates(*(a * share for a, share in zip(usual, x, strict=True)))


def _of(rates: Rates) -> tuple[float, float, float]:
    return rates.step_s, rates.prompt_s, rates.sequence_s


def first_rates(*, weight_bytes: float, active_parameters: float, read_bytes_s: float, flops: float) -> Rates:
    """Rates before anything was measured: a step reads the weights once, a token costs two operations a parameter."""
    token_s = 2 * active_parameters / flops
    return Rates(weight_bytes / read_bytes_s, token_s, token_s)


class AnswerLengths:
    """Learns how many tokens answers of a task class have: a mean in which older answers weigh less."""

    def __init__(self, first: float = 64.0, weight: float = 0.05) -> None:
        """`first`: taken for every class before its answers are seen; `weight`: of each new answer, in (0, 1]."""
        if first <= 0 or not 0 < weight <= 1:
            raise ValueError(f"first must be positive and weight in (0, 1], got {first} and {weight}")
        self._first = first
        self._weight = weight
        self._means: dict[str, tuple[int, float]] = {}

    def expected(self, task: str, most: int | None = None) -> float:
        """Tokens of an answer to a request of the class that allows `most`."""
        mean = self._means[task][1] if task in self._means else self._first
        return mean if most is None else min(mean, most)

    def learn(self, task: str, tokens: int) -> None:
        """One more answer. There are as many means as task classes."""
        count, mean = self._means.get(task, (1, self._first))
        # The first answers count as in a plain mean that began with the guess.
        weight = max(self._weight, 1 / (count + 1))
        self._means[task] = count + 1, mean + weight * (tokens - mean)


@dataclass(frozen=True, slots=True)
class Load:
    """One model as it stands: sequences and tokens of requests that have not ended."""

    running: int = 0
    waiting: int = 0
    pending_tokens: int = 0
    """Prompt tokens that those still have to be read."""
    max_running: int = 64
    max_step_tokens: int = 512


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another model that takes turns on the same device."""

    load: Load
    rates: Rates

    @property
    def round_s(self) -> float:
        """What its steps take but for reading prompts; 0 where it has nothing to do."""
        return self.rates.round_s(min(self.load.running + self.load.waiting, self.load.max_running))

    @property
    def reading_s(self) -> float:
        """What reading the prompts takes that are there, once."""
        return self.load.pending_tokens * self.rates.prompt_s


@dataclass(frozen=True, slots=True)
class Tariff:
    """Money for a token of a destination, in US dollars, and what seconds are worth."""

    usd_per_prompt_token: float = 0.0
    usd_per_completion_token: float = 0.0
    usd_per_device_s: float = 0.0
    usd_per_waited_s: float = 0.0
    """What a second less of waiting may cost; 0: money decides only between equal times."""


@dataclass(frozen=True, slots=True)
class Signals:
    """Which live figures prices look at. All of them, but to measure what each is worth."""

    queue: bool = True
    kv: bool = True


_FREE = Tariff()
_ALL = Signals()


def price(
    *,
    prompt_tokens: int,
    resident_tokens: int,
    output_tokens: float,
    rates: Rates,
    load: Load,
    neighbours: tuple[Neighbour, ...] = (),
    tariff: Tariff = _FREE,
    signals: Signals = _ALL,
    wake_s: float = 0.0,
) -> Price:
    """What a request costs at a destination as it stands.

    Args:
        prompt_tokens: of its prompt there.
        resident_tokens: of these, those whose keys and values are in blocks that it may share.
        output_tokens: expected of the answer.
        rates: of the model.
        load: of the model.
        neighbours: the other models of its device.
        tariff: prices in money.
        signals: what to look at.
        wake_s: until the model is there at all.
    """
    if not signals.queue:
        load, neighbours = replace(load, running=0, waiting=0, pending_tokens=0), ()
    own = prompt_tokens - min(resident_tokens if signals.kv else 0, prompt_tokens - 1)
    others_round_s = sum(n.round_s for n in neighbours)
    here = load.running + load.waiting
    # What a step takes besides the prompt tokens in it, until this request joins the batch and from then on.
    before_s = rates.step_s + rates.sequence_s * min(here, load.max_running) + others_round_s
    batch = min(here + 1, load.max_running)
    round_s = rates.round_s(batch) + others_round_s
    # Whoever finds the running set full waits until so many have ended; each takes about one expected answer.
    turns = max(0, here + 1 - load.max_running) / load.max_running
    queue_s = _reading_s(load.pending_tokens, rates, load, before_s) + turns * output_tokens * round_s
    if here or others_round_s:
        # The step that is being computed, half of it on average.
        queue_s += 0.5 * before_s
    # While this one answers, the others of the device read what they have to.
    queue_s += sum(n.reading_s for n in neighbours) + wake_s
    prefill_s = _reading_s(own, rates, load, before_s)
    decode_s = output_tokens * round_s
    # Its share of steps that are made for others too: some of those others will have ended before it.
    device_s = own * rates.prompt_s + output_tokens * rates.round_s(batch) / batch
    served = here + sum(n.load.running + n.load.waiting for n in neighbours)
    usd = (
        prompt_tokens * tariff.usd_per_prompt_token
        + output_tokens * tariff.usd_per_completion_token
        + device_s * tariff.usd_per_device_s
    )
    waited = queue_s + prefill_s + decode_s + device_s * served
    score = waited + usd / tariff.usd_per_waited_s if tariff.usd_per_waited_s else waited
    return Price(queue_s, prefill_s, decode_s, device_s, device_s * served, usd, score, own, output_tokens)


def _reading_s(tokens: int, rates: Rates, load: Load, step_s: float) -> float:
    """To read so many prompt tokens in steps that take `step_s` besides."""
    return tokens * rates.prompt_s + math.ceil(tokens / load.max_step_tokens) * step_s
