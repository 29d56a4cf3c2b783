"""Load on a clock of its own: longer than a benchmark may take, and untouched by what else a machine does.

Two copies of a model take steps that last what the price says they do (`headgate.routing.price`), with measured rates.
The router decides as it does in a server: the same prices from the same live figures, policy and sticky conversations.
Nothing is computed, so that nothing is said of answers: both copies give the same ones.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from headgate.bench.engine import started
from headgate.bench.output import at_share
from headgate.bench.routing.set_ups import SETUPS, SIGNALS, Variant
from headgate.engine.settings import EngineSettings, ModelSpec
from headgate.gateway.local_destination import LocalDestination
from headgate.routing.classes import TaskClassifier
from headgate.routing.policy import Judgement, Policy, Router
from headgate.routing.price import Load, Rates, Signals, price
from headgate.routing.tasks import load_tasks
from headgate.routing.types import Destination

COPIES = tuple(SETUPS["copies"].models)
VARIANTS = SETUPS["copies"].variants
LOADS = (0.3, 0.5, 0.7, 0.85, 0.95)
_SECONDS = 10.0
_TURNS = 3
_TURN_GAP_S = 0.3
_PROMPT_TOKENS, _ANSWER_TOKENS = 40, 25
"""Means of a turn."""
_MANY = 400
"""Requests that are there at once where the capacity is told."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a conversation: when it comes, what it adds and what answers it, in tokens."""

    at: float
    session: int
    history: int
    prompt: int
    answer: int


@dataclass(slots=True)
class _Sequence:
    turn: Turn
    own: bool
    unread: int
    left: int


@dataclass(slots=True)
class _Copy:
    """A model on a device of its own, step by step."""

    rates: Rates
    now: float = 0.0
    running: list[_Sequence] = field(default_factory=list)
    waiting: deque[_Sequence] = field(default_factory=deque)
    known: dict[int, int] = field(default_factory=dict)
    """Tokens of each conversation that are in its cache."""
    ended: list[tuple[float, bool]] = field(default_factory=list)
    """Seconds of each answer, and whether the router placed it."""

    @property
    def load(self) -> Load:
        """As a destination tells it."""
        unread = sum(one.unread for one in (*self.running, *self.waiting))
        return Load(len(self.running), len(self.waiting), unread)

    def take(self, turn: Turn, *, own: bool) -> None:
        """A request has come."""
        resident = min(self.known.get(turn.session, 0), turn.history)
        unread = turn.history + turn.prompt - resident
        self.waiting.append(_Sequence(turn, own, unread, turn.answer))

    def until(self, time: float) -> None:
        """Take the steps that begin before a time."""
        most = self.load
        while self.now < time and (self.running or self.waiting):
            while self.waiting and len(self.running) < most.max_running:
                self.running.append(self.waiting.popleft())
            room, read, decoded = most.max_step_tokens, 0, 0
            for one in self.running:
                if one.unread:
                    part = min(one.unread, room)
                    one.unread, room, read = one.unread - part, room - part, read + part
                    one.left -= not one.unread
                else:
                    one.left, decoded = one.left - 1, decoded + 1
            self.now += self.rates.round_s(decoded) if decoded else self.rates.step_s
            self.now += self.rates.prompt_s * read
            for one in [one for one in self.running if one.left <= 0 and not one.unread]:
                self.running.remove(one)
                self.known[one.turn.session] = one.turn.history + one.turn.prompt + one.turn.answer
                self.ended.append((self.now - one.turn.at, one.own))
        self.now = max(self.now, time)


@dataclass(frozen=True, slots=True)
class Simulated:
    """One variant at one load, a share of the capacity. Times are 95 % quantiles in seconds."""

    load: float
    variant: Variant
    requests: int
    p95_s: float
    others_p95_s: float


@dataclass(frozen=True, slots=True)
class SimulatedTable:
    """All figures, and the rates and the capacity in requests a second that they hold for."""

    rates: Rates
    capacity: float
    figures: tuple[Simulated, ...]

    def saved(self, load: float, variant: Variant) -> float:
        """By what share the p95 of all signals is below that of a variant."""
        by = {one.variant: one.p95_s for one in self.figures if one.load == load}
        return 1 - by["both"] / by[variant]


async def measured_rates(folder: Path) -> Rates:
    """What the steps of a checkpoint take on one thread, idle."""
    with started(EngineSettings(threads=1), ModelSpec("measured", folder)) as engine:
        destination = LocalDestination(engine.models["measured"])
        await destination.measure()
        return destination.live().rates


def simulated_table(
    rates: Rates, *, loads: Sequence[float] = LOADS, seconds: float = _SECONDS, seed: int = 0
) -> SimulatedTable:
    """Every variant on the same arrivals, half of which are another team's; `seconds` of them a load."""
    figures = list[Simulated]()
    for load in loads:
        half = 0.5 * load * capacity(rates)
        own, others = turns(half, seconds, seed), turns(half, seconds, seed + 1)
        figures += [Simulated(load, v, len(own), *simulate(rates, v, own, others)) for v in VARIANTS]
    return SimulatedTable(rates, capacity(rates), tuple(figures))


