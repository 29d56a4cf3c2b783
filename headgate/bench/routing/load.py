"""Time and quality under load: the router with its price signals, and without the queue, the cache, or both.

Conversations arrive at random (Poisson) whether or not earlier ones have been answered, at shares of the pair's
capacity. Every variant gets the same arrivals. Each request walks the server's own road, past HTTP and answer cache.
"""

from __future__ import annotations

import asyncio
import math
import random
import statistics
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table

from headgate.cache.fingerprint import Fingerprinter
from headgate.engine.demo import checkpoint
from headgate.engine.demo.tasks import FAMILIES, Family, Sample, each_cell, generate, grade
from headgate.engine.engine import Engine, EngineSettings, ModelSpec
from headgate.gateway.answers import Answers
from headgate.gateway.local_destination import LocalDestination
from headgate.gateway.pipeline import Road
from headgate.gateway.question import CachePolicy
from headgate.gateway.request import ChatRequest, Message
from headgate.gateway.routes import Routes
from headgate.gateway.routing_settings import PriceSection, RoutingSection
from headgate.gateway.settings import ModelSection, Settings
from headgate.gateway.teams.keys import Principal
from headgate.gateway.telemetry.metrics import Metrics
from headgate.gateway.telemetry.record import RequestRecord
from headgate.routing.classes import TaskClassifier
from headgate.routing.tasks import load_tasks
from headgate.routing.types import Quality, QualityModel, RouteFeatures, Tier

Kind = tuple[str, int]
"""Family and level."""
Devices = Literal["one", "two"]
"""Whether both models take turns on one device, or each has its own: here, one thread each."""
Signal = Literal["queue", "kv"]
Variant = Literal["both", "no queue", "no kv", "neither"]
VARIANTS: Mapping[Variant, Sequence[Signal]] = {
    "both": ("queue", "kv"),
    "no queue": ("kv",),
    "no kv": ("queue",),
    "neither": (),
}
LOADS = (0.3, 0.5, 0.7, 0.85, 0.95)
_TURNS = 3
_TURN_GAP_S = 0.3
_TRIED = 8
"""Tasks of each family and level that tell how often a model is right."""
_MANY = 96
"""Requests that are there at once when the capacity is measured."""
_SYSTEM = "You are a helpful assistant. Answer briefly."
_NAMES: Mapping[str, Tier] = {"student": "small", "teacher": "large"}


@dataclass(frozen=True, slots=True)
class Arrival:
    """One turn of a conversation, and when it comes, in seconds from the start."""

    at: float
    session: str
    sample: Sample
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Answered:
    """What became of an arrival. `seconds`: from its arrival to its last token."""

    seconds: float
    right: bool
    model: str
    route: str
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class LoadFigure:
    """One variant at one load. Times are seconds; `share` is of the capacity."""

    devices: Devices
    load: float
    variant: Variant
    requests: int
    p50_s: float
    p95_s: float
    right: float
    large: float
    by_price: float
    """Share of the requests that the small model was good enough for and the price sent to the large one."""
    cached: float
    """Mean prompt tokens that were not computed again."""


@dataclass(frozen=True, slots=True)
class LoadTable:
    """All figures. `capacity`: requests a second of each set-up, with all of them there at once."""

    capacity: Mapping[Devices, float]
    seconds: float
    figures: tuple[LoadFigure, ...]

    def gain(self, devices: Devices, load: float, variant: Variant = "neither") -> float:
        """By what share the p95 of all signals is below that of a variant."""
        by = {f.variant: f.p95_s for f in self.figures if (f.devices, f.load) == (devices, load)}
        return 1 - by["both"] / by[variant]

    def as_json(self) -> dict[str, object]:
        """Plain values."""
        return asdict(self)


def load_table(
    quality: QualityModel | None = None,
    *,
    threshold: float = 0.5,
    loads: Sequence[float] = LOADS,
    devices: Sequence[Devices] = ("two", "one"),
    seconds: float = 3.0,
    seed: int = 0,
    folders: Mapping[str, Path] | None = None,
    least: int = 24,
    new_tokens: int = 160,
    tell: Callable[[str], None] = lambda _: None,
) -> LoadTable:
    """Play the same arrivals with each variant, at each load, on each set-up.

    Args:
        quality: of the pair; None measures how often each model is right in each family and level of the calibration
            split, which takes some seconds.
        threshold: on the small model's quality.
        loads: shares of the capacity.
        devices: set-ups.
        seconds: over which requests arrive, per variant and load.
        seed: of tasks and arrivals.
        folders: checkpoints by `student` and `teacher`; None: the bundled pair.
        least: requests, per variant and load, however short `seconds` is.
        new_tokens: most of an answer.
        tell: is told what is being done.
    """
    play = _Play(quality, threshold, loads, seconds, seed, least, new_tokens, tell)
    found = folders or {name: checkpoint(name) for name in ("student", "teacher")}
    capacity: dict[Devices, float] = {}
    figures: list[LoadFigure] = []
    for one in devices:
        capacity[one], more = asyncio.run(play.run(one, found))
        figures.extend(more)
    return LoadTable(capacity, seconds, tuple(figures))


