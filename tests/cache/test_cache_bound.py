import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.cache.binomial import upper_bound
from headgate.cache.bound import Evidence, HitModel, Rule, certify, even_ladder, fit_model


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ((math.nan, 0.1, 0.5), "similarity is nan"),
        ((1.1, 0.1, 0.5), "similarity is 1.1"),
        ((0.9, math.inf, 0.5), "margin is inf"),
        ((0.9, 0.1, -0.1), "alignment is -0.1"),
        ((0.9, 0.1, 0.5, (("length", math.nan),)), "length is nan"),
        ((0.9, 0.1, 0.5, (("a", 1.0), ("a", 2.0))), "signals"),
        ((0.9, 0.1, 0.5, (("margin", 1.0),)), "signals"),
    ],
)
def test_evidence_that_is_no_evidence_is_refused(values: tuple, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Evidence(*values)


def labelled(count: int, seed: int, deviation: float = 0.0) -> tuple[list[Evidence], list[bool], list[str]]:
    """Labels whose log odds are -8 + 10 similarity - 2 clash, plus a normal offset for each entry of ten labels."""
    rng = np.random.default_rng(seed)
    offsets = rng.normal(0.0, 1.0, count) * deviation
    evidence, right, entries = [], [], []
    for number in range(count):
        similarity, clash = float(rng.uniform(0.6, 1.0)), float(rng.integers(2))
        log_odds = -8.0 + 10.0 * similarity - 2.0 * clash + offsets[number // 10]
        evidence.append(Evidence(similarity, float(rng.uniform()), float(rng.uniform()), (("clash", clash),)))
        right.append(bool(rng.uniform() < 1.0 / (1.0 + math.exp(-log_odds))))
        entries.append(str(number // 10))
    return evidence, right, entries


def test_the_model_finds_the_weights_that_made_the_labels() -> None:
    model = fit_model(*labelled(6000, 1))
    found = {name: w / s for name, w, s in zip(model.names, model.weights, model.scale, strict=True)}
    assert found["similarity"] == pytest.approx(10.0, abs=1.0)
    assert found["clash"] == pytest.approx(-2.0, abs=0.25)
    assert found["margin"] == pytest.approx(0.0, abs=0.3)
    log_odds = model.log_odds(Evidence(0.9, 0.5, 0.5, (("clash", 1.0),)))
    assert log_odds == pytest.approx(-1.0, abs=0.2)


def test_the_fit_is_the_minimum_of_the_penalised_loss() -> None:
    evidence, right, entries = labelled(80, 2)
    model = fit_model(evidence, right, entries, penalty=3.0)
    errors = np.array(right) - 1.0 / (1.0 + np.exp([-model.log_odds(item) for item in evidence]))
    scaled = (np.array([item.values for item in evidence]) - model.mean) / model.scale
    assert scaled.T @ errors == pytest.approx(3.0 * np.array(model.weights), abs=1e-5)
    assert errors.sum() == pytest.approx(0.03 * model.intercept, abs=1e-5)


def test_entries_that_differ_are_given_more_room() -> None:
    alike = fit_model(*labelled(3000, 3)).offset_variance
    different = fit_model(*labelled(3000, 3, deviation=2.0)).offset_variance
    assert alike < 0.5
    assert 2.0 <= different <= 8.0


@pytest.mark.parametrize("right", [True, False])
def test_labels_of_one_kind_still_have_a_finite_fit(right: bool) -> None:
    model = fit_model([Evidence(0.9, 0.1, 0.5)] * 5, [right] * 5, ["a"] * 5)
    assert math.isfinite(model.intercept)
    assert (model.intercept > 0.0) == right
    assert model.weights == (0.0, 0.0, 0.0)


def test_a_fit_of_nothing_or_of_mixed_signals_is_refused() -> None:
    evidence = Evidence(0.9, 0.1, 0.5)
    with pytest.raises(ValueError, match="at least 1"):
        fit_model([], [], [])
    with pytest.raises(ValueError, match="1, 2 and 1 items"):
        fit_model([evidence], [True, False], ["a"])
    with pytest.raises(ValueError, match="same names"):
        fit_model([evidence, Evidence(0.9, 0.1, 0.5, (("x", 1.0),))], [True, False], ["a", "b"])
    with pytest.raises(ValueError, match="penalty is 0"):
        fit_model([evidence], [True], ["a"], penalty=0.0)


def model(variance: float = 1.0) -> HitModel:
    return HitModel(
        ("similarity", "margin", "alignment"), (0.9, 0.0, 0.5), (0.1, 1.0, 0.5), (2.0, 0.5, 1.0), 1.0, variance
    )


LABELS = st.lists(st.tuples(st.floats(-8, 8), st.booleans()), max_size=12)


@settings(max_examples=40)
@given(LABELS, st.floats(-8, 8), st.floats(0.05, 16))
def test_a_wrong_label_lowers_an_entry_and_a_right_one_raises_it(
    labels: list[tuple[float, bool]], log_odds: float, variance: float
) -> None:
    fitted = model(variance)
    offset = fitted.offset(labels)
    assert fitted.offset([*labels, (log_odds, False)]) <= offset + 1e-9
    assert fitted.offset([*labels, (log_odds, True)]) >= offset - 1e-9


@settings(max_examples=40)
@given(LABELS, st.floats(0.05, 16))
def test_the_offset_is_where_the_labels_and_the_prior_pull_alike(labels: list[tuple[float, bool]], v: float) -> None:
    offset = model(v).offset(labels)
    pull = sum(right - 1.0 / (1.0 + math.exp(-(log_odds + offset))) for log_odds, right in labels)
    assert pull == pytest.approx(offset / v, abs=1e-8)


def test_an_offset_without_labels_is_zero_and_shrinks_with_the_prior() -> None:
    wrong = [(2.0, False)] * 3
    assert model().offset([]) == 0.0
    assert model(4.0).offset(wrong) < model(0.5).offset(wrong) < -0.5


LADDER = (0.95, 0.9, 0.8, 0.6, 0.3)
GROUPS = st.tuples(st.sampled_from((0.1, 0.3, 0.5, 0.8, 0.85, 0.92, 0.99)), st.integers(0, 60), st.integers(0, 3))
# Scores and labels, mostly right, so that some thresholds pass; some scores are thresholds themselves.
SCORED = st.lists(GROUPS, max_size=6).map(
    lambda groups: [
        (score, label) for score, right, wrong in groups for label in (True,) * right + (False,) * min(wrong, right)
    ]
)


@settings(max_examples=40)
@given(SCORED, st.floats(0.02, 0.5), st.floats(0.01, 0.3), st.floats(0.0, 0.5), st.integers(0, 3))
def test_the_walk_takes_every_testable_threshold_until_one_fails(
    scored: list[tuple[float, bool]], max_error: float, alpha: float, false_accept: float, spare: int
) -> None:
    scores, rights = [score for score, _ in scored], [right for _, right in scored]
    got = certify(scores, rights, max_error, alpha, LADDER, false_accept=false_accept, spare=spare)
    passed: list[tuple[float, int, int]] = []
    for rung in LADDER:
        labels = [right for score, right in scored if score >= rung]
        widened = upper_bound(min(spare, len(labels)), len(labels), alpha) / (1.0 - false_accept)
        if widened > max_error:
            assert not passed, "only the first thresholds can be untestable"
            continue
        if upper_bound(labels.count(False), len(labels), alpha) / (1.0 - false_accept) > max_error:
            break
        passed.append((rung, labels.count(False), len(labels)))
    assert got.passed == tuple(rung for rung, _, _ in passed)
    if passed:
        assert (got.threshold, got.errors, got.labels) == passed[-1]
        assert got.upper == pytest.approx(upper_bound(got.errors, got.labels, alpha) / (1.0 - false_accept), rel=1e-9)
        assert got.upper <= max_error
    else:
        assert (got.threshold, got.upper) == (None, 1.0)


def strictness(threshold: float | None) -> float:
    return math.inf if threshold is None else threshold


@settings(max_examples=40)
@given(SCORED.filter(bool), st.data())
def test_worse_labels_or_a_stricter_promise_never_loosen_the_threshold(
    scored: list[tuple[float, bool]], data: st.DataObject
) -> None:
    scores, right = map(list, zip(*scored, strict=True))
    before = strictness(certify(scores, right, 0.2, 0.1, LADDER).threshold)
    spoilt_rows = data.draw(st.sets(st.integers(0, len(right) - 1), max_size=6))
    spoilt = [label and row not in spoilt_rows for row, label in enumerate(right)]
    assert strictness(certify(scores, spoilt, 0.2, 0.1, LADDER).threshold) >= before
    assert strictness(certify(scores, right, 0.2, 0.1, LADDER, false_accept=0.3).threshold) >= before
    assert strictness(certify(scores, right, 0.2, 0.05, LADDER).threshold) >= before


def test_the_walk_does_not_step_over_a_failure() -> None:
    scores, right = [0.97] * 100 + [0.85] * 2000, [False] * 20 + [True] * 2080
    assert certify(scores, right, 0.05, 0.05, LADDER).threshold is None
    # Starting where all of them count, the same labels are enough.
    assert certify(scores, right, 0.05, 0.05, (0.8, 0.3)).threshold == 0.3


def test_too_few_labels_at_the_start_do_not_end_the_walk_and_too_few_altogether_certify_nothing() -> None:
    scores, right = [0.97] * 10 + [0.85] * 100, [True] * 110
    got = certify(scores, right, 0.05, 0.05, LADDER)
    assert (got.passed, got.errors, got.labels) == ((0.8, 0.6, 0.3), 0, 110)
    assert certify(scores[:58], right[:58], 0.05, 0.05, LADDER).threshold is None
    assert certify([], [], 0.05, 0.05, LADDER).threshold is None


def test_a_labeller_that_lets_wrong_answers_pass_needs_more_labels() -> None:
    # 0.96 ** 74 < 0.05 < 0.96 ** 73: with a fifth of the wrong ones unseen, 5 % looks like 4 %.
    for labels, passes in ((73, False), (74, True)):
        got = certify([0.9] * labels, [True] * labels, 0.05, 0.05, LADDER, false_accept=0.2)
        assert (got.threshold is not None) == passes
    assert got.upper == pytest.approx(upper_bound(0, 74, 0.05) / 0.8)


def test_a_score_at_the_threshold_counts_as_a_hit() -> None:
    assert certify([0.9] * 59, [True] * 59, 0.05, 0.05, (0.9,)).labels == 59
    assert certify([0.9] * 59 + [0.8], [True] * 59 + [False], 0.05, 0.05, LADDER).passed == (0.9,)


def test_spare_errors_start_the_walk_where_one_bad_label_does_not_end_it() -> None:
    scores, right = [0.97] * 59 + [0.85] * 300, [False] + [True] * 358
    assert certify(scores, right, 0.05, 0.05, LADDER).threshold is None
    assert certify(scores, right, 0.05, 0.05, LADDER, spare=2).passed == (0.8, 0.6, 0.3)


@pytest.mark.parametrize("strict_are_worst", [False, True])
def test_the_promise_is_broken_in_few_calibrations(strict_are_worst: bool) -> None:
    """200 draws of 1500 labels each. A label is right with a probability known for its score, so that the wrong share
    above every threshold is known too; it crosses `max_error` inside the ladder."""
    rng = np.random.default_rng(7)
    max_error, alpha, draws = 0.05, 0.05, 200
    grid = (np.arange(20_000) + 0.5) / 20_000
    wrong = np.where(grid > 0.9, 0.1, 0.02) if strict_are_worst else 0.16 * (1.0 - grid)
    ladder = np.linspace(0.97, 0.02, 40)
    broken = served = 0
    for _ in range(draws):
        rows = rng.integers(len(grid), size=1500)
        threshold = certify(grid[rows], rng.random(1500) >= wrong[rows], max_error, alpha, ladder).threshold
        if threshold is not None:
            served += 1
            broken += wrong[grid >= threshold].mean() > max_error
    # 99.9 % of binomial(200, 5 %) is at most 20.
    assert broken <= 20
    assert strict_are_worst or (served > 120 and broken > 0), "a rule that serves nothing proves nothing"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"max_error": 0.0}, "max_error is 0"),
        ({"alpha": 1.0}, "alpha is 1"),
        ({"ladder": (0.5, 0.9)}, "ladder is"),
        ({"ladder": (0.9, math.nan)}, "ladder is"),
        ({"right": [True]}, "one label per score"),
        ({"scores": [0.9, math.nan]}, "finite scores"),
        ({"false_accept": 1.0}, "false_accept is 1"),
        ({"spare": -1}, "spare is -1"),
    ],
)
def test_a_certification_that_makes_no_sense_is_refused(change: dict, named: str) -> None:
    good = {"scores": [0.9, 0.8], "right": [True, True], "max_error": 0.05, "alpha": 0.05, "ladder": (0.9, 0.5)}
    certify(**good)
    with pytest.raises(ValueError, match=named):
        certify(**(good | change))


