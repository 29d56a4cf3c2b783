"""The decision: who may answer, who is good enough, who is cheapest, and what is said about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.routing.cascade import Cascade
from headgate.routing.classes import TaskClassifier
from headgate.routing.policy import Bar, Decision, Judgement, Policy, Router
from headgate.routing.tasks import load_tasks
from headgate.routing.types import Destination, NoneReady, NoRoute, Price, Quality, Route, RouteFeatures

SMALL = Destination("student", "small", context_length=1024)
LARGE = Destination("teacher", "large", context_length=4096)
BOTH = (SMALL, LARGE)


class Fixed:
    """A quality model that says the same of everything."""

    wants_state = False

    def __init__(self, small: float, source: str) -> None:
        self.small = small
        self.source = source

    def estimate(self, _features: RouteFeatures, _task: str) -> Quality:
        return Quality(self.small, 1.0, self.source)


TASKS = load_tasks()
CLASSIFIER = TaskClassifier(TASKS)


def router(small: float | None = None, source: str = "embedding") -> Router:
    return Router(TASKS, CLASSIFIER, None if small is None else Fixed(small, source))


def costs(score: float, queue_s: float = 0.0) -> Price:
    return Price(queue_s, 0.0, score - queue_s, score=score)


def priced(small: float, large: float, *, small_queue: float = 0.0, large_queue: float = 0.0) -> list[Destination]:
    return [
        replace(SMALL, price=costs(small, small_queue)),
        replace(LARGE, price=costs(large, large_queue)),
    ]


def ask(text: str = "Hello!", requested: str = "auto", small: float | None = None, **given: object) -> Decision:
    chosen = router(small, given.pop("source", "embedding"))  # type: ignore[arg-type]
    judgement = chosen.judge(RouteFeatures(text, prompt_chars=len(text))) if requested == "auto" else Judgement()
    destinations = given.pop("destinations", BOTH)
    policy = given.pop("policy", Policy())
    return chosen.decide(judgement, requested, destinations, policy, **given)  # type: ignore[arg-type]


def test_a_name_is_that_model_and_nothing_else() -> None:
    assert ask("2 + 2", "student").route == Route("student", "requested", 1.0, "")
    with pytest.raises(NoneReady, match="'student' is not ready; configured: student, teacher"):
        ask("2 + 2", "student", destinations=(replace(SMALL, ready=False), LARGE))


@pytest.mark.parametrize(
    ("requested", "model", "other"), [("small", "student", "teacher"), ("large", "teacher", "student")]
)
def test_a_tier_is_its_model(requested: str, model: str, other: str) -> None:
    assert ask("hello", requested).route == Route(model, f"tier:{requested}", 1.0, "", (other,))


@pytest.mark.parametrize(
    ("text", "model", "reason"),
    [
        ("What is the capital of Norway?", "student", "task:short_qa"),
        ("Hello!", "student", "task:chit_chat"),
        ("Translate into French: good night", "student", "task:translation"),
        ("What is 12 * 7?", "teacher", "task:math"),
        ("Write a Python function that adds", "teacher", "task:code"),
        ("Plan a trip to Rome", "teacher", "task:planning"),
        ("&&&& ////", "teacher", "task:unknown"),
    ],
)
def test_without_a_quality_model_the_tier_of_the_task_decides(text: str, model: str, reason: str) -> None:
    route = ask(text).route
    assert (route.model, route.reason, route.task) == (model, reason, reason.removeprefix("task:"))


@pytest.mark.parametrize(
    ("small", "threshold", "model", "reason"),
    [
        (0.8, 0.7, "student", "quality:small"),
        (0.7, 0.7, "teacher", "quality:large"),
        (0.6, 0.7, "teacher", "quality:large"),
        (0.01, 0.0, "student", "quality:small"),
        (1.0, 1.0, "teacher", "quality:large"),
    ],
)
def test_quality_is_a_floor_whatever_the_task(small: float, threshold: float, model: str, reason: str) -> None:
    for text in ("Hello!", "Plan a trip to Rome"):
        decision = ask(text, small=small, policy=Policy(threshold=threshold))
        assert (decision.route.model, decision.route.reason) == (model, reason)
        assert decision.escalates == (model == "teacher")


def test_what_a_client_asks_for_itself_is_for_the_small_model_whatever_an_estimate_says_of_it() -> None:
    text = "### Task:\nGenerate a concise, 3-5 word title summarizing the chat history.\n```python\ndef f(): pass\n```"
    decision = ask(text, small=0.1)
    assert (decision.route.model, decision.route.reason) == ("student", "task:background")


def test_each_source_of_estimates_has_its_threshold_and_one_that_knows_nothing_leaves_it_to_the_task() -> None:
    policy = Policy(threshold=0.9, thresholds={"embedding": 0.3})
    assert ask(small=0.4, policy=policy).route.reason == "quality:small"
    assert ask(small=0.4, policy=Policy(threshold=0.9, thresholds={"probe": 0.3})).route.reason == "quality:large"
    assert ask(small=0.4, policy=policy, source="task").route.reason == "task:chit_chat"


def test_among_those_good_enough_the_price_decides_and_never_below() -> None:
    crowded = priced(9.0, 2.0)
    assert ask(small=0.9, destinations=crowded).route.reason == "price"
    assert ask(small=0.9, destinations=crowded).route.model == "teacher"
    assert ask(small=0.9, destinations=priced(2.0, 9.0)).route.model == "student"
    assert ask(small=0.1, destinations=priced(0.1, 99.0)).route.model == "teacher", "quality is no weight"
    assert ask(small=0.9, destinations=priced(1.0, 0.9)).route.model == "student", "prices are estimates"


def test_what_a_model_lacks_leaves_it_out() -> None:
    decision = ask(
        "Hello!", destinations=(replace(SMALL, lacks=frozenset({"tools"})), LARGE), needs=frozenset({"tools"})
    )
    assert (decision.route.model, decision.route.reason) == ("teacher", "fallback:lacks_tools")
    assert decision.route.fallbacks == ()
    blind = tuple(replace(d, lacks=frozenset({"vision"})) for d in BOTH)
    with pytest.raises(NoRoute, match=r"no model may answer this: student \(lacks_vision\), teacher \(lacks_vision\)"):
        ask(destinations=blind, needs=frozenset({"vision"}))


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"ready": False}, "not_ready"),
        ({"down": True}, "down"),
        ({"queue_depth": 256}, "overloaded"),
        ({"refusal": "context"}, "context"),
    ],
)
@pytest.mark.parametrize(("text", "chosen", "other"), [("Hello!", SMALL, LARGE), ("What is 12 * 7?", LARGE, SMALL)])
def test_who_cannot_is_replaced_and_the_cause_is_said(
    text: str, chosen: Destination, other: Destination, change: dict[str, object], cause: str
) -> None:
    assert ask(text).route.model == chosen.name
    decision = ask(text, destinations=(replace(chosen, **change), other))  # type: ignore[arg-type]
    assert (decision.route.model, decision.route.reason) == (other.name, f"fallback:{cause}")
    # Who is only busy or was down lately is still tried before the request fails.
    assert decision.route.fallbacks == ((chosen.name,) if cause in ("down", "overloaded") else ())


def test_where_all_are_busy_or_down_somebody_is_asked_all_the_same() -> None:
    busy = tuple(replace(d, queue_depth=999) for d in BOTH)
    assert ask(destinations=busy).route.reason == "task:chit_chat"
    down = tuple(replace(d, down=True) for d in BOTH)
    assert ask(destinations=down).route.model == "student"
    assert ask(destinations=(busy[0], down[1]), small=0.0).route.reason == "fallback:down"


def test_what_nobody_holds_is_refused_by_the_roomiest() -> None:
    route = ask(destinations=tuple(replace(d, refusal="context") for d in BOTH)).route
    assert (route.model, route.fallbacks) == ("teacher", ())


def test_nothing_ready_and_nothing_allowed_are_errors() -> None:
    with pytest.raises(NoneReady, match="no model is ready; configured: student, teacher"):
        ask(destinations=tuple(replace(d, ready=False) for d in BOTH))
    with pytest.raises(NoRoute, match="not_allowed"):
        ask(policy=Policy(models=frozenset({"other"})))
    with pytest.raises(NoRoute, match="'gpt' does not exist; auto, small, large or one of: student, teacher"):
        ask(requested="gpt")
    with pytest.raises(NoRoute, match="no model is configured to answer 'auto'"):
        ask(destinations=())


def test_an_allow_list_and_a_budget_bind_the_choice() -> None:
    only_small = Policy(models=frozenset({"student"}))
    route = ask("What is 12 * 7?", policy=only_small).route
    assert (route.model, route.reason, route.fallbacks) == ("student", "fallback:not_allowed", ())
    spent = ask("What is 12 * 7?", may_escalate=False).route
    assert (spent.model, spent.reason) == ("student", "budget")
    assert ask("Hello!", destinations=priced(9.0, 1.0), may_escalate=False).route.reason == "task:chit_chat"
    assert ask("Hello!", "large", may_escalate=False).route.model == "teacher", "who asks for it by name may"


def test_the_chain_orders_who_is_tried_next() -> None:
    third = Destination("third", "large")
    route = ask("Hello!", destinations=(SMALL, LARGE, third), policy=Policy(chain=("third", "teacher"))).route
    assert (route.model, route.fallbacks) == ("student", ("third", "teacher"))
    down = (replace(SMALL, down=True), LARGE, third)
    assert ask("Hello!", "small", destinations=down, policy=Policy(chain=("third",))).route.model == "third"


def test_a_tier_that_nobody_fills_falls_to_the_other() -> None:
    route = ask("Hello!", "small", destinations=(LARGE,)).route
    assert (route.model, route.reason) == ("teacher", "fallback:no_small")


def test_a_conversation_moves_up_or_aside_only_where_that_saves_more_than_a_little() -> None:
    policy = Policy(switch_gain=0.2)
    twin = Destination("twin", "small", price=costs(0.9))
    pair = [replace(SMALL, price=costs(1.0)), twin]
    assert ask(destinations=pair, incumbent="student", policy=policy).route.reason == "sticky"
    assert ask(destinations=pair, policy=policy).route.model == "twin"
    assert ask(destinations=priced(1.0, 0.9), incumbent="student", policy=policy).route.reason == "sticky"
    assert ask(destinations=priced(1.0, 0.7), incumbent="student", policy=policy).route.reason == "price"
    back = ask(destinations=priced(1.0, 1.1), incumbent="teacher", policy=policy).route
    assert (back.model, back.reason) == ("student", "task:chit_chat")
    assert ask(destinations=priced(1.1, 1.0), incumbent="teacher", policy=policy).route.model == "teacher"
    assert ask(small=0.1, destinations=priced(1.0, 1.1), incumbent="student").route.model == "teacher", "quality first"


def test_going_back_to_the_small_model_takes_more_than_staying_there() -> None:
    policy = Policy(threshold=0.5, band=0.1)
    for incumbent, model in (("", "student"), ("student", "student"), ("teacher", "teacher")):
        assert ask(small=0.55, policy=policy, incumbent=incumbent, destinations=priced(1, 9)).route.model == model


def test_who_has_a_choice_leaves_long_queues_to_those_who_have_none() -> None:
    policy = Policy(max_wait_s=5.0)
    flooded = priced(50.0, 20.0, large_queue=6.0)
    assert ask(destinations=flooded, policy=policy).route.model == "student"
    assert ask(destinations=flooded, policy=policy, incumbent="teacher").route.model == "student"
    assert ask("What is 12 * 7?", destinations=flooded, policy=policy).route.model == "teacher"


def test_a_cascade_checks_what_the_small_model_answers_for_us() -> None:
    policy = Policy(cascade=Cascade())
    assert ask("Hello!", policy=policy).cascade == Cascade()
    assert ask("What is 12 * 7?", policy=policy).cascade is None
    assert ask("Hello!", "small", policy=policy).cascade is None
    assert ask("Hello!", policy=policy, destinations=(SMALL,)).cascade is None
    assert ask("Hello!", policy=policy, may_escalate=False).cascade is None


@pytest.mark.parametrize(
    "wrong", [{"threshold": 1.5}, {"band": -0.1}, {"switch_gain": 2}, {"max_queue": 0}, {"max_wait_s": 0}]
)
def test_a_policy_that_means_nothing_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Policy(**wrong)  # type: ignore[arg-type]


DESTINATIONS = st.lists(
    st.builds(
        Destination,
        name=st.sampled_from(["a", "b", "c", "d"]),
        tier=st.sampled_from(["small", "large"]),
        ready=st.booleans(),
        down=st.booleans(),
        queue_depth=st.integers(0, 4),
        refusal=st.sampled_from(["", "", "context"]),
        price=st.one_of(st.none(), st.builds(costs, st.floats(0.0, 100.0), st.floats(0.0, 40.0))),
    ),
    max_size=4,
    unique_by=lambda d: d.name,
)


@given(
    DESTINATIONS,
    st.sampled_from(["auto", "small", "large"]),
    st.floats(0, 1),
    st.sampled_from(["", "a", "b"]),
    st.booleans(),
)
def test_whoever_could_serve_serves_and_quality_holds_where_it_can(
    destinations: list[Destination], requested: str, small: float, incumbent: str, may_escalate: bool
) -> None:
    policy = Policy(threshold=0.5, max_queue=3, max_wait_s=10.0)
    try:
        decision = ask(
            "?",
            requested,
            small,
            destinations=destinations,
            policy=policy,
            incumbent=incumbent,
            may_escalate=may_escalate,
        )
    except NoRoute:
        assert not any(d.ready and not d.refusal for d in destinations)
        assert not any(d.refusal for d in destinations)
        return
    route, by_name = decision.route, {d.name: d for d in destinations}
    chosen = by_name[route.model]
    fit = [d for d in destinations if d.ready and not d.refusal and not d.down and d.queue_depth < 3]
    if not fit:
        return
    assert chosen in fit
    assert route.model not in route.fallbacks
    good = {"small"} if requested == "small" or (requested == "auto" and not may_escalate) else {"large"}
    if requested == "auto" and may_escalate and small > 0.55:
        good = {"small", "large"}
    if requested == "auto" and may_escalate and 0.5 < small <= 0.55:
        return  # that depends on where the conversation was
    if any(d.tier in good for d in fit):
        assert chosen.tier in good
        soon = [d for d in fit if d.tier in good and (d.price is None or d.price.queue_s <= 10.0)]
        assert not soon or chosen in soon, "a long queue is left to those who have no choice"
    else:
        assert route.reason.startswith("fallback:")


TWIN = replace(SMALL, name="twin")
OTHER = replace(SMALL, name="other", estimated=False)


def routed(*destinations: Destination, requested: str = "auto", small: float | None = 0.8, **given: object) -> Route:
    return ask(requested=requested, small=small, destinations=destinations, **given).route


def test_of_a_tier_the_cheapest_answers_and_the_rest_of_it_is_tried_before_the_other_tier() -> None:
    dear, cheap = replace(SMALL, price=costs(2.0)), replace(TWIN, price=costs(1.0))
    large = replace(LARGE, price=costs(1.5))
    for requested in ("small", "auto"):
        route = routed(dear, cheap, large, requested=requested)
        assert (route.model, route.fallbacks) == ("twin", ("student", "teacher"))
    assert routed(dear, replace(cheap, down=True), large).model == "teacher"
    assert (
        routed(dear, cheap, large, replace(large, name="second", price=costs(1.4)), requested="large").model == "second"
    )
    # A conversation stays with its model unless the other of its tier saves enough.
    assert routed(dear, replace(cheap, price=costs(1.9)), incumbent="student").reason == "sticky"
    # Without prices the shorter queue.
    assert routed(replace(SMALL, queue_depth=3), TWIN, LARGE).model == "twin"


def test_an_estimate_lets_the_model_it_is_of_answer_and_none_that_it_is_not_of() -> None:
    cheap = replace(OTHER, price=costs(0.1))
    pair = (replace(SMALL, price=costs(1.0)), replace(LARGE, price=costs(5.0)))
    route = routed(cheap, *pair)
    assert (route.model, route.reason, route.fallbacks) == ("student", "quality:small", ("teacher", "other"))
    assert routed(cheap, replace(pair[0], down=True), pair[1]) == replace(
        route, model="teacher", reason="fallback:down", fallbacks=("other", "student")
    )
    # Where no estimate decides, the tier is what the operator says it is.
    assert routed(cheap, *pair, requested="small").model == "other"
    assert routed(cheap, *pair, small=None).model == "other"
    assert routed(cheap, *pair, small=0.1, may_escalate=False).reason == "budget"
    assert routed(cheap, replace(pair[0], ready=False), replace(pair[1], ready=False)).reason == "fallback:not_ready"


GUARD = Policy(threshold=0.9, cascade=Cascade(guards=True))


@pytest.mark.parametrize(("small", "model"), [(0.31, "student"), (0.29, "teacher")])
def test_where_a_cascade_keeps_the_loss_the_small_model_is_tried_unless_both_would_cost_more(
    small: float, model: str
) -> None:
    decision = ask(small=small, policy=GUARD, destinations=priced(3.0, 10.0))
    assert decision.route.model == model
    assert decision.bar == Bar(small, pytest.approx(0.3))
    assert (decision.cascade is not None) == (model == "student")


def test_what_it_would_hand_over_the_small_model_keeps_where_its_own_answer_is_good_enough_too() -> None:
    def decided(kept: float, policy: Policy = Policy(threshold=0.6), **given: Any) -> Decision:  # noqa: B008
        judgement = Judgement("math", 0.9, Quality(0.8, 1.0, "embedding", kept=kept))
        return router().decide(judgement, "auto", given.pop("destinations", BOTH), policy, **given)

    assert decided(0.7).keeps
    assert decided(0.7).yields
    assert not decided(0.6).keeps
    # What went to the large model at once, and what nobody else could answer, is no question.
    assert not decided(0.95, Policy(threshold=0.9)).keeps
    assert not decided(0.7, destinations=(SMALL,)).keeps
    # A conversation with the large model asks for more, a cascade that keeps the loss checks what it gives.
    cheap = {"destinations": priced(1.0, 10.0), "incumbent": "teacher"}
    assert not decided(0.63, **cheap).keeps
    assert decided(0.66, **cheap).keeps
    assert not decided(0.99, GUARD).keeps


def test_an_answer_that_cannot_be_checked_and_a_cascade_that_promises_nothing_need_the_threshold() -> None:
    assert ask(small=0.8, policy=GUARD, destinations=priced(3.0, 10.0), checkable=False).route.model == "teacher"
    loose = replace(GUARD, cascade=Cascade())
    assert ask(small=0.8, policy=loose, destinations=priced(3.0, 10.0)).route.model == "teacher"
    # Without prices nothing speaks against trying.
    assert ask(small=0.01, policy=GUARD).route.model == "student"
    assert ask(small=0.8, policy=GUARD, destinations=priced(3.0, 10.0), may_escalate=False).cascade is None
