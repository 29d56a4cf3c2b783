"""Audits end to end: the road over the real engine with a tiny model, and a cache in which answers are planted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
from prometheus_client import generate_latest

from headgate.cache.audits.audit import Auditor
from headgate.cache.audits.label_log import LabelLog
from headgate.cache.audits.labels import load_calibration
from headgate.cache.audits.watch import Watch
from headgate.cache.fingerprint import Fingerprinter
from headgate.cache.index import FlatIndex, Vector
from headgate.cache.semantic import SemanticRule
from headgate.cache.store.memory import MemoryStore
from headgate.cache.verdict import StoredChoice
from headgate.engine.engine import Engine
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.settings import EngineSettings, ModelSpec
from headgate.gateway.caching.answers import Answers
from headgate.gateway.caching.audits import Audits
from headgate.gateway.caching.question import CachePolicy
from headgate.gateway.configuration.cache import AuditSection
from headgate.gateway.local.destination import LocalDestination
from headgate.gateway.pipeline import Road
from headgate.gateway.road.request import CacheControl, ChatRequest, Message, Sampling
from headgate.gateway.routing.routes import Routes
from headgate.gateway.teams.keys import Principal
from headgate.gateway.telemetry.metrics.audits import AuditCollector
from headgate.gateway.telemetry.metrics.registry import Metrics
from headgate.gateway.telemetry.record import RequestRecord
from headgate.routing.classes import TaskClassifier
from headgate.routing.tasks import load_tasks

# Half the vocabulary ends an answer, so that a model that knows nothing still comes to an end.
ENDS = Sampling(temperature=0.0, stop_token_ids=tuple(range(160)))
FRANCE, AGAIN, OTHERWISE = (
    "What is the capital of France?",
    "what is the capital of france",
    "What is the Capital of France",
)
SPAIN = "What is the capital of Spain?"


class OneVector:
    """Finds all texts alike."""

    name, dim = "one", 4

    async def sketch(self, _text: str, _scope: str = "") -> bytes:
        return b""

    async def embed(self, text: str, _scope: str = "") -> Vector:  # noqa: ARG002
        return np.array([1.0, 0.0, 0.0, 0.0], dtype=np.float32)


class Site:
    def __init__(self, engine: Engine, policy: AuditSection) -> None:
        self.engine = engine
        self.store = MemoryStore(1 << 20, lambda: 1000.0)
        routes = Routes([LocalDestination(engine.models["m"])], {}, TaskClassifier(load_tasks()))
        calibration = load_calibration()
        auditor = Auditor(0.02, policy.share, 0.05, b"secret", false_accept=calibration.false_accept_bound)
        self.watch = Watch(self.store, auditor, (0.7, 0.8), 0.7, LabelLog(), lambda: 1000.0)
        self.audits = Audits(self.watch, calibration, routes, policy)
        answers = Answers(self.store, Fingerprinter(b"0" * 16), CachePolicy(), lambda: 1000.0)
        answers.understand(OneVector(), FlatIndex(4), SemanticRule(), watch=self.watch)
        self.metrics = Metrics()
        self.metrics.registry.register(AuditCollector(self.audits, engine.models))
        self.road = Road(routes=routes, answers=answers, metrics=self.metrics, audits=self.audits)

    async def ask(self, text: str, **changes: object) -> tuple[str, str, tuple[int, ...], str]:
        """Verdict, text, tokens and key."""
        request = replace(ChatRequest("chat.completions", "m", (Message("user", text),), sampling=ENDS), **changes)
        said, tokens = "", []
        async with self.road.answer(request, Principal("team"), RequestRecord("same id", "e")) as answer:
            while batch := await answer.next_batch():
                said += "".join(chunk.text for chunk in batch)
                tokens += [token for chunk in batch for token in chunk.token_ids]
            return answer.opened.verdict, said, tuple(tokens), answer.opened.key or ""

    async def plant(self, key: str, text: str, tokens: tuple[int, ...]) -> None:
        entry = await self.store.get(key)
        assert entry is not None
        await self.store.put(msgspec.structs.replace(entry, choices=(StoredChoice(text, "stop", tokens),)), frozenset())

    def shows(self, line: str) -> bool:
        return line in generate_latest(self.metrics.registry).decode()


@asynccontextmanager
async def site(checkpoint: Path, policy: AuditSection | None = None, *, start: bool = True) -> AsyncIterator[Site]:
    engine = Engine(EngineSettings(kv_bytes=4 << 20, threads=1))
    engine.load(ModelSpec("m", checkpoint))
    engine.start()
    made = Site(engine, policy or AuditSection())
    if start:
        made.audits.start()
    try:
        yield made
    finally:
        await made.audits.close()
        await asyncio.to_thread(engine.stop)


async def test_a_wrong_answer_in_the_cache_is_found_and_not_served_again(tiny_checkpoint: Path) -> None:
    async with site(tiny_checkpoint) as world:
        verdict, said, _, key = await world.ask(FRANCE)
        assert (verdict, bool(said)) == ("miss", True)
        await world.plant(key, "Berlin, of course", tuple(range(200, 212)))
        # Nobody waits for the audit: the hit is served, wrong as it is.
        assert (await world.ask(AGAIN))[:2] == ("semantic", "Berlin, of course")
        await world.audits.drained()
        assert dict(world.audits.states) == {"drawn": 1, "done": 1}
        assert dict(world.audits.labels) == {("audit", "likelihood", False): 1}
        verdict, said, _, _ = await world.ask(OTHERWISE)
        assert verdict == "near"
        assert said != "Berlin, of course"
        # To its own question it is still the answer that was stored.
        assert (await world.ask(FRANCE))[:2] == ("exact", "Berlin, of course")
        assert world.audits.device_s > 0
        for line in (
            'headgate_cache_audits_total{state="done"} 1.0',
            'headgate_cache_audit_labels_total{kind="likelihood",source="audit",verdict="wrong"} 1.0',
            'headgate_cache_wrong_hit_ratio{bound="labelled"} 1.0',
            "headgate_cache_quarantined_entries 1.0",
            "headgate_cache_audit_threshold 0.7",
            "headgate_cache_audit_breaches_total 0.0",
        ):
            assert world.shows(line), line


async def test_what_the_model_would_write_itself_stays(tiny_checkpoint: Path) -> None:
    async with site(tiny_checkpoint) as world:
        own = await world.ask(AGAIN, cache=CacheControl(no_store=True))
        _, _, _, key = await world.ask(FRANCE)
        await world.plant(key, own[1], own[2])
        for _ in range(3):
            assert (await world.ask(AGAIN))[:2] == ("semantic", own[1])
            await world.audits.drained()
        assert dict(world.audits.labels) == {("audit", "identical", True): 3}
        assert world.watch.quarantined == 0
        # The same words under penalties are not what plain greedy decoding tells; then the model writes it out.
        rare = replace(ENDS, frequency_penalty=0.01)
        written = await world.ask(AGAIN, sampling=rare, cache=CacheControl(no_store=True))
        _, _, _, key = await world.ask(FRANCE, sampling=rare)
        await world.plant(key, written[1], written[2])
        before = world.audits.device_s
        assert (await world.ask(AGAIN, sampling=rare))[0] == "semantic"
        await world.audits.drained()
        assert world.audits.labels["audit", "identical", True] == 4
        assert world.audits.device_s > before


async def test_a_full_queue_drops_audits_and_says_so(tiny_checkpoint: Path) -> None:
    async with site(tiny_checkpoint, AuditSection(queue=2), start=False) as world:
        await world.ask(FRANCE)
        for _ in range(5):
            assert (await world.ask(AGAIN))[0] == "semantic"
        assert dict(world.audits.states) == {"drawn": 5, "dropped": 3}
        # Audits without a label count as possibly wrong above and as right below.
        assert (world.watch.interval().labels, world.watch.interval().audited) == (0, 5)
        world.audits.start()
        await world.audits.drained()
        assert world.audits.states["done"] + world.audits.states["undecided"] == 2


async def test_while_users_wait_only_the_share_is_audited(tiny_checkpoint: Path) -> None:
    async with site(tiny_checkpoint, AuditSection(share=1e-9), start=False) as world:
        await world.ask(FRANCE)
        await world.ask(AGAIN)
        assert dict(world.audits.states) == {"drawn": 1}
        model = world.engine.models["m"]
        forever = SamplingParams(temperature=0.0, max_tokens=480, ignore_eos=True)
        async with aclosing(model.generate("user", (5, 6, 7), forever)) as stream:
            await anext(stream)
            assert not LocalDestination(model).idle
            await world.ask(AGAIN)
        assert dict(world.audits.states) == {"drawn": 1}
        assert world.watch.interval().hits == 2


async def test_a_near_neighbour_is_labelled_by_the_answer_that_is_made_anyway(tiny_checkpoint: Path) -> None:
    async with site(tiny_checkpoint) as world:
        own = await world.ask(SPAIN, cache=CacheControl(no_store=True))
        _, _, _, key = await world.ask(FRANCE)
        await world.plant(key, own[1], own[2])
        assert (await world.ask(SPAIN))[0] == "near"
        assert dict(world.audits.labels) == {("near", "identical", True): 1}
        await world.audits.drained()
        (label,) = world.watch.log
        assert (label.source, label.right, label.entry_key) == ("near", True, key)
        assert label.against not in (None, "similarity")
        assert world.watch.interval().hits == 0
        assert world.audits.device_s == 0


async def test_audits_can_be_switched_off(tiny_checkpoint: Path) -> None:
    async with site(tiny_checkpoint, AuditSection(enabled=False)) as world:
        await world.ask(FRANCE)
        assert (await world.ask(AGAIN))[0] == "semantic"
        assert dict(world.audits.states) == {}
        assert world.watch.interval().hits == 0


async def test_an_audit_that_fails_is_counted_and_the_next_one_is_made(tiny_checkpoint: Path) -> None:
    async with site(tiny_checkpoint) as world:
        _, _, _, key = await world.ask(FRANCE)
        # More tokens than the model's context has room for.
        await world.plant(key, "too long", (200,) * 600)
        await world.ask(AGAIN)
        await world.audits.drained()
        await world.plant(key, "Berlin, of course", tuple(range(200, 212)))
        await world.ask(AGAIN)
        await world.audits.drained()
        assert dict(world.audits.states) == {"drawn": 2, "failed": 1, "done": 1}
