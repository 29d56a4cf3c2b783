"""Answers in the shadow of others: shown to nobody, charged to no budget, compared and counted."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from gateway_fakes import OUTCOME, FakeDestination
from road_site import ASK, CLASSIFIER
from team_files import roster, write_team

from headgate.cache.fingerprint import Fingerprinter
from headgate.gateway.caching.answers import Answers
from headgate.gateway.caching.question import CachePolicy
from headgate.gateway.configuration.document import ConfigError
from headgate.gateway.lifecycle import Lifecycle
from headgate.gateway.pipeline import Road
from headgate.gateway.road.attachments import Picture
from headgate.gateway.road.request import ChatRequest, Choice, Chunk, Message, ToolCall
from headgate.gateway.routing.routes import Routes
from headgate.gateway.routing.shadows import Shadows, agreement
from headgate.gateway.teams.admission import Admission
from headgate.gateway.teams.keys import Principal
from headgate.gateway.teams.ledger import FILE, open_ledger
from headgate.gateway.teams.ledger_file import read_usage
from headgate.gateway.teams.sections import TeamPolicy
from headgate.gateway.telemetry.metrics.registry import Metrics
from headgate.gateway.telemetry.record import RequestRecord
from headgate.gateway.wire.errors import server_error
from headgate.routing.types import Need


class Shaded:
    """A road whose answers have shadows; the numbers that are drawn are given."""

    def __init__(self, *others: FakeDestination, draws: list[float] | None = None) -> None:
        self.metrics, self.admission = Metrics(), Admission()
        self.given = FakeDestination()
        routes = Routes([self.given, *others], {}, CLASSIFIER)
        numbers = iter(draws or [0.0] * 99)
        self.shadows = Shadows(routes, self.admission.accounts, self.metrics.registry, draw=lambda: next(numbers))
        answers = Answers(None, Fingerprinter(b"0" * 16), CachePolicy())
        self.road = Road(
            routes=routes, answers=answers, metrics=self.metrics, admission=self.admission, shadows=self.shadows
        )

    async def ask(
        self, request: ChatRequest = ASK, *, models: frozenset[str] | None = None, **sections: object
    ) -> RequestRecord:
        policy = TeamPolicy.model_validate({"experiments": {"shadow": {"other": 0.5}}, **sections})
        record = RequestRecord("r1", "/v1/chat/completions")
        async with self.road.answer(request, Principal("red", "k", policy=policy, models=models), record) as answer:
            while await answer.next_batch():
                pass
        return record

    def counted(self, result: str) -> float | None:
        labels = {"team": "red", "model": "fake", "shadow": "other", "result": result}
        return self.metrics.registry.get_sample_value("headgate_shadow_requests_total", labels)


async def test_a_drawn_request_is_answered_in_the_shadow_and_charged_to_no_budget(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = FakeDestination("other", pieces=(Chunk(0, "never shown", finish_reason="stop"),))
    site = Shaded(other, draws=[0.49, 0.5])
    accounts = site.admission.accounts
    accounts.ledger = await open_ledger(tmp_path, accounts.budgets, Lifecycle())
    budget = {"budgets": {"daily_device_s": 100}}
    site.shadows.start()
    with caplog.at_level("INFO", logger="headgate.gateway"):
        for _ in range(2):
            record = await site.ask(**budget)
            await site.shadows.drained()
    assert (site.given.begun, other.begun, record.model) == (2, 1, "fake")
    (line,) = [json.loads(r.message) for r in caplog.records if '"shadow"' in r.message]
    assert (line["id"], line["team"], line["result"]) == ("r1", "red", "different")
    took = {"prompt_tokens": 5, "completion_tokens": 2, "device_s": 0.5}
    for who, model in (("model", "fake"), ("shadow", "other")):
        assert line[who].pop("seconds") >= 0
        assert line[who] == {"model": model, **took}
    assert "never shown" not in caplog.text
    assert site.counted("different") == 1
    await site.shadows.close()
    assert accounts.ledger is not None
    await accounts.ledger.close()

    spent = {row[0]: row[1:] for row in read_usage(tmp_path / FILE, ["cause"], None, None)}
    used = OUTCOME.usage
    assert spent["shadow"] == (1, used.prompt_tokens, used.cached_tokens, used.completion_tokens, 500_000, 0, 0)
    assert spent["generated"][0] == 2
    (share,) = accounts.budgets.shares("red", TeamPolicy.model_validate(budget).budgets)
    assert share.spent == 1
    again = Admission().accounts
    again.ledger = await open_ledger(tmp_path, again.budgets, Lifecycle())
    (share,) = again.budgets.shares("red", TeamPolicy.model_validate(budget).budgets)
    assert share.spent == 1, "nor after a restart"
    assert again.ledger is not None
    await again.ledger.close()


async def test_who_takes_no_pictures_is_no_shadow_of_a_request_that_has_some() -> None:
    seen = replace(ASK, messages=(Message("user", "", parts=(Picture("data:image/png;base64,QUJD"),)),))
    for lacks, tried in ((frozenset[Need]({"vision"}), 0), (frozenset[Need](), 1)):
        other = FakeDestination("other", lacks=lacks)
        site = Shaded(other)
        site.shadows.start()
        await site.ask(seen)
        await site.shadows.drained()
        assert (site.given.begun, other.begun, site.counted("failed")) == (1, tried, None)
        await site.shadows.close()


async def test_a_model_that_the_key_may_not_ask_is_no_shadow() -> None:
    other = FakeDestination("other")
    site = Shaded(other)
    site.shadows.start()
    for models in (frozenset({"fake"}), frozenset({"fake", "other"})):
        await site.ask(models=models)
        await site.shadows.drained()
    assert (site.given.begun, other.begun) == (2, 1)
    await site.shadows.close()


async def test_what_nobody_waits_for_has_no_shadow_and_a_failure_is_only_counted() -> None:
    other = FakeDestination("other", pieces=(server_error(),))
    site = Shaded(other)
    site.shadows.start()
    await site.ask(replace(ASK, priority="background"))
    await site.ask(experiments={"shadow": {"fake": 1}})
    await site.shadows.drained()
    assert other.begun == 0
    await site.ask()
    await site.shadows.drained()
    assert site.counted("failed") == 1
    await site.shadows.close()


async def test_no_more_wait_than_a_bound() -> None:
    site = Shaded(FakeDestination("other", gate=asyncio.Event()))
    for _ in range(70):
        await site.ask()
    assert site.counted("dropped") == 70 - 64


async def test_no_more_bytes_wait_than_a_bound() -> None:
    site = Shaded(FakeDestination("other", gate=asyncio.Event()))
    long = replace(ASK, messages=(Message("user", "x" * 15 * 2**20),))
    for _ in range(6):
        await site.ask(long)
    assert site.counted("dropped") == 6 - 4, "of 64 MiB together"


@pytest.mark.parametrize(
    ("one", "other", "result"),
    [
        ("Paris", "Paris", "same"),
        ("42", " 42.", "same"),
        ("42", "43", "different"),
        ("It is Paris.", "Paris, of course.", "undecided"),
    ],
)
def test_answers_agree_as_far_as_their_form_tells(one: str, other: str, result: str) -> None:
    first, second = (Choice(0, text, (), "stop", ()) for text in (one, other))
    assert agreement(ASK, [first], [second]) == result
    calling = msgspec.structs.replace(second, tool_calls=(ToolCall("id", "f", "{}"),))
    assert agreement(ASK, [first], [calling]) == "different"


def test_shadows_are_models_that_the_team_may_ask(tmp_path: Path) -> None:
    models = [{"id": "s", "path": "x", "tier": "small"}, {"id": "l", "path": "y", "tier": "large"}]
    write_team(tmp_path, "red", models={"deny": ["l"]}, experiments={"shadow": {"l": 1}})
    with pytest.raises(ConfigError, match=r"'experiments.shadow.l': 'l' is no model that may be asked.*Those are s"):
        roster(tmp_path, models=models)
