"""Prices and the rates they are made of."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.routing.price import (
    AnswerLengths,
    Load,
    Neighbour,
    Rates,
    Signals,
    StepRates,
    Tariff,
    Work,
    first_rates,
    price,
)
from headgate.routing.types import Price

RATES = Rates(step_s=0.01, prompt_s=0.001, sequence_s=0.002)


def cost(**given: object) -> Price:
    fields: dict[str, object] = {
        "prompt_tokens": 100, "resident_tokens": 0, "output_tokens": 20.0, "rates": RATES, "load": Load()
    }  # fmt: skip
    return price(**{**fields, **given})  # type: ignore[arg-type]


def test_an_idle_model_costs_its_prompt_and_its_steps() -> None:
    alone = cost()
    assert alone.queue_s == 0
    assert alone.prefill_s == pytest.approx(100 * 0.001 + 0.01)
    assert alone.decode_s == pytest.approx(20 * (0.01 + 0.002))
    assert alone.device_s == pytest.approx(100 * 0.001 + 20 * 0.012)
    assert (alone.others_s, alone.usd) == (0, 0)
    assert alone.score == pytest.approx(alone.seconds)


def test_resident_tokens_are_not_read_but_the_last_one_always_is() -> None:
    assert cost(resident_tokens=96).computed_tokens == 4
    assert cost(resident_tokens=100).computed_tokens == 1
    assert cost(resident_tokens=96).seconds == pytest.approx(cost().seconds - 0.096)
    assert cost(resident_tokens=96, signals=Signals(kv=False)) == cost()


def test_who_waits_and_runs_is_waited_for() -> None:
    busy = cost(load=Load(running=4, waiting=1, pending_tokens=300))
    assert busy.queue_s >= 0.3
    assert busy.decode_s == pytest.approx(20 * (0.01 + 6 * 0.002))
    assert busy.others_s == pytest.approx(5 * busy.device_s)
    assert busy.device_s == pytest.approx(0.1 + 20 * (0.01 + 6 * 0.002) / 6), "its share of what is done for six"
    assert cost(load=Load(running=4, pending_tokens=300), signals=Signals(queue=False)) == cost()


def test_a_full_batch_lets_nobody_in_until_somebody_has_ended() -> None:
    full = Load(running=8, max_running=8)
    assert cost(load=full).queue_s > 20 * 0.01 / 8
    assert cost(load=replace(full, waiting=8)).queue_s > 1.9 * cost(load=replace(full, waiting=0)).queue_s
    assert cost(load=full).decode_s == pytest.approx(20 * (0.01 + 8 * 0.002))


def test_models_of_one_device_take_turns() -> None:
    other = Neighbour(Load(running=2), Rates(0.1, 0.001, 0.01))
    beside = cost(neighbours=(other,))
    assert beside.decode_s == pytest.approx(20 * (0.01 + 0.002 + 0.12))
    assert beside.others_s == pytest.approx(2 * beside.device_s)
    reading = Neighbour(Load(running=2, pending_tokens=500), Rates(0.1, 0.001, 0.01))
    assert cost(neighbours=(reading,)).seconds == pytest.approx(beside.seconds + 0.5), "its prompts are read once"
    idle = Neighbour(Load(), Rates(0.1, 0.001, 0.01))
    assert cost(neighbours=(idle,)) == cost(), "an idle neighbour costs nothing"


def test_money_counts_by_what_waiting_is_worth() -> None:
    tariff = Tariff(usd_per_prompt_token=1e-6, usd_per_completion_token=2e-6, usd_per_device_s=1e-3)
    free = cost(tariff=tariff)
    assert free.usd == pytest.approx(100e-6 + 40e-6 + 1e-3 * free.device_s)
    assert free.score == pytest.approx(free.seconds)
    valued = cost(tariff=replace(tariff, usd_per_waited_s=1e-3))
    assert valued.score == pytest.approx(valued.seconds + valued.usd / 1e-3)


LOADS = st.builds(Load, running=st.integers(0, 64), waiting=st.integers(0, 100), pending_tokens=st.integers(0, 10_000))


@given(LOADS, st.integers(1, 5000), st.integers(0, 5000), st.floats(1, 500))
def test_more_work_never_costs_less(load: Load, prompt: int, resident: int, output: float) -> None:
    given = {"load": load, "prompt_tokens": prompt, "resident_tokens": resident, "output_tokens": output}
    here = cost(**given)
    assert min(here.queue_s, here.prefill_s, here.decode_s, here.others_s) >= 0
    assert cost(**{**given, "prompt_tokens": prompt + 100}).score >= here.score
    assert cost(**{**given, "resident_tokens": resident + 100}).score <= here.score
    assert cost(**{**given, "output_tokens": output + 1}).score > here.score
    assert cost(**{**given, "load": replace(load, pending_tokens=load.pending_tokens + 100)}).seconds > here.seconds


def run(rates: StepRates, truth: Rates, now: list[float], draws: random.Random, reports: int, work: Work) -> Work:
    """Reports of a traffic of its own mixture, each about some tenth of a second."""
    for _ in range(reports):
        steps = draws.randint(3, 10)
        prompt, generated = draws.randint(0, 200), sum(draws.randint(0, 12) for _ in range(steps))
        seconds = truth.step_s * steps + truth.prompt_s * prompt + truth.sequence_s * generated
        now[0] += seconds
        work = Work(
            work.steps + steps, work.prompt_tokens + prompt, work.generated_tokens + generated, work.seconds + seconds
        )
        rates.report(work)
    return work


def off(found: Rates, truth: Rates) -> float:
    """Steps and sequences come together, so that steps tell their sum better than either."""
    steps = (found.round_s(n) / truth.round_s(n) for n in (3, 6, 10))
    return max(abs(ratio - 1) for ratio in (*steps, found.prompt_s / truth.prompt_s))


def test_rates_are_learned_from_steps_and_follow_a_change() -> None:
    now = [0.0]
    rates = StepRates(Rates(0.001, 0.0001, 0.0001), lambda: now[0])
    work = run(rates, RATES, now, random.Random(1), 200, Work())
    assert off(rates.rates, RATES) < 0.05
    slower = Rates(0.03, 0.004, 0.003)
    run(rates, slower, now, random.Random(2), 600, work)
    assert off(rates.rates, slower) < 0.05


def test_rates_that_traffic_says_nothing_of_stay() -> None:
    now = [0.0]
    first = Rates(0.01, 0.001, 0.002)
    rates = StepRates(first, lambda: now[0])
    work = Work()
    for _ in range(200):
        work = Work(work.steps + 10, 0, work.generated_tokens + 40, work.seconds + 0.18)
        now[0] += 0.18
        rates.report(work)
    found = rates.rates
    assert found.prompt_s == pytest.approx(0.001, rel=0.05)
    assert found.round_s(4) == pytest.approx(0.018, rel=0.05)


def test_a_slow_moment_is_forgotten_though_nobody_asks_any_more() -> None:
    now = [0.0]
    rates = StepRates(RATES, lambda: now[0])
    work = run(rates, RATES, now, random.Random(1), 300, Work())
    slow = Rates(1.0, 0.1, 0.2)
    run(rates, slow, now, random.Random(2), 3, work)
    assert rates.rates.round_s(4) > 5 * RATES.round_s(4)
    now[0] += 300
    assert rates.rates.round_s(4) < 2 * RATES.round_s(4)


def test_first_rates_come_from_size_and_speed() -> None:
    found = first_rates(weight_bytes=1e9, active_parameters=5e8, read_bytes_s=1e10, flops=1e11)
    assert found == Rates(0.1, 0.01, 0.01)
    with pytest.raises(ValueError, match="positive"):
        StepRates(Rates(0.0, 1.0, 1.0), lambda: 0.0)


def test_answers_are_as_long_as_those_of_their_class_were() -> None:
    lengths = AnswerLengths(first=64.0)
    assert lengths.expected("math") == 64
    assert lengths.expected("math", 10) == 10
    for _ in range(100):
        lengths.learn("math", 20)
        lengths.learn("code", 300)
    assert lengths.expected("math") == pytest.approx(20, abs=2)
    assert lengths.expected("code", 1000) == pytest.approx(300, abs=10)
    assert lengths.expected("code", 50) == 50
    for wrong in ({"first": 0.0}, {"weight": 0.0}):
        with pytest.raises(ValueError, match="first must be positive"):
            AnswerLengths(**wrong)