def test_an_even_ladder_steps_evenly_in_log_odds() -> None:
    ladder = even_ladder(0.999, 0.5, 11)
    assert ladder[0] == pytest.approx(0.999)
    assert ladder[-1] == pytest.approx(0.5)
    steps = np.diff(np.log(np.array(ladder) / (1.0 - np.array(ladder))))
    assert steps == pytest.approx(np.full(10, -math.log(999.0) / 10))
    for arguments in ((0.5, 0.9, 5), (1.0, 0.5, 5), (0.9, 0.5, 1)):
        with pytest.raises(ValueError, match="accepted"):
            even_ladder(*arguments)


def test_a_rule_serves_from_its_threshold_on() -> None:
    rule = Rule(model(), 0.9, 0.02)
    good, bad = Evidence(0.97, 0.1, 0.9), Evidence(0.85, 0.0, 0.1)
    decision = rule.decide(good)
    assert decision.serve
    assert decision.threshold == 0.9
    assert decision.probability == pytest.approx(1.0 / (1.0 + math.exp(-(1.0 + 2.0 * 0.7 + 0.05 + 0.8))))
    assert not rule.decide(bad).serve
    assert not rule.decide(good, rule.model.offset([(3.0, False)] * 3)).serve
    assert Rule(model(), decision.probability, 0.02).decide(good).serve


