"""What is said of decisions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.routing.cascade import Cascade
from headgate.routing.classes import TaskClassifier
from headgate.routing.explain import counterfactuals, lines, rule
from headgate.routing.policy import Decision, Judgement, Policy, Router
from headgate.routing.tasks import load_tasks
from headgate.routing.types import Destination, Price, Quality

SMALL = Destination("student", "small", price=Price(0.5, 0.1, 0.4, score=1.0))
LARGE = Destination("teacher", "large", price=Price(0.1, 0.4, 1.5, score=2.0))
EASY = Judgement("math", 0.9, Quality(0.8, 1.0, "embedding"))
HARD = Judgement("math", 0.9, Quality(0.23, 1.0, "probe"))


def decide(judgement: Judgement, *destinations: Destination, requested: str = "auto", **given: object) -> Decision:
    router = Router((tasks := load_tasks()), TaskClassifier(tasks))
    policy = given.pop("policy", Policy(threshold=0.5))
    return router.decide(judgement, requested, destinations or (SMALL, LARGE), policy, **given)  # type: ignore[arg-type]


def test_an_easy_request_says_what_would_have_made_it_hard() -> None:
    decision = decide(EASY)
    assert rule(decision) == "the small tier's quality against the threshold"
    assert counterfactuals(decision) == [
        "large alone would have been good enough above 0.80 (the threshold is 0.50)",
        "teacher would have been chosen at a price below 800.0 ms (it is 2.00 s)",
    ]


def test_a_hard_request_says_what_would_have_made_it_easy() -> None:
    assert counterfactuals(decide(HARD)) == ["small would have been allowed below 0.23 (the threshold is 0.50)"]


@pytest.mark.parametrize("small", [0.1, 0.49, 0.51, 0.9])
def test_counterfactuals_are_true(small: float) -> None:
    """At the figure that is named the decision is the other one."""
    judgement = Judgement("math", 0.9, Quality(small, 1.0, "embedding"))
    route = decide(judgement).route
    other = Policy(threshold=small + 0.001 if route.model == "student" else small - 0.001)
    assert decide(judgement, policy=other).route.model != route.model
    for score, model in ((0.79, "teacher"), (0.81, "student")):
        cheaper = replace(LARGE, price=replace(LARGE.price, score=score))  # type: ignore[type-var]
        assert decide(EASY, SMALL, cheaper).route.model == model


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"down": True}, "failed lately and is left alone"),
        ({"ready": False}, "is not loaded"),
        ({"queue_depth": 1000}, "has too long a queue"),
        ({"refusal": "context"}, "holds too few tokens"),
        ({"refusal": "refused"}, "refuses the request"),
        ({"lacks": frozenset({"tools"})}, "does not understand tools"),
    ],
)
def test_who_could_not_be_chosen_says_why(change: dict[str, object], said: str) -> None:
    decision = decide(EASY, replace(SMALL, **change), LARGE, needs=frozenset({"tools"}))  # type: ignore[arg-type]
    assert rule(decision) == f"the model that would have been chosen {said}"
    assert f"student could not be chosen: it {said}" in counterfactuals(decision)
    assert any(said in line for line in lines(decision))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"requested": "student"}, "the request names this model"),
        ({"requested": "large"}, "the request names this tier"),
        ({"judgement": Judgement("math", 0.9)}, "the task class's tier, for there is no estimate of quality"),
        ({"judgement": Judgement("chit_chat", 0.9, code=True)}, "the text holds source code"),
        ({"judgement": HARD, "may_escalate": False}, "the budget of escalations is spent"),
        ({"policy": Policy(models=frozenset({"teacher"}))}, "may not be used by this key"),
    ],
)
def test_every_rule_has_its_sentence(given: dict[str, object], said: str) -> None:
    given = dict(given)
    judgement = given.pop("judgement", EASY)
    assert said in rule(decide(judgement, **given))  # type: ignore[arg-type]


def test_a_conversation_that_stays_says_so() -> None:
    cheaper = replace(LARGE, price=Price(0.1, 0.3, 0.5, score=0.9))
    decision = decide(EASY, SMALL, cheaper, incumbent="student")
    assert rule(decision) == "the conversation is here already, and no other model is cheaper by enough"
    assert "teacher would have been chosen at a price below 800.0 ms (it is 900.0 ms)" in counterfactuals(decision)


def test_a_tier_that_nobody_has_and_a_price_are_told() -> None:
    assert rule(decide(EASY, LARGE)) == "no model has the tier small"
    crowded = replace(SMALL, price=Price(40.0, 0.1, 0.4, score=40.5))
    decision = decide(EASY, crowded, LARGE)
    assert rule(decision) == "the small tier is good enough, and this model is cheaper as it stands"
    assert "student would have been considered with a queue of at most 30 s (it is 40.0 s)" in counterfactuals(decision)


def test_the_terminal_shows_prices_of_all() -> None:
    decision = decide(EASY, incumbent="student", policy=Policy(cascade=Cascade()))
    shown = "\n".join(lines(decision))
    for part in ("student (quality:small)", "math, 90 % sure", "small is enough 0.80", "500.0 ms",
                 "1.50 s", "conversation with student", "checked", "then         teacher"):  # fmt: skip
        assert part in shown


def test_who_takes_no_pictures_says_so() -> None:
    blind = replace(SMALL, lacks=frozenset({"vision", "vision_urls"}))
    decision = decide(EASY, blind, LARGE, needs=frozenset({"vision", "vision_urls"}))
    assert decision.route.reason == "fallback:lacks_vision"
    assert rule(decision).endswith("does not take pictures")
    blind = replace(SMALL, lacks=frozenset({"audio"}))
    assert rule(decide(EASY, blind, LARGE, needs=frozenset({"audio"}))).endswith("does not take sound")
