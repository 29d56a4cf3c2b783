"""Time and quality under load: the router with its price signals, and without the queue, the cache, or both.

Conversations arrive at random (Poisson) whether or not earlier ones have been answered, at shares of the set-up's
capacity. Every variant gets the same arrivals. Each request walks the server's own road, past HTTP and answer cache.
"""

from __future__ import annotations

import asyncio
import math
import statistics
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tokenizers import Tokenizer

from headgate.bench.checkpoints import write_shape
from headgate.bench.routing.arrivals import Arrival, arrivals, families
from headgate.bench.routing.load_report import LoadFigure, LoadTable
from headgate.bench.routing.set_ups import SETUPS, SIGNALS, SLOW, Devices, SetUp, Variant
from headgate.bench.serving.servers import no_settings
from headgate.cache.fingerprint import Fingerprinter
from headgate.engine.demo import checkpoint
from headgate.engine.demo.tasks import each_cell, grade
from headgate.engine.demo.tokenizer import load_tokenizer
from headgate.engine.engine import Engine
from headgate.engine.settings import EngineSettings, ModelSpec
from headgate.gateway.caching.answers import Answers
from headgate.gateway.caching.question import CachePolicy
from headgate.gateway.configuration.models import ModelSection
from headgate.gateway.configuration.routing import PriceSection, RoutingSection
from headgate.gateway.local.destination import LocalDestination
from headgate.gateway.pipeline import Road
from headgate.gateway.road.request import ChatRequest, Message
from headgate.gateway.routing.routes import Routes
from headgate.gateway.settings import Settings
from headgate.gateway.teams.keys import Principal
from headgate.gateway.telemetry.metrics.registry import Metrics
from headgate.gateway.telemetry.record import RequestRecord
from headgate.routing.classes import TaskClassifier
from headgate.routing.tasks import load_tasks
from headgate.routing.types import Quality, QualityModel, RouteFeatures

Kind = tuple[str, int]
"""Family and level."""
LOADS = (0.3, 0.5, 0.7, 0.85, 0.95)
_TRIED = 8
"""Tasks of each family and level that tell how often a model is right."""
_MANY = 96
"""Requests that are there at once when the capacity is measured."""
_THRESHOLD = 0.5
"""On the small model's quality."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What became of an arrival. `seconds`: from its arrival to its last token."""

    seconds: float
    right: bool
    model: str
    route: str
    cached_tokens: int


def load_table(
    quality: QualityModel | None = None,
    *,
    loads: Sequence[float] = LOADS,
    devices: Sequence[Devices] = ("two", "copies"),
    seconds: float | None = None,
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
        loads: shares of the capacity.
        devices: set-ups.
        seconds: over which requests arrive, per variant and load; None: what the set-up says.
        seed: of tasks and arrivals.
        folders: checkpoints by `student`, `teacher` and `slow`; None: the bundled pair, and random weights.
        least: requests, per variant and load, however short `seconds` is.
        new_tokens: most of an answer.
        tell: is told what is being done.
    """
    play = _Play(quality, loads, seconds, seed, least, new_tokens, tell)
    play.classifier.fit()
    capacity: dict[Devices, float] = {}
    figures: list[LoadFigure] = []
    with TemporaryDirectory() as scratch:
        found = folders or {
            **{name: checkpoint(name) for name in ("student", "teacher")},
            "slow": write_shape("slow", SLOW, Path(scratch)),
        }
        for one in devices:
            capacity[one], more = asyncio.run(play.run(one, found))
            figures.extend(more)
    return LoadTable(capacity, {one: play.seconds(one) for one in devices}, tuple(figures))


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


@dataclass(slots=True)
class _Play:
    """The arrivals, and what plays them; see `load_table`."""

    quality: QualityModel | None
    loads: Sequence[float]
    given_seconds: float | None
    seed: int
    least: int
    new_tokens: int
    tell: Callable[[str], None]
    classifier: TaskClassifier = field(default_factory=lambda: TaskClassifier(load_tasks()))
    tokenizer: Tokenizer = field(default_factory=lambda: load_tokenizer(checkpoint("student")))
    kinds: dict[str, Kind] = field(default_factory=dict)

    def seconds(self, devices: Devices) -> float:
        """Over which requests arrive."""
        return SETUPS[devices].seconds if self.given_seconds is None else self.given_seconds

    async def run(self, devices: Devices, folders: Mapping[str, Path]) -> tuple[float, list[LoadFigure]]:
        setup = SETUPS[devices]
        async with _models(setup, folders) as models:
            for model in models:
                await model.measure()
            quality = self.quality
            if setup.asks == "auto" and quality is None:
                quality = await self._measured(setup, models)
            self.tell(f"{devices}: capacity")
            evenly: Variant = "in turn" if setup.others else "both"
            # Twice: the first round is for caches of the machine and for the rates.
            for round_ in range(2):
                many = self._arrivals(min(_MANY, 4 * self.least), math.inf, self.seed - 1 - round_)
                started = time.perf_counter()
                await self._ask(_Round(models, setup, quality, evenly, f"capacity-{round_}"), many)
                capacity = len(many) / (time.perf_counter() - started)
            figures = []
            for load in self.loads:
                rate = load * capacity
                count = max(self.least, int(rate * self.seconds(devices)))
                theirs = int(count * setup.others)
                come = self._arrivals(count - theirs, rate * (1 - setup.others), self.seed)
                others = self._arrivals(theirs, rate * setup.others, self.seed + 1) if theirs else []
                for variant in setup.variants:
                    self.tell(f"{devices}: load {load:g}, {variant}, {count} requests")
                    play = _Round(models, setup, quality, variant, f"{load}-{variant}")
                    answered = await self._ask(play, come, others)
                    figures.append(_figure(devices, load, variant, answered[: len(come)], answered[len(come) :]))
            return capacity, figures

    def _arrivals(self, count: int, rate: float, seed: int) -> list[Arrival]:
        come = arrivals(count, rate, seed)
        self.kinds |= {a.sample.prompt: (a.sample.family, a.sample.difficulty) for a in come}
        return come

    async def _measured(self, setup: SetUp, models: Sequence[LocalDestination]) -> FamilyQuality:
        self.tell("how often each model is right, by family and level")
        # Of every kind alike: one that was never tried could not be estimated.
        samples = each_cell(_TRIED, seed=self.seed, split="calibration", families=families())
        asked = [Arrival(0.0, str(at), s, (Message("user", s.prompt),)) for at, s in enumerate(samples)]
        right: dict[Kind, tuple[list[bool], list[bool]]] = {}
        for at, name in enumerate(setup.models):
            for first in range(0, len(asked), 32):
                part = asked[first : first + 32]
                answered = await self._ask(_Round(models, setup, None, "neither", "rates", name), part)
                for arrival, answer in zip(part, answered, strict=True):
                    kind = arrival.sample.family, arrival.sample.difficulty
                    right.setdefault(kind, ([], []))[at].append(answer.right)
        return FamilyQuality({kind: (_rate(small), _rate(large)) for kind, (small, large) in right.items()}, self.kinds)

    async def _ask(self, play: _Round, come: Sequence[Arrival], others: Sequence[Arrival] = ()) -> list[Answered]:
        """What becomes of the arrivals, and then of the other team's."""
        routes = _routes(play, self.classifier)
        road = Road(routes=routes, answers=Answers(None, Fingerprinter(b"0" * 16), CachePolicy()), metrics=Metrics())
        # Teams of their own: nobody finds the blocks of the variant before.
        own, other = Principal(play.team), Principal(f"others-{play.team}")
        asked = [(own, arrival, play.asks(arrival)) for arrival in come]
        asked += [(other, arrival, play.setup.first) for arrival in others]
        started = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(_one(road, who, arrival, model, started, self._most(arrival, play.setup)))
                for who, arrival, model in asked
            ]
        return [task.result() for task in tasks]

    def _most(self, arrival: Arrival, setup: SetUp) -> int:
        """Tokens of the answer."""
        if setup.says:
            return self.new_tokens
        return min(self.new_tokens, len(self.tokenizer.encode(arrival.sample.written).ids))


