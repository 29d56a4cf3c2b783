import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.cache.bound import Evidence, HitModel, fit_model


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


def test_evidence_of_other_signals_is_refused() -> None:
    with pytest.raises(ValueError, match="the evidence holds"):
        model().log_odds(Evidence(0.9, 0.1, 0.5, (("clash", 1.0),)))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"weights": (1.0,)}, "weights"),
        ({"scale": (1.0, 0.0, 1.0)}, "scale"),
        ({"mean": (1.0, math.nan, 1.0)}, "mean"),
        ({"intercept": math.inf}, "intercept"),
        ({"offset_variance": 0.0}, "offset_variance"),
    ],
)
def test_a_model_of_no_sense_is_refused(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        replace(model(), **change)
