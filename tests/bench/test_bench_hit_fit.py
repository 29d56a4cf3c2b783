"""The fit of the model of hits: the weights that made the labels, and the least of its loss."""

from __future__ import annotations

import math

import numpy as np
import pytest

from headgate.bench.cache.hit_fit import fit_model
from headgate.cache.bound import Evidence


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