def test_without_a_certified_threshold_nothing_is_served() -> None:
    decision = Rule(model(), None, 0.02).decide(Evidence(1.0, 1.0, 1.0), 50.0)
    assert (decision.serve, decision.threshold) == (False, None)
    assert decision.probability == pytest.approx(1.0)


def test_a_rule_refuses_evidence_of_other_signals_and_offsets_that_are_no_numbers() -> None:
    rule = Rule(model(), 0.9, 0.02)
    with pytest.raises(ValueError, match="the evidence holds"):
        rule.decide(Evidence(0.9, 0.1, 0.5, (("clash", 1.0),)))
    with pytest.raises(ValueError, match="offset is nan"):
        rule.decide(Evidence(0.9, 0.1, 0.5), math.nan)


NUMBERS = st.floats(-1e6, 1e6)


@settings(max_examples=40)
@given(
    st.lists(st.text(max_size=5), max_size=4),
    st.data(),
    st.none() | st.floats(0, 1),
    st.floats(0.001, 0.999),
)
def test_a_rule_survives_json(names: list[str], data: st.DataObject, threshold: float | None, max_error: float) -> None:
    def draw(values: st.SearchStrategy) -> tuple[float, ...]:
        return tuple(data.draw(values) for _ in names)

    positive = st.floats(1e-6, 1e6)
    fitted = HitModel(
        tuple(names), draw(NUMBERS), draw(positive), draw(NUMBERS), data.draw(NUMBERS), data.draw(positive)
    )
    rule = Rule(fitted, threshold, max_error)
    assert Rule.from_plain(json.loads(json.dumps(rule.to_plain()))) == rule