class FamilyQuality:
    """How often each model is right on tasks of a family and level, by what it answered to others of the kind."""

    wants_state = False

    def __init__(self, rates: Mapping[Kind, tuple[float, float]], kinds: Mapping[str, Kind]) -> None:
        """`rates` of small and large by family and level; `kinds`: the same by the text of what will be asked."""
        self._rates = rates
        self._kinds = kinds

    def estimate(self, features: RouteFeatures, task: str) -> Quality:  # noqa: ARG002
        """That of the text's kind."""
        small, large = self._rates[self._kinds[features.text]]
        return Quality(small, large, "family")


def arrivals(count: int, rate: float, seed: int) -> list[Arrival]:
    """`count` turns of conversations that come at random, `rate` a second; the earlier turns are answered rightly.

    With an infinite rate all are there at once.
    """
    draw = random.Random(f"arrivals/{seed}")
    samples = generate(count, seed=seed, split="test", families=_families(), system=0.0, turns=0.0)
    found: list[Arrival] = []
    start, session = 0.0, 0
    while len(found) < count:
        start += draw.expovariate(rate / _TURNS) if rate < math.inf else 0.0
        session += 1
        at, before = start, [Message("system", _SYSTEM)]
        for _ in range(min(_TURNS, count - len(found))):
            sample = next(samples)
            before.append(Message("user", sample.prompt))
            found.append(Arrival(at, f"{seed}-{session}", sample, tuple(before)))
            before.append(Message("assistant", sample.answer))
            at += draw.expovariate(1 / _TURN_GAP_S) if rate < math.inf else 0.0
    return sorted(found, key=lambda arrival: arrival.at)


class _Play:
    """The arrivals, and what plays them."""

    def __init__(
        self,
        quality: QualityModel | None,
        threshold: float,
        loads: Sequence[float],
        seconds: float,
        seed: int,
        least: int,
        new_tokens: int,
        tell: Callable[[str], None],
    ) -> None:
        self._quality = quality
        self._threshold = threshold
        self._loads = loads
        self._seconds = seconds
        self._seed = seed
        self._least = least
        self._new_tokens = new_tokens
        self._tell = tell
        self._classifier = TaskClassifier(load_tasks())
        self._classifier.fit()
        self._kinds: dict[str, Kind] = {}

    async def run(self, devices: Devices, folders: Mapping[str, Path]) -> tuple[float, list[LoadFigure]]:
        async with _models(devices, folders) as models:
            for model in models:
                await model.measure()
            quality = self._quality or await self._measured(models)
            self._tell(f"{devices}: capacity")
            # Twice: the first round is for caches of the machine and for the rates.
            for round_ in range(2):
                many = self._arrivals(min(_MANY, 4 * self._least), math.inf, self._seed - 1 - round_)
                started = time.perf_counter()
                await self._variant(models, quality, "both", many, f"capacity-{round_}")
                capacity = len(many) / (time.perf_counter() - started)
            figures = []
            for load in self._loads:
                rate = load * capacity
                count = max(self._least, int(rate * self._seconds))
                come = self._arrivals(count, rate, self._seed)
                for variant in VARIANTS:
                    self._tell(f"{devices}: load {load:g}, {variant}, {count} requests")
                    answered = await self._variant(models, quality, variant, come, f"{load}-{variant}")
                    figures.append(_figure(devices, load, variant, answered))
            return capacity, figures

    def _arrivals(self, count: int, rate: float, seed: int) -> list[Arrival]:
        come = arrivals(count, rate, seed)
        self._kinds |= {a.sample.prompt: (a.sample.family, a.sample.difficulty) for a in come}
        return come

    async def _measured(self, models: Sequence[LocalDestination]) -> FamilyQuality:
        self._tell("how often each model is right, by family and level")
        # Of every kind alike: one that was never tried could not be estimated.
        samples = each_cell(_TRIED, seed=self._seed, split="calibration", families=_families())
        asked = [Arrival(0.0, str(at), s, (Message("user", s.prompt),)) for at, s in enumerate(samples)]
        right: dict[Kind, tuple[list[bool], list[bool]]] = {}
        tiers: tuple[Tier, Tier] = ("small", "large")
        for at, tier in enumerate(tiers):
            routes = _routes(models, self._classifier, None, self._threshold, ())
            for first in range(0, len(asked), 32):
                part = asked[first : first + 32]
                answered = await self._ask(routes, part, "rates", tier)
                for arrival, answer in zip(part, answered, strict=True):
                    kind = arrival.sample.family, arrival.sample.difficulty
                    right.setdefault(kind, ([], []))[at].append(answer.right)
        return FamilyQuality(
            {kind: (_rate(small), _rate(large)) for kind, (small, large) in right.items()}, self._kinds
        )

    async def _variant(
        self,
        models: Sequence[LocalDestination],
        quality: QualityModel,
        variant: Variant,
        come: Sequence[Arrival],
        team: str,
    ) -> list[Answered]:
        return await self._ask(
            _routes(models, self._classifier, quality, self._threshold, VARIANTS[variant]), come, team, "auto"
        )

    async def _ask(self, routes: Routes, come: Sequence[Arrival], team: str, model: str) -> list[Answered]:
        # A team of its own: nobody finds the blocks of the variant before.
        road = Road(routes=routes, answers=Answers(None, Fingerprinter(b"0" * 16), CachePolicy()), metrics=Metrics())
        principal = Principal(team)
        started = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(_one(road, principal, arrival, model, started, self._new_tokens)) for arrival in come
            ]
        return [task.result() for task in tasks]


