"""Predictions and near answers as drafts: the road over the real engine, whose steps take equally long by its clock."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from headgate.cache.fingerprint import Fingerprinter
from headgate.engine.engine import Engine
from headgate.engine.front.local import LocalModel
from headgate.engine.settings import EngineSettings, ModelSpec
from headgate.gateway.caching.answers import Answers
from headgate.gateway.caching.question import CachePolicy
from headgate.gateway.local.destination import LocalDestination
from headgate.gateway.pipeline import Road
from headgate.gateway.road.request import ChatRequest, Draft, Message, Sampling, Usage
from headgate.gateway.routing.routes import Routes
from headgate.gateway.teams.keys import Principal
from headgate.gateway.telemetry.metrics.registry import Metrics
from headgate.gateway.telemetry.record import RequestRecord
from headgate.routing.classes import TaskClassifier
from headgate.routing.tasks import load_tasks

NEW = 40
GREEDY = Sampling(temperature=0.0, ignore_eos=True)
ASK = ChatRequest("chat.completions", "m", (Message("user", "What is it?"),), sampling=GREEDY, max_tokens=NEW)


class Site:
    def __init__(self, engine: Engine) -> None:
        self.metrics = Metrics()
        routes = Routes([LocalDestination(engine.models["m"])], {}, TaskClassifier(load_tasks()))
        answers = Answers(None, Fingerprinter(b"0" * 16), CachePolicy(), lambda: 0.0)
        self.road = Road(routes=routes, answers=answers, metrics=self.metrics)

    async def ask(self, request: ChatRequest) -> tuple[str, tuple[int, ...], Usage]:
        said, tokens = "", []
        async with self.road.answer(request, Principal("team"), RequestRecord("r", "e")) as answer:
            while batch := await answer.next_batch():
                said += "".join(chunk.text for chunk in batch)
                tokens += [token for chunk in batch for token in chunk.token_ids]
            return said, tuple(tokens), answer.outcome.usage

    def shows(self, line: str) -> bool:
        return line in generate_latest(self.metrics.registry).decode()


@pytest.fixture(scope="module")
def site(tiny_checkpoint: Path) -> Iterator[Site]:
    ticks = itertools.count()
    engine = Engine(EngineSettings(kv_bytes=4 << 20, threads=1), clock=lambda: float(next(ticks)))
    engine.load(ModelSpec("m", tiny_checkpoint, dtype="float32"))
    engine.start()
    try:
        yield Site(engine)
    finally:
        engine.stop()


async def test_the_account_says_what_came_of_a_draft(site: Site) -> None:
    said, tokens, usage = await site.ask(ASK)
    assert (usage.completion_tokens, usage.drafted_tokens, usage.misdrafted_tokens) == (NEW, 0, 0)
    wrong = (*tokens[:20], *range(100, 120))
    accepted = rejected = 0
    for given, most_wrong in ((tokens, 0), (wrong, 20)):
        again = await site.ask(replace(ASK, draft=Draft("near", "", "m", given)))
        assert again[:2] == (said, tokens)
        found = again[2]
        assert (found.prompt_tokens, found.completion_tokens) == (usage.prompt_tokens, NEW)
        assert 10 < found.drafted_tokens <= NEW
        assert 0 <= found.misdrafted_tokens <= most_wrong
        accepted, rejected = accepted + found.drafted_tokens, rejected + found.misdrafted_tokens
        for end, count in (("accepted", accepted), ("rejected", rejected)):
            assert site.shows(f'headgate_drafted_tokens_total{{end="{end}",model="m",source="near"}} {count}.0')
    assert rejected > 0


@pytest.mark.parametrize(
    "draft",
    [Draft("prediction", "the quick brown fox"), Draft("near", "the lazy dog", "other", (1, 2)),
     Draft("near", "the lazy dog", "m", (1, 320)), Draft("prediction", "")],
    ids=["text", "tokens-of-another-model", "tokens-of-another-vocabulary", "nothing"],
)  # fmt: skip
async def test_text_is_read_where_there_are_no_tokens_of_this_model(site: Site, draft: Draft) -> None:
    said, tokens, usage = await site.ask(ASK)
    again = await site.ask(replace(ASK, draft=draft))
    assert again[:2] == (said, tokens)
    assert again[2].completion_tokens == usage.completion_tokens


async def test_a_predicted_text_is_taken_from(site: Site) -> None:
    """Every token but one is ruled out, so that the answer is known to be text that the tokenizer reads as it was."""
    asked = replace(ASK, sampling=replace(GREEDY, logit_bias=((70, 100.0),)))
    said, tokens, _ = await site.ask(asked)
    assert set(tokens) == {70}
    again = await site.ask(replace(asked, draft=Draft("prediction", said)))
    assert again[0] == said
    assert again[2].drafted_tokens > NEW // 2
    assert again[2].misdrafted_tokens == 0


async def test_a_predicted_text_is_read_as_far_as_an_answer_may_go(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    encode = LocalModel.encode

    async def noting(model: LocalModel, text: str, *, special: bool = True) -> tuple[int, ...]:
        read.append(len(text))
        return await encode(model, text, special=special)

    monkeypatch.setattr(LocalModel, "encode", noting)
    await site.ask(replace(ASK, draft=Draft("prediction", "x" * 1_000_000)))
    assert len(read) == 1
    assert read[0] <= 16 * 512, "tokens of the context, of 16 characters each"