@pytest.mark.parametrize(
    "spoil",
    [
        lambda plain: plain | {"schema": 2},
        lambda plain: {key: value for key, value in plain.items() if key != "schema"},
        lambda plain: {key: value for key, value in plain.items() if key != "max_error"},
        lambda plain: plain | {"threshold": "0.9"},
        lambda plain: plain | {"threshold": 1.5},
        lambda plain: plain | {"max_error": True},
        lambda plain: plain | {"model": plain["model"] | {"weights": [1.0]}},
        lambda plain: plain | {"model": plain["model"] | {"scale": [1.0, 0.0, 1.0]}},
        lambda plain: plain | {"model": plain["model"] | {"mean": [1.0, math.nan, 1.0]}},
        lambda plain: plain | {"model": plain["model"] | {"intercept": math.inf}},
        lambda plain: plain | {"model": plain["model"] | {"offset_variance": 0.0}},
        lambda plain: plain | {"model": plain["model"] | {"names": [1, 2, 3]}},
        lambda plain: plain | {"model": []},
        lambda plain: list(plain),
        lambda _: None,
    ],
)
def test_a_rule_that_was_damaged_is_refused(spoil: Callable[[Any], Any]) -> None:
    plain = Rule(model(), 0.9, 0.02).to_plain()
    assert Rule.from_plain(plain).threshold == 0.9
    with pytest.raises(ValueError, match="the rule"):
        Rule.from_plain(spoil(plain))