@dataclass(frozen=True, slots=True)
class _Round:
    """One variant at one load, asked by a team. `named`: the model it asks instead of the set-up's."""

    models: Sequence[LocalDestination]
    setup: SetUp
    quality: QualityModel | None
    variant: Variant
    team: str
    named: str = ""

    def asks(self, arrival: Arrival) -> str:
        """The model that a request names."""
        names = list(self.setup.models)
        if self.variant == "in turn":
            return names[int(arrival.session.rpartition("-")[2]) % len(names)]
        return self.named or self.setup.asks


@asynccontextmanager
async def _models(setup: SetUp, folders: Mapping[str, Path]) -> AsyncIterator[list[LocalDestination]]:
    """The models, loaded: each in an engine with a thread."""
    found: list[LocalDestination] = []
    async with AsyncExitStack() as stack:
        for name, (folder, _) in setup.models.items():
            engine = Engine(EngineSettings(threads=1))
            engine.load(ModelSpec(name, folders[folder]))
            engine.start()
            stack.push_async_callback(asyncio.to_thread, engine.stop)
            found.append(LocalDestination(engine.models[name], device=name))
        yield found


def _routes(play: _Round, classifier: TaskClassifier) -> Routes:
    tiers = {name: tier for name, (_, tier) in play.setup.models.items()}
    signals = frozenset(SIGNALS[play.variant])
    with no_settings():
        settings = Settings(
            models=tuple(ModelSection(id=name, path="bench", tier=tier) for name, tier in tiers.items()),
            routing=RoutingSection(threshold=_THRESHOLD, price=PriceSection(signals=signals)),
        )
    return Routes(play.models, tiers, classifier, settings, quality=play.quality)


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


def _figure(
    devices: Devices, load: float, variant: Variant, answered: Sequence[Answered], others: Sequence[Answered]
) -> LoadFigure:
    count = len(answered)
    second = [a for a in answered if a.model == SETUPS[devices].second]
    return LoadFigure(
        devices,
        load,
        variant,
        count,
        statistics.median(a.seconds for a in answered),
        _p95(answered),
        sum(a.right for a in answered) / count if SETUPS[devices].says else None,
        len(second) / count,
        sum(a.route == "price" for a in second) / count,
        statistics.fmean(a.cached_tokens for a in answered),
        _p95(others) if others else None,
    )


def _p95(answered: Sequence[Answered]) -> float:
    times = sorted(a.seconds for a in answered)
    return times[min(len(times) - 1, math.ceil(0.95 * len(times)) - 1)]


def _rate(right: Sequence[bool]) -> float:
    """With one right and one wrong answer assumed beforehand."""
    return (sum(right) + 1) / (len(right) + 2)
