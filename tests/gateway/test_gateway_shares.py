"""Where models are chosen within what a team has left: of escalations, tokens and money."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from road_pairs import BROKEN, HELLO, MATHS, pair, routed, sure, told
from road_site import Site

from headgate.gateway.road.destinations import Facts
from headgate.gateway.road.request import ChatRequest, Chunk
from headgate.gateway.settings import Settings
from headgate.gateway.teams.costs import Prices
from headgate.gateway.teams.keys import Principal
from headgate.gateway.teams.sections import TeamPolicy
from headgate.gateway.telemetry.record import CURRENT, RequestRecord
from headgate.gateway.wire.errors import ApiError


@pytest.mark.parametrize(("asked", "small"), [(MATHS, None), (HELLO, sure(-5.0)), (HELLO, [Chunk(0, "~")])])
async def test_the_budget_of_escalations_is_kept_by_those_who_come_at_once(
    asked: ChatRequest, small: Sequence[Chunk] | None
) -> None:
    gate = asyncio.Event()
    student, teacher = pair(small, facts=Facts(100, hand_over="~"), gate=gate)
    teacher.gate = gate
    settings = routed(escalations=0.2, cascade={"enabled": small is not None})
    site = Site(student, teacher, cached=False, settings=settings)
    tasks = [asyncio.create_task(told(site, replace(asked, session=f"{at}"))) for at in range(100)]
    for _ in range(100):
        await asyncio.sleep(0)
    assert student.begun + teacher.begun == 100, "all are planned"
    gate.set()
    answers = await asyncio.gather(*tasks)
    assert sum(model == "large-1" for _, model, _ in answers) == 20
    assert {reason for _, model, reason in answers if model == "small-1"} == {
        "budget" if small is None else "cascade:kept"
    }


async def test_what_nobody_answers_does_not_count_in_the_budget_of_escalations() -> None:
    small, large = pair(BROKEN)
    large.pieces = BROKEN
    site = Site(small, large, cached=False, settings=routed(escalations=0.2, breaker={"failures": 100}))
    for _ in range(11):
        with pytest.raises(ApiError):
            await told(site, MATHS)
    large.pieces = (Chunk(0, "large", finish_reason="stop"),)
    assert (await told(site, MATHS))[1] == "large-1"


@pytest.mark.parametrize(
    ("policy", "cause", "counted"),
    [
        (TeamPolicy(limits={"tokens_per_minute": 40}), "limit", 'reason="tokens"'),
        (TeamPolicy(budgets={"daily_usd": 0.04}), "budget", 'reason="daily_usd"'),
    ],
)
async def test_what_a_team_has_left_may_do_for_another_model_and_is_refused_once(
    policy: TeamPolicy, cause: str, counted: str
) -> None:
    small, large = pair()
    large.facts = Facts(30)
    price = {"usd_per_million_prompt_tokens": 1000, "usd_per_million_completion_tokens": 1000}
    models = [{"id": name, "path": "x", "tier": name[:5], "price": price} for name in ("small-1", "large-1")]
    settings = Settings(models=models)
    site = Site(small, large, cached=False, settings=settings)
    site.admission.accounts.prices = Prices(settings.models)
    who, record = Principal("red", policy=policy), RequestRecord("id", "/v1/chat/completions")
    token = CURRENT.set(record)
    assert (await told(site, HELLO, who))[1:] == ("large-1", f"fallback:{cause}")
    CURRENT.reset(token)
    assert [(failed.model, failed.end) for failed in record.failed] == [("small-1", cause)]
    refused = f'headgate_refused_requests_total{{{counted},team="red"}}'
    assert not site.count(refused), "it was answered"
    large.facts = Facts(100)
    with pytest.raises(ApiError) as caught:
        await told(site, HELLO, who)
    assert caught.value.status == 429
    assert site.count(f"{refused} 1.0")
