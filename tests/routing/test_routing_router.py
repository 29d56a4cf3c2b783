from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.routing.classes import TaskClassifier
from headgate.routing.task_router import Router
from headgate.routing.tasks import load_tasks
from headgate.routing.types import Destination, NoneReady, NoRoute, Route, RouteFeatures

SMALL = Destination("student", "small", 1024)
LARGE = Destination("teacher", "large", 4096)
BOTH = (SMALL, LARGE)


@pytest.fixture(scope="module")
def router() -> Router:
    tasks = load_tasks()
    return Router(tasks, TaskClassifier(tasks))


def ask(text: str, **changes: object) -> RouteFeatures:
    return replace(RouteFeatures(text, prompt_chars=len(text)), **changes)


def test_a_name_is_that_model_and_nothing_else(router: Router) -> None:
    assert router.choose(ask("2 + 2"), "student", BOTH) == Route("student", "requested", 1.0, "")
    with pytest.raises(NoneReady, match="'student' is not ready; configured: student, teacher"):
        router.choose(ask("2 + 2"), "student", (replace(SMALL, ready=False), LARGE))


@pytest.mark.parametrize(
    ("requested", "model", "other"), [("small", "student", "teacher"), ("large", "teacher", "student")]
)
def test_a_tier_is_its_model(router: Router, requested: str, model: str, other: str) -> None:
    assert router.choose(ask("hello"), requested, BOTH) == Route(model, f"tier:{requested}", 1.0, "", (other,))


@pytest.mark.parametrize(
    ("text", "model", "reason"),
    [
        ("What is the capital of Norway?", "student", "task:short_qa"),
        ("Hello!", "student", "task:chit_chat"),
        ("Translate into French: good night", "student", "task:translation"),
        ("What is 12 * 7?", "teacher", "task:math"),
        ("Write a Python function that adds", "teacher", "task:code"),
        ("Plan a trip to Rome", "teacher", "task:planning"),
        ("Write an essay on tea", "teacher", "task:long_form"),
        ("mmh", "teacher", "task:unknown"),
    ],
)
def test_auto_follows_the_task(router: Router, text: str, model: str, reason: str) -> None:
    route = router.choose(ask(text), "auto", BOTH)
    assert (route.model, route.reason, route.task) == (model, reason, reason.removeprefix("task:"))


def test_tools_and_code_go_to_the_large_model(router: Router) -> None:
    route = router.choose(ask("Hello!", has_tools=True), "auto", BOTH)
    assert (route.model, route.reason) == ("teacher", "task:function_calling")
    tasks = tuple(replace(task, tier="small") for task in load_tasks())
    route = Router(tasks, TaskClassifier(tasks)).choose(ask("what is this\n```\nx = 1\n```"), "auto", BOTH)
    assert (route.model, route.reason) == ("teacher", "escalate:code")


def test_what_one_context_does_not_hold_goes_to_the_other(router: Router) -> None:
    for requested in ("auto", "small"):
        route = router.choose(ask("Hello!", prompt_chars=6000), requested, BOTH)
        assert (route.model, route.reason, route.fallbacks) == ("teacher", "context", ())
    route = router.choose(ask("Hello!", max_tokens=2000), "auto", BOTH)
    assert (route.model, route.reason) == ("teacher", "context")
    roomy_small = (replace(SMALL, context_length=8192), LARGE)
    route = router.choose(ask("2 + 2", prompt_chars=18000), "auto", roomy_small)
    assert (route.model, route.reason) == ("student", "context")
    route = router.choose(ask("Hello!", prompt_chars=10**6), "auto", BOTH)
    assert (route.model, route.reason, route.fallbacks) == ("teacher", "context", ())


def test_a_model_that_is_not_ready_is_passed_over(router: Router) -> None:
    route = router.choose(ask("Hello!"), "auto", (replace(SMALL, ready=False), LARGE))
    assert (route.model, route.reason, route.fallbacks) == ("teacher", "fallback:not_ready", ())
    with pytest.raises(NoneReady, match="no model is ready; configured: student, teacher"):
        router.choose(ask("Hello!"), "auto", (replace(SMALL, ready=False), replace(LARGE, ready=False)))


def test_a_tier_that_nobody_fills_falls_to_the_other(router: Router) -> None:
    route = router.choose(ask("Hello!"), "small", (LARGE,))
    assert (route.model, route.reason) == ("teacher", "fallback:no_small")


def test_the_shorter_queue_wins_within_a_tier(router: Router) -> None:
    busy, idle = replace(SMALL, name="busy", queue_depth=4), replace(SMALL, name="idle", queue_depth=1)
    route = router.choose(ask("Hello!"), "auto", (busy, idle, LARGE))
    assert (route.model, route.fallbacks) == ("idle", ("busy", "teacher"))
    assert router.choose(ask("Hello!"), "auto", (SMALL, replace(SMALL, name="twin"))).model == "student"


def test_an_unknown_name_says_what_there_is(router: Router) -> None:
    with pytest.raises(NoRoute, match="'gpt' does not exist; auto, small, large or one of: student, teacher"):
        router.choose(ask("Hello!"), "gpt", BOTH)
    with pytest.raises(NoRoute, match="no model is configured to answer 'auto'"):
        router.choose(ask("Hello!"), "auto", ())


DESTINATIONS = st.lists(
    st.builds(
        Destination,
        name=st.sampled_from(["a", "b", "c", "d"]),
        tier=st.sampled_from(["small", "large"]),
        context_length=st.sampled_from([100, 1000, 10000]),
        ready=st.booleans(),
        queue_depth=st.integers(0, 3),
    ),
    max_size=4,
    unique_by=lambda d: d.name,
)


@given(DESTINATIONS, st.sampled_from(["auto", "small", "large"]), st.integers(0, 40000), st.text(max_size=30))
def test_every_route_is_ready_and_holds_the_prompt_if_any_does(
    destinations: list[Destination], requested: str, chars: int, text: str
) -> None:
    tasks = load_tasks()
    router = Router(tasks, TaskClassifier(tasks))
    by_name = {d.name: d for d in destinations if d.ready}
    try:
        route = router.choose(ask(text, prompt_chars=chars), requested, destinations)
    except NoRoute:
        assert not by_name
        return
    assert route.model in by_name
    assert set(route.fallbacks) <= set(by_name) - {route.model}
    needed = chars / 3 + 16
    if any(d.context_length >= needed for d in by_name.values()):
        assert by_name[route.model].context_length >= needed
        assert all(by_name[name].context_length >= needed for name in route.fallbacks)
