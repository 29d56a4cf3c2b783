"""What routing remembers: breakers, sessions, budgets; and the rule of the cascade."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.routing.breaker import Breaker, BreakerLimits
from headgate.routing.budget import Claim, EscalationBudget
from headgate.routing.cascade import Cascade
from headgate.routing.session import Sessions, session_key


def test_a_breaker_opens_after_failures_in_a_row_and_closes_after_a_trial() -> None:
    now = [0.0]
    breaker = Breaker(BreakerLimits(failures=2, open_s=5, longest_s=12), lambda: now[0])
    breaker.failed()
    breaker.succeeded()
    breaker.failed()
    assert breaker.state == "closed", "two failures, but not in a row"
    breaker.failed()
    assert (breaker.state, breaker.allows) == ("open", False)
    for pause in (5, 10, 12, 12):
        now[0] += pause - 0.1
        assert breaker.state == "open"
        now[0] += 0.1
        assert (breaker.state, breaker.allows) == ("half_open", True)
        breaker.begin()
        assert not breaker.allows, "one trial at a time"
        breaker.failed()
        assert breaker.state == "open"
    now[0] += 12
    breaker.begin()
    breaker.left()
    assert breaker.allows, "who goes away tells nothing"
    breaker.begin()
    breaker.succeeded()
    assert (breaker.state, breaker.allows) == ("closed", True)
    breaker.failed()
    breaker.failed()
    now[0] += 5
    assert breaker.state == "half_open", "the pause is the first one again"


class BreakerMachine(RuleBasedStateMachine):
    """Any course of requests over any time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.limits = BreakerLimits(failures=3, open_s=4.0, longest_s=16.0)
        self.breaker = Breaker(self.limits, lambda: self.now)
        self.failed_in_a_row = 0
        self.last_failure = -math.inf

    @rule(seconds=st.floats(0.01, 20))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.breaker.allows)
    @rule(fate=st.sampled_from(["succeeded", "failed", "left"]))
    def request(self, fate: str) -> None:
        self.breaker.begin()
        getattr(self.breaker, fate)()
        if fate == "failed":
            self.failed_in_a_row += 1
            self.last_failure = self.now
        elif fate == "succeeded":
            self.failed_in_a_row = 0

    @invariant()
    def asked_again_soon_enough_and_never_after_too_many_failures(self) -> None:
        if self.failed_in_a_row < self.limits.failures:
            assert self.breaker.state == "closed"
        elif self.now == self.last_failure:
            assert self.breaker.state == "open"
        if self.now >= self.last_failure + self.limits.longest_s:
            assert self.breaker.allows


TestBreaker = BreakerMachine.TestCase


@pytest.mark.parametrize("wrong", [{"failures": 0}, {"open_s": 0}, {"open_s": 61}])
def test_limits_that_mean_nothing_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        BreakerLimits(**wrong)  # type: ignore[arg-type]


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["small", "large"]))), st.integers(0, 4))
def test_sessions_keep_the_latest_and_no_more_than_they_may(turns: list[tuple[str, str]], most: int) -> None:
    sessions = Sessions(most)
    for key, destination in turns:
        sessions.keep(key, destination)
        assert len(sessions) <= most
    recent = list(dict.fromkeys(key for key, _ in reversed(turns)))
    for at, key in enumerate(recent):
        expected = next(destination for k, destination in reversed(turns) if k == key) if at < most else ""
        assert sessions.destination(key) == expected


def test_session_keys_tell_tenants_and_parts_apart() -> None:
    keys = {session_key("a", "bc"), session_key("ab", "c"), session_key("a", "b", "c"), session_key("a", "bc", "")}
    assert len(keys) == 4
    assert session_key("a", "bc") in keys


@given(st.lists(st.tuples(st.floats(0, 30), st.booleans()), max_size=150), st.sampled_from([0.0, 0.1, 0.5]))
def test_a_budget_is_kept_in_every_window(asked: list[tuple[float, bool]], share: float) -> None:
    now = [0.0]
    budget = EscalationBudget(share, 120.0, lambda: now[0], free=2)
    for pause, wants in asked:
        now[0] += pause
        large = wants and budget.allows
        budget.count(large=large)
        went, total = budget.spent
        assert went <= max(2 if share else 0, share * total) + 1e-9 or not large


def test_a_claim_counts_until_it_is_known_what_becomes_of_it() -> None:
    now = [0.0]
    budget = EscalationBudget(0.1, 60.0, lambda: now[0], free=1)
    large, small = Claim([budget], large=True), Claim([budget], large=False)
    assert (budget.spent, budget.allows) == ((1, 2), False)
    assert (large.escalates(), small.escalates()) == (True, False)
    large.settle(large=False)
    assert (budget.spent, budget.allows) == ((0, 2), True)
    assert small.escalates()
    assert budget.spent == (1, 2)
    small.drop()
    small.drop()
    assert budget.spent == (0, 1)
    now[0] = 61.0
    large.drop()
    assert budget.spent == (0, 0)


def test_a_budget_is_given_back_when_its_window_has_passed() -> None:
    now = [0.0]
    budget = EscalationBudget(0.1, 60.0, lambda: now[0], free=1)
    budget.count(large=True)
    assert not budget.allows
    now[0] = 61.0
    assert budget.allows
    assert EscalationBudget(1.0, 60.0, lambda: 0.0).allows
    assert not EscalationBudget(0.0, 60.0, lambda: 0.0).allows
    with pytest.raises(ValueError, match="share"):
        EscalationBudget(1.1, 60.0, lambda: 0.0)


@pytest.mark.parametrize(
    ("logprobs", "stands"),
    [
        ([], False),
        ([-0.1], True),
        ([-2.0], False),
        ([-0.1] * 19 + [-9.0], True),
        ([-0.1] * 17 + [-9.0] * 3, False),
    ],
)
def test_a_low_quantile_of_the_tokens_decides(logprobs: list[float], stands: bool) -> None:
    assert Cascade(quantile=0.1, least=-1.0).stands(logprobs) == stands
    assert Cascade(quantile=0.1, least=-1.0).stands(logprobs[::-1]) == stands


@pytest.mark.parametrize("wrong", [{"quantile": 1.1}, {"least": 0.1}, {"hold_tokens": 0}, {"hold_s": 0.0}])
def test_a_rule_that_means_nothing_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Cascade(**wrong)  # type: ignore[arg-type]
