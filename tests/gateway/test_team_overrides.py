"""What a team's file makes of its requests before they take the road."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gateway_fakes import FakeDestination
from gateway_site import forget_environment, site
from road_site import Site
from team_files import key, roster, write_team

from headgate.gateway.configuration.document import ConfigError
from headgate.gateway.road.request import CacheControl, ChatRequest, Chunk, Message, ServiceTier
from headgate.gateway.teams.keys import Principal
from headgate.gateway.teams.overrides import as_team, scheduled
from headgate.gateway.teams.sections import TeamPolicy
from headgate.gateway.wire.errors import ApiError, context_exceeded, overloaded, server_error

ASK = ChatRequest("chat.completions", "auto", (Message("user", "hello"),))


def team(**sections: Any) -> Principal:
    return Principal("red", "a", policy=TeamPolicy(**sections))


def test_arms_of_an_experiment_answer_as_often_as_they_weigh() -> None:
    who = team(experiments={"weights": {"s": 3, "l": 1}})
    found = Counter(as_team(replace(ASK, user=f"user {n}"), who)[1] for n in range(4000))
    # Four standard deviations of a binomial share.
    assert abs(found["s"] - 3000) < 4 * (4000 * 0.75 * 0.25) ** 0.5
    assert found["s"] + found["l"] == 4000


def test_a_conversation_stays_in_its_arm_and_only_auto_is_tried() -> None:
    who = team(experiments={"weights": {"s": 1, "l": 1}})
    more = replace(ASK, messages=(*ASK.messages, Message("assistant", "Hi."), Message("user", "And now?")))
    assert as_team(ASK, who)[1] == as_team(more, who)[1] != ""
    assert as_team(ASK, who)[0].model == as_team(ASK, who)[1]
    for model in ("small", "s"):
        request = replace(ASK, model=model)
        assert as_team(request, who) == (request, "")
    assert as_team(ASK, team()) == (ASK, "")


def test_keys_with_fewer_models_are_of_the_arms_that_they_may_ask_or_of_none() -> None:
    who = team(experiments={"weights": {"s": 1, "l": 1}})
    for n in range(20):
        request = replace(ASK, user=f"user {n}")
        assert as_team(request, replace(who, models=frozenset({"l"})))[1] == "l"
        assert as_team(request, replace(who, models=frozenset({"other"}))) == (request, "")


def dealt(error: ApiError, **sections: Any) -> tuple[Site, FakeDestination, Principal]:
    """A road where an experiment deals everybody to `small`, which fails, and its team."""
    arm = FakeDestination("small", pieces=(error,))
    who = team(experiments={"weights": {"small": 1}}, **sections)
    return Site(arm, FakeDestination("large")), arm, who


@pytest.mark.parametrize(
    ("error", "cause"),
    [(server_error(), "failed"), (context_exceeded(10, 20, None), "context"), (overloaded("full"), "overloaded")],
)
async def test_where_an_arm_gives_no_answer_another_model_does_and_it_is_told(error: ApiError, cause: str) -> None:
    site, arm, who = dealt(error)
    for _ in range(2):
        text, verdict, record = await site.ask(ASK, who)
        assert (text, verdict) == ("ab", "miss"), "it is not kept as the arm's answer"
        assert (record.model, record.route, record.experiment) == ("large", f"fallback:{cause}", "small")
    assert site.count(f'headgate_routes_total{{model="large",reason="fallback:{cause}"}} 2.0')
    arm.pieces = (Chunk(0, "c", finish_reason="stop"),)
    text, _, record = await site.ask(ASK, who)
    assert (text, record.model, record.route) == ("c", "small", "experiment")
    arm.pieces = (error,)
    with pytest.raises(ApiError):
        await site.ask(replace(ASK, model="small", user="other", cache=CacheControl(no_cache=True)), who)


async def test_an_arm_that_is_left_alone_is_not_asked() -> None:
    site, arm, who = dealt(server_error())
    for _ in range(5):
        _, _, record = await site.ask(ASK, who)
    assert (record.route, arm.begun) == ("fallback:down", 3)


async def test_where_there_is_nobody_else_the_arm_says_what_is_wrong() -> None:
    site, _, who = dealt(overloaded("full"))
    with pytest.raises(ApiError, match="full"):
        await site.ask(ASK, replace(who, models=frozenset({"small"})))


async def test_that_others_have_no_room_for_the_prompt_does_not_hide_why_its_arm_failed() -> None:
    _, arm, who = dealt(overloaded("full"))
    other = FakeDestination("large", prompt_tokens=200)
    with pytest.raises(ApiError, match="full"):
        await Site(arm, other).ask(ASK, who)


async def test_what_a_spent_budget_turns_is_of_no_arm() -> None:
    arm, large = FakeDestination("large"), FakeDestination("small")
    budgets = {"daily_usd": 0, "on_exceed": "downgrade"}
    _, _, record = await Site(arm, large).ask(ASK, team(experiments={"weights": {"large": 1}}, budgets=budgets))
    assert (record.model, record.experiment) == ("small", "")


@pytest.mark.parametrize(
    ("scheduling", "tiers"),
    [
        ({}, {"auto": "foreground", "default": "foreground", "flex": "background"}),
        ({"priority": "interactive"}, {"auto": "interactive", "default": "foreground", "flex": "background"}),
        ({"priority": "batch"}, {"auto": "background", "default": "background", "flex": "background"}),
        ({"priority": "batch", "allow_priority": True}, {"auto": "background", "priority": "interactive"}),
    ],
)
def test_requests_have_their_teams_class_or_the_one_of_the_tier_they_ask_for(
    scheduling: dict[str, Any], tiers: dict[ServiceTier, str]
) -> None:
    who = team(scheduling=scheduling)
    for tier, priority in tiers.items():
        request = scheduled(replace(ASK, service_tier=tier), who)
        assert request.priority == priority, tier
        assert scheduled(request, who) == request
        assert scheduled(replace(ASK, service_tier=tier, priority="background"), who).priority == "background"


def test_who_may_not_be_before_others_is_told_by_the_parameter() -> None:
    with pytest.raises(ApiError) as caught:
        as_team(replace(ASK, service_tier="priority"), team(scheduling={"priority": "interactive"}))
    assert (caught.value.status, caught.value.param) == (400, "service_tier")


def test_arms_are_models_that_the_team_may_ask(tmp_path: Path) -> None:
    models = [{"id": "s", "path": "x", "tier": "small"}, {"id": "l", "path": "y", "tier": "large"}]
    write_team(tmp_path, "red", models={"deny": ["l"]}, experiments={"weights": {"s": 1, "l": 1}})
    with pytest.raises(ConfigError, match=r"'experiments.weights.l': 'l' is no model that may be asked.*Those are s"):
        roster(tmp_path, models=models)


async def test_replies_tell_the_tier_and_the_log_the_arm(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    forget_environment(monkeypatch)
    monkeypatch.setenv("RED_KEY", "secret-of-red")
    tried = {"experiments": {"weights": {"tiny-2": 1}}, "scheduling": {"priority": "batch"}}
    write_team(tmp_path, "red", key("red"), **tried)
    body = {"model": "auto", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
    async with site(tiny_checkpoint, teams=tmp_path) as client:
        with caplog.at_level("INFO", logger="headgate.access"):
            headers = {"Authorization": "Bearer secret-of-red"}
            reply = await (await client.post("/v1/chat/completions", json=body, headers=headers)).json()
        asked = {"model": "auto", "input": "hello", "max_output_tokens": 4}
        response = await (await client.post("/v1/responses", json=asked, headers=headers)).json()
    assert (reply["model"], reply["service_tier"]) == ("tiny-2", "flex")
    assert (response["model"], response["service_tier"]) == ("tiny-2", "flex")
    (line,) = [json.loads(r.message) for r in caplog.records if r.name == "headgate.access"]
    assert line["experiment"] == "tiny-2"