@asynccontextmanager
async def _models(devices: Devices, folders: Mapping[str, Path]) -> AsyncIterator[list[LocalDestination]]:
    """The pair, loaded: in one engine with all threads, or in two with a thread each."""
    groups = [list(_NAMES)] if devices == "one" else [[name] for name in _NAMES]
    found: list[LocalDestination] = []
    async with AsyncExitStack() as stack:
        for at, names in enumerate(groups):
            engine = Engine(EngineSettings(threads=None if devices == "one" else 1))
            engine.load(*(ModelSpec(name, folders[name]) for name in names))
            engine.start()
            stack.push_async_callback(asyncio.to_thread, engine.stop)
            found.extend(LocalDestination(engine.models[name], device=str(at)) for name in names)
        yield found


def _routes(
    models: Sequence[LocalDestination],
    classifier: TaskClassifier,
    quality: QualityModel | None,
    threshold: float,
    signals: Sequence[Signal],
) -> Routes:
    settings = Settings(
        models=tuple(ModelSection(id=model.id, path="bench", tier=_NAMES[model.id]) for model in models),
        routing=RoutingSection(threshold=threshold, price=PriceSection(signals=frozenset(signals))),
    )
    return Routes(models, _NAMES, classifier, settings, quality=quality)


async def _one(road: Road, principal: Principal, arrival: Arrival, model: str, started: float, most: int) -> Answered:
    due = started + arrival.at
    if (pause := due - time.perf_counter()) > 0:
        await asyncio.sleep(pause)
    request = ChatRequest("chat.completions", model, arrival.messages, max_tokens=most, session=arrival.session)
    record = RequestRecord(arrival.session, "bench")
    text = ""
    async with road.answer(request, principal, record) as answer:
        while batch := await answer.next_batch():
            text += "".join(chunk.text for chunk in batch)
        cached = answer.outcome.usage.cached_tokens
    seconds = time.perf_counter() - (due if arrival.at else started)
    return Answered(seconds, grade(arrival.sample, text), record.model, record.route, cached)


def _figure(devices: Devices, load: float, variant: Variant, answered: Sequence[Answered]) -> LoadFigure:
    times = sorted(a.seconds for a in answered)
    count = len(times)
    large = [a for a in answered if _NAMES[a.model] == "large"]
    return LoadFigure(
        devices,
        load,
        variant,
        count,
        statistics.median(times),
        times[min(count - 1, math.ceil(0.95 * count) - 1)],
        sum(a.right for a in answered) / count,
        len(large) / count,
        sum(a.route == "price" for a in large) / count,
        statistics.fmean(a.cached_tokens for a in answered),
    )


def print_load(console: Console, table: LoadTable) -> None:
    """One table per set-up."""
    for devices, capacity in table.capacity.items():
        where = "one device for both" if devices == "one" else "a device each"
        shown = Table(title=f"load, {where}: capacity {capacity:.1f} requests/s, arrivals over {table.seconds:g} s")
        for name in ("load", "signals", "requests", "p50 s", "p95 s", "right %", "large %", "by price %", "cached"):
            shown.add_column(name, justify="left" if name == "signals" else "right")
        for f in table.figures:
            if f.devices == devices:
                shown.add_row(
                    f"{f.load:g}",
                    f.variant,
                    str(f.requests),
                    f"{f.p50_s:.3f}",
                    f"{f.p95_s:.3f}",
                    f"{100 * f.right:.1f}",
                    f"{100 * f.large:.0f}",
                    f"{100 * f.by_price:.0f}",
                    f"{f.cached:.0f}",
                    end_section=f.variant == "neither",
                )
        console.print(shown)
        loads = dict.fromkeys(f.load for f in table.figures if f.devices == devices)
        told = ", ".join(f"{100 * table.gain(devices, load):+.0f} % at {load:g}" for load in loads)
        console.print(f"p95 that both signals save against neither: {told}")


def _families() -> list[Family]:
    """Those whose prompts need no tools, which the gateway does not take."""
    return [family for family in FAMILIES if family.name != "calls"]


def _rate(right: Sequence[bool]) -> float:
    """With one right and one wrong answer assumed beforehand."""
    return (sum(right) + 1) / (len(right) + 2)
