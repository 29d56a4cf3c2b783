"""Outcomes to learn from: whose requests are compared, what is written of them, and what is not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from gateway_fakes import OUTCOME, FakeDestination
from road_site import ASK, Site

from headgate.engine.front.judged import Score
from headgate.engine.request import Finish, TokenScore
from headgate.gateway.configuration.routing import PolicySection
from headgate.gateway.pipeline import Road
from headgate.gateway.road.attachments import Picture
from headgate.gateway.road.destinations import Prepared
from headgate.gateway.road.request import Choice, Chunk, Message
from headgate.gateway.routing.comparisons import Comparisons, compared_pair
from headgate.gateway.routing.lessons import Pair
from headgate.gateway.settings import Settings
from headgate.gateway.teams.keys import Principal
from headgate.gateway.teams.sections import TeamPolicy
from headgate.gateway.telemetry.record import RequestRecord
from headgate.gateway.wire.errors import server_error
from headgate.routing.outcome_log import OutcomeLog, read_log
from headgate.routing.outcomes import Attempt
from headgate.routing.quality_features import SURFACE
from headgate.routing.types import Vector

PAIR = Pair("small-1", "large-1", "of-small", "of-large", "embedder-1")
QUESTION = "Hello! How much is two plus two?"
WILLING = Principal("willing", policy=TeamPolicy(routing=PolicySection(outcomes=True)))


class OneVector:
    """Finds all texts alike."""

    name, dim = "embedder-1", 4

    async def embed(self, _text: str, _scope: str = "") -> Vector:
        return np.array([1.0, 0.0, 0.0, 0.0], np.float32)

    async def sketch(self, _text: str, _scope: str = "") -> bytes:
        return b""

    async def embed_all(self, texts: Sequence[str], _scope: str = "") -> list[Vector]:
        return [await self.embed(text) for text in texts]


@dataclass
class Examined(FakeDestination):
    """One that can be asked what it thinks of an answer."""

    idle: bool = True

    async def encode(self, _text: str) -> tuple[int, ...]:
        return (1,)

    async def score(
        self, _prepared: Prepared, continuation: tuple[int, ...], _request_id: str, _principal: Principal
    ) -> Score:
        tokens = tuple(TokenScore(token, -0.1 * (1 + at), True) for at, token in enumerate(continuation))
        return Score(tokens, Finish("stop", 5, 0, 0.1, 0.0, 0.0))


def says(name: str, text: str) -> Examined:
    return Examined(name, pieces=(Chunk(0, text, finish_reason="stop", token_ids=(1, 2)),))


@asynccontextmanager
async def compared(
    path: Path, small: Examined, large: Examined, *, share: float = 1.0, allow: bool = False
) -> AsyncIterator[tuple[Site, Comparisons]]:
    models = [{"id": one.id, "path": "x", "tier": one.id.split("-")[0]} for one in (small, large)]
    settings = Settings(models=models, routing={"outcomes": {"allow": allow}})
    site = Site(small, large, cached=False, settings=settings)
    await site.routes.understand(OneVector())
    made = Comparisons(site.routes, PAIR, OutcomeLog(path, 1 << 20), share, draw=lambda: 0.5, clock=lambda: 7.0)
    site.road = Road(routes=site.routes, answers=site.answers, metrics=site.metrics, comparisons=made)
    made.start()
    try:
        yield site, made
    finally:
        await made.close()


async def asked(site: Site, who: Principal, model: str = "auto") -> None:
    request = replace(ASK, model=model, messages=(Message("user", QUESTION),))
    async with site.road.answer(request, who, RequestRecord("id", "e")) as answer:
        while await answer.next_batch():
            pass


@pytest.mark.parametrize(("other", "right"), [("4.", True), ("5", False)])
async def test_the_other_model_answers_too_and_no_word_is_written(tmp_path: Path, other: str, right: bool) -> None:
    path = tmp_path / "log" / "outcomes.jsonl"
    small, large = says("small-1", "4"), says("large-1", other)
    async with compared(path, small, large) as (site, made):
        await asked(site, WILLING)
        await made.drained()
        assert dict(made.states) == {"drawn": 1, "logged": 1}
    assert small.begun + large.begun == 2
    (line,) = read_log(path)
    assert (line.one.right, line.other.right) == (right, True)
    assert (line.small, line.large, line.embedder) == ("of-small", "of-large", "embedder-1")
    assert (line.team, line.at) == ("willing", 7)
    assert line.rows.shape == (1, 4 + len(SURFACE))
    assert line.rows[0, 0] == 1.0
    assert (line.confidence.least, line.confidence.q50) == pytest.approx((-0.2, -0.1))
    assert (line.one.device_s, line.other.device_s) == (0.5, 0.5)
    written = path.read_text()
    assert not any(word in written for word in ("Hello", "much", "plus"))


@pytest.mark.parametrize("answering", ["small-1", "large-1"])
async def test_what_a_user_says_of_an_answer_is_a_lesson_about_who_gave_it(tmp_path: Path, answering: str) -> None:
    path = tmp_path / "outcomes.jsonl"
    async with compared(path, says("small-1", "4"), says("large-1", "4"), share=0.0) as (site, made):
        plan = await site.routes.plan(replace(ASK, model="auto", messages=(Message("user", QUESTION),)), None, WILLING)
        assert not await made.lessons.rated("willing", answering, plan.features, 1.0, "ann")
        choice = Choice(0, "4", (), "stop", (1, 2))
        made.answered(replace(ASK, model="auto"), WILLING, plan, answering, [choice], OUTCOME)
        assert not path.exists()
        for score in (0.4, 0.5):
            assert await made.lessons.rated("willing", answering, plan.features, score, "ann")
    bad, good = read_log(path)
    assert (bad.voice, bad.features, bad.team, bad.confidence) == ("ann", plan.features, "willing", None)
    for line, right in ((bad, False), (good, True)):
        tried, untried = (line.one, line.other) if answering == "small-1" else (line.other, line.one)
        assert tried == Attempt(right, 2, OUTCOME.device_s)
        assert untried is None
    assert bad.rows.shape == (1, 4 + len(SURFACE))


async def test_an_answer_to_a_picture_teaches_nothing(tmp_path: Path) -> None:
    async with compared(tmp_path / "outcomes.jsonl", says("small-1", "4"), says("large-1", "5")) as (site, made):
        plan = await site.routes.plan(replace(ASK, model="auto", messages=(Message("user", QUESTION),)), None, WILLING)
        parts = (QUESTION, Picture("data:image/png;base64,QUJD"))
        for message, drawn in ((Message("user", QUESTION, parts=parts), 0), (Message("user", QUESTION), 1)):
            request = replace(ASK, model="auto", messages=(message,))
            made.answered(request, WILLING, plan, "small-1", [Choice(0, "4", (), "stop", (1, 2))], OUTCOME)
            assert made.states.get("drawn", 0) == drawn
        assert await made.lessons.rated("willing", "small-1", plan.features, 1.0, "ann")


async def test_a_lesson_is_about_the_answer_that_was_rated_and_no_other_to_the_same_question(tmp_path: Path) -> None:
    path = tmp_path / "outcomes.jsonl"
    async with compared(path, says("small-1", "4"), says("large-1", "4"), share=0.0, allow=True) as (site, made):
        request = replace(ASK, model="auto", messages=(Message("user", QUESTION),))
        plan = await site.routes.plan(request, None, WILLING)
        choice = Choice(0, "4", (), "stop", (1, 2))
        given = [("willing", "small-1"), ("willing", "large-1"), ("silent", "large-1")]
        for team, model in given:
            made.answered(request, Principal(team), plan, model, [choice], OUTCOME)
        for team, model in given:
            assert await made.lessons.rated(team, model, plan.features, 0.0, "ann")
        assert not await made.lessons.rated("silent", "small-1", plan.features, 0.0, "ann")
    assert [(line.team, line.answered) for line in read_log(path)] == given


async def test_only_who_allows_it_is_compared(tmp_path: Path) -> None:
    path = tmp_path / "outcomes.jsonl"
    unwilling = Principal("no", policy=TeamPolicy(routing=PolicySection(outcomes=False)))
    key = replace(WILLING, key_id="shy", routing=PolicySection(outcomes=False))
    eager = replace(unwilling, key_id="eager", routing=PolicySection(outcomes=True))
    narrow = replace(WILLING, key_id="narrow", models=frozenset({"small-1"}))
    async with compared(path, says("small-1", "4"), says("large-1", "4"), allow=True) as (site, made):
        for who in (unwilling, key, eager, narrow):
            await asked(site, who)
        await asked(site, WILLING, model="small")
        assert not made.states
        await asked(site, Principal("silent"))
        assert made.states["drawn"] == 1
    async with compared(path, says("small-1", "4"), says("large-1", "4")) as (site, made):
        await asked(site, Principal("silent"))
        assert not made.states
    async with compared(path, says("small-1", "4"), says("large-1", "4"), share=0.5) as (site, made):
        await asked(site, WILLING)
        assert not made.states


async def test_what_cannot_be_told_or_fails_is_counted_and_not_logged(tmp_path: Path) -> None:
    path = tmp_path / "outcomes.jsonl"
    long = "A sentence that says a thing in its own words."
    async with compared(path, says("small-1", long), says("large-1", f"Otherwise: {long}")) as (site, made):
        await asked(site, WILLING)
        await made.drained()
        assert made.states["undecided"] == 1
    broken = Examined("large-1", pieces=(server_error("a step failed"),))
    async with compared(path, says("small-1", "4"), broken) as (site, made):
        await asked(site, WILLING)
        await made.drained()
        assert made.states["failed"] == 1
    assert not path.exists()


def test_the_pair_is_the_one_that_estimates_are_of_or_the_first_of_each_tier(tmp_path: Path) -> None:
    models = [
        {"id": "twin", "path": "demo:student", "tier": "small"},
        {"id": "demo-student", "path": "demo:student", "tier": "small"},
        {"id": "demo-teacher", "path": "demo:teacher", "tier": "large"},
    ]
    (tmp_path / "config.json").write_text("{}")
    settings = Settings(models=models, routing={"outcomes": {"file": "x"}})
    pair = compared_pair(settings, frozenset({"demo-student"}), tmp_path)
    assert pair is not None
    assert (pair.small, pair.large) == ("demo-student", "demo-teacher")
    assert pair.of_small != pair.of_large
    first = compared_pair(settings, None, tmp_path)
    assert first is not None
    assert first.small == "twin"
    assert compared_pair(Settings(models=models), None, tmp_path) is None
    assert compared_pair(settings, None, None) is None
