"""A road over fakes, for tests of what happens along it."""

from __future__ import annotations

import time
from collections.abc import Callable

from gateway_fakes import OUTCOME, FakeDestination
from prometheus_client import generate_latest

from headgate.cache.fingerprint import Fingerprinter
from headgate.cache.quota import InsertShare
from headgate.cache.store.memory import MemoryStore
from headgate.cache.verdict import Entry
from headgate.gateway.caching.answers import Answers
from headgate.gateway.caching.question import CachePolicy
from headgate.gateway.pipeline import Road
from headgate.gateway.road.request import ChatRequest, Message
from headgate.gateway.routing.policies import Cascades
from headgate.gateway.routing.routes import Routes
from headgate.gateway.settings import Settings
from headgate.gateway.teams.accounts import Accounts
from headgate.gateway.teams.admission import Admission
from headgate.gateway.teams.keys import Principal
from headgate.gateway.telemetry.metrics.registry import Metrics
from headgate.gateway.telemetry.metrics.routes import BreakerCollector
from headgate.gateway.telemetry.metrics.usage import UsageMetrics
from headgate.gateway.telemetry.record import RequestRecord
from headgate.routing.classes import TaskClassifier
from headgate.routing.tasks import load_tasks
from headgate.routing.types import QualityModel

ASK = ChatRequest("chat.completions", "fake", (Message("user", "What is two plus two?"),))
# Fitted by the first test that needs it, and the same for all.
CLASSIFIER = TaskClassifier(load_tasks())
RED, BLUE = Principal("red"), Principal("blue")


class Site:
    """A road over fakes, and what can be seen of it from outside."""

    def __init__(
        self,
        *destinations: FakeDestination,
        cached: bool = True,
        policy: CachePolicy | None = None,
        share: InsertShare | None = None,
        settings: Settings | None = None,
        quality: QualityModel | None = None,
        cascades: Cascades | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock`: of the road alone; what surrounds it goes by `now`."""
        self.now = 0.0
        self.metrics = Metrics()
        tiers = {d.id: tier for d in destinations for tier in ("small", "large") if d.id.startswith(tier)}
        learned = {"quality": quality, "cascades": cascades}
        self.routes = Routes(destinations, tiers, CLASSIFIER, settings, clock=lambda: self.now, **learned)
        self.metrics.registry.register(BreakerCollector(lambda: self.routes.breakers))
        self.store = MemoryStore(1_000_000, lambda: self.now)
        self.answers = Answers(
            self.store if cached else None,
            Fingerprinter(b"0" * 16),
            policy or CachePolicy(ttl_s=60.0),
            clock=lambda: self.now,
            share=share,
        )
        usage = UsageMetrics(self.metrics.registry)
        self.admission = Admission(accounts=Accounts(metrics=usage))
        self.road = Road(
            routes=self.routes,
            answers=self.answers,
            metrics=self.metrics,
            admission=self.admission,
            clock=clock,
        )

    def watch_store(self) -> set[str]:
        """From now on collects the keys that anybody asks the store for."""
        asked: set[str] = set()
        get = self.store.get

        async def watched(key: str) -> Entry | None:
            asked.add(key)
            return await get(key)

        self.store.get = watched  # type: ignore[method-assign]
        return asked

    async def ask(self, request: ChatRequest = ASK, principal: Principal = RED) -> tuple[str, str, RequestRecord]:
        """The joined text, the verdict and the record."""
        record = RequestRecord("id", "/v1/chat/completions")
        text = ""
        async with self.road.answer(request, principal, record) as answer:
            while batch := await answer.next_batch():
                text += "".join(chunk.text for chunk in batch)
            assert answer.outcome.usage == OUTCOME.usage or record.verdict != "miss"
        return text, record.verdict, record

    def count(self, line: str) -> bool:
        return line in generate_latest(self.metrics.registry).decode()