def print_simulated(console: Console, table: SimulatedTable) -> None:
    """A line a variant and load, and what the signals save."""
    rates = table.rates
    console.print(
        f"load, simulated: two copies of a model, a step of which takes {1e6 * rates.step_s:.0f} µs, "
        f"{1e6 * rates.sequence_s:.0f} more a sequence and {1e6 * rates.prompt_s:.0f} a prompt token; "
        f"{table.capacity:.0f} requests/s at most; half of them are another team's, which asks the first copy"
    )
    shown = Table()
    for name in ("load", "signals", "requests", "p95 s", "others' p95 s"):
        shown.add_column(name, justify="left" if name == "signals" else "right")
    for one in table.figures:
        shown.add_row(
            f"{one.load:g}",
            one.variant,
            str(one.requests),
            f"{one.p95_s:.3f}",
            f"{one.others_p95_s:.3f}",
            end_section=one.variant == VARIANTS[-1],
        )
    console.print(shown)
    loads = dict.fromkeys(one.load for one in table.figures)
    for variant in VARIANTS[1:]:
        parts = ", ".join(f"{100 * table.saved(load, variant):+.0f} % at {load:g}" for load in loads)
        console.print(f"p95 that both signals save against {variant}: {parts}")


def capacity(rates: Rates) -> float:
    """Requests a second of both copies together, with many there at once and dealt in turn."""
    copies = [_Copy(rates) for _ in COPIES]
    many = turns(_MANY / _SECONDS, _SECONDS, 0)
    for turn in many:
        copies[turn.session % len(copies)].take(replace(turn, at=0.0), own=True)
    for copy in copies:
        copy.until(float("inf"))
    return len(many) / max(seconds for copy in copies for seconds, _ in copy.ended)


def turns(rate: float, seconds: float, seed: int) -> list[Turn]:
    """Turns of conversations that come at random, `rate` turns a second; lengths are spread as exponential ones."""
    draw = random.Random(f"simulated/{seed}")
    found, start, session = list[Turn](), 0.0, 0
    while start < seconds:
        start += draw.expovariate(rate / _TURNS)
        session += 1
        at, history = start, 0
        for _ in range(_TURNS):
            prompt, answer = (1 + int(draw.expovariate(1 / mean)) for mean in (_PROMPT_TOKENS, _ANSWER_TOKENS))
            found.append(Turn(at, session, history, prompt, answer))
            at, history = at + draw.expovariate(1 / _TURN_GAP_S), history + prompt + answer
    return found


def simulate(rates: Rates, variant: Variant, own: Sequence[Turn], others: Sequence[Turn]) -> tuple[float, float]:
    """The 95 % quantile of the seconds of our requests, and of the other team's, which all ask the first copy."""
    copies = {name: _Copy(rates) for name in COPIES}
    placed = _Placer(rates, variant)
    for turn, ours in sorted(
        ((t, o) for part, o in ((own, True), (others, False)) for t in part), key=lambda one: one[0].at
    ):
        for copy in copies.values():
            copy.until(turn.at)
        name = placed.place(turn, copies) if ours else COPIES[0]
        # The other team's conversations are others than ours.
        copies[name].take(turn if ours else replace(turn, session=-turn.session), own=ours)
    for copy in copies.values():
        copy.until(float("inf"))
    ended = [one for copy in copies.values() for one in copy.ended]
    first, second = (at_share([seconds for seconds, mine in ended if mine is ours], 0.95) for ours in (True, False))
    return first, second


class _Placer:
    """The router of a variant, or conversations dealt in turn."""

    def __init__(self, rates: Rates, variant: Variant) -> None:
        self._rates = rates
        self._variant = variant
        signals = SIGNALS[variant]
        self._signals = Signals("queue" in signals, "kv" in signals)
        tasks = load_tasks()
        self._router = Router(tasks, TaskClassifier(tasks))
        self._sessions: dict[int, str] = {}

    def place(self, turn: Turn, copies: dict[str, _Copy]) -> str:
        """Which copy answers a turn."""
        if self._variant == "in turn":
            return COPIES[turn.session % len(COPIES)]
        weighed = [
            Destination(
                name,
                "small",
                price=price(
                    prompt_tokens=turn.history + turn.prompt,
                    resident_tokens=min(copy.known.get(turn.session, 0), turn.history),
                    output_tokens=_ANSWER_TOKENS,
                    rates=self._rates,
                    load=copy.load,
                    signals=self._signals,
                ),
            )
            for name, copy in copies.items()
        ]
        before = self._sessions.get(turn.session, "")
        chosen = self._router.decide(Judgement(), "small", weighed, Policy(), incumbent=before).route.model
        self._sessions[turn.session] = chosen
        return chosen
