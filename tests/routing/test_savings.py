"""What a decision saved, at its own prices."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.routing.policy import Decision, Judgement, Policy, Weighed
from headgate.routing.savings import saving, spent
from headgate.routing.types import Destination, Price, Route, Tier


def weighed(name: str, tier: Tier, device_s: float, usd: float, *, excluded: str = "", score: float = 1.0) -> Weighed:
    price = Price(0.0, 0.0, 0.0, device_s=device_s, usd=usd, score=score)
    return Weighed(Destination(name, tier, price=price), excluded, at_floor=True)


SMALL, LARGE = weighed("s", "small", 0.5, 0.01), weighed("l", "large", 2.0, 0.05)
AWAY, FREE = weighed("away", "large", 0.1, 0.0, excluded="down", score=0.1), weighed("s", "small", 0.0, 0.0)
CHOSEN = Decision(Route("s", "task:code", 1.0, "code"), "auto", Judgement(), Policy(), (SMALL, LARGE))


def test_a_small_answer_saves_the_large_price_scaled_to_what_the_answer_took() -> None:
    found = saving(CHOSEN, "s", 1.0)
    assert found is not None
    assert (found.device_s, found.usd) == (pytest.approx(3.0), pytest.approx(0.08))


def test_a_large_answer_saves_nothing() -> None:
    found = saving(CHOSEN, "l", 2.0)
    assert found is not None
    assert (found.device_s, found.usd) == (0.0, 0.0)


def test_it_is_compared_with_the_large_model_that_would_have_been_chosen() -> None:
    dear = weighed("dear", "large", 9.0, 1.0, score=3.0)
    assert saving(replace(CHOSEN, weighed=(SMALL, dear, LARGE, AWAY)), "s", 1.0) == saving(CHOSEN, "s", 1.0)


@pytest.mark.parametrize(
    "left",
    [(LARGE,), (SMALL,), (SMALL, AWAY), (FREE, LARGE)],
    ids=["own price missing", "no large model", "large model away", "free device"],
)
def test_nothing_is_claimed_that_no_price_tells(left: tuple[Weighed, ...]) -> None:
    assert saving(replace(CHOSEN, weighed=left), "s", 1.0) is None


def test_an_answer_that_did_not_stand_is_a_loss() -> None:
    found = spent(CHOSEN, "s", 0.25)
    assert found is not None
    assert (found.device_s, found.usd) == (-0.25, pytest.approx(-0.005))
    assert spent(replace(CHOSEN, weighed=(LARGE,)), "s", 0.25) is None
