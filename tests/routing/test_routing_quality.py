"""Estimates of quality: regressions, neighbours, calibrated thresholds, and the file they ship in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from outcome_tables import handing_over, made_table

from headgate.routing.calibration import Calibration, Infeasible
from headgate.routing.core import cores
from headgate.routing.quality import FittedQuality, StaleQuality
from headgate.routing.quality_features import SURFACE, sureness, surface
from headgate.routing.regression import sigmoid
from headgate.routing.types import Quality, RouteFeatures
from headgate.training.binomial import upper_bound
from headgate.training.mean_bound import mean_upper_bound
from headgate.training.quality import Design, Keeping, calibrate, fit_pair, fit_quality, grid
from headgate.training.regression import fit, folds_of, platt


def test_a_regression_finds_the_law_that_made_the_data() -> None:
    drawn = np.random.default_rng(0)
    rows = drawn.normal(size=(6000, 5)).astype(np.float32) * np.array([1, 1, 10, 0.1, 1]) + np.array([0, 3, 0, 0, -7])
    rows = rows.astype(np.float32)
    wanted = np.array([1.5, -1.0, 0.05, 5.0, 0.0])
    right = (drawn.random(6000) < sigmoid(rows @ wanted + 2.0)).astype(np.float64)
    made = fit(rows, right, (3, 2), folds=folds_of(6000, 5, 0))
    np.testing.assert_allclose(made.weights * rows.std(0), wanted * rows.std(0), atol=0.15)
    assert made.one(rows[0]) == pytest.approx(made.predict(rows)[0], abs=1e-6)


def test_noise_is_told_as_the_mean_and_probabilities_are_calibrated() -> None:
    drawn = np.random.default_rng(1)
    rows = drawn.normal(size=(600, 200)).astype(np.float32)
    right = (drawn.random(600) < 0.3).astype(np.float64)
    made = fit(rows, right, (200,), folds=folds_of(600, 5, 0))
    fresh = made.predict(drawn.normal(size=(500, 200)).astype(np.float32))
    assert abs(fresh.mean() - 0.3) < 0.06
    assert fresh.std() < 0.08
    # Columns that tell something, many of them, and few rows: what is said must come true about as often.
    table = made_table(9000, seed=4)
    known, new = table.take(range(1500)), table.take(range(1500, 9000))
    made = fit(known.states, known.right("small"), (10,), folds=folds_of(1500, 5, 0))
    said, came = made.predict(new.states), new.right("small")
    for low in (0.0, 0.2, 0.4, 0.6, 0.8):
        inside = (said >= low) & (said < low + 0.2)
        assert abs(said[inside].mean() - came[inside].mean()) < 0.08


def test_products_tell_what_no_sum_of_columns_can() -> None:
    drawn = np.random.default_rng(2)
    rows = drawn.normal(size=(4000, 6)).astype(np.float32) * np.float32(3) + np.float32(5)
    law = (rows[:, 0] - 5) * (rows[:, 1] - 5) / 3 + 0.3 * (rows[:, 2] - 5)
    right = (drawn.random(4000) < sigmoid(law)).astype(np.float64)
    made = fit(rows[:3000], right[:3000], (6,), folds=folds_of(3000, 5, 0))
    said, wanted = made.predict(rows[3000:]), sigmoid(law[3000:])
    assert np.abs(said - wanted).mean() < 0.05
    assert [made.one(row) for row in rows[:3]] == pytest.approx(made.predict(rows[:3]).tolist(), abs=1e-6)


def test_a_model_that_is_always_right_gets_a_constant() -> None:
    made = fit(np.ones((8, 3), np.float32), np.ones(8), (3,), folds=folds_of(8, 4, 0))
    assert made.one(np.zeros(3, np.float32)) == pytest.approx(0.9)


def test_scores_that_point_the_wrong_way_say_nothing() -> None:
    right = np.array([1.0, 1, 1, 0, 0, 0])
    assert platt(-right, right)[0] == 0.0
    slope, intercept = platt(np.array([2.0, 2, -2, 2, -2, -2]), right)
    assert slope > 0
    assert intercept == pytest.approx(0.0, abs=1e-6)


def test_surface_counts_what_it_names() -> None:
    text = 'Sort: 12, 7, 345, "b" (now)?\nx = 1'
    found = dict(
        zip(SURFACE, np.expm1(surface(RouteFeatures(text, prompt_chars=99, turns=2, system="s"))), strict=True)
    )
    expected = {
        "chars": len(text), "prompt_chars": 99, "words": 9, "lines": 2, "numbers": 4, "digits": 7, "longest_number": 3,
        "list_items": 3, "commas": 3, "colons": 1, "quotes": 2, "brackets": 2, "operators": 1, "capitals": 1,
    }  # fmt: skip
    assert {name: round(float(found[name]), 3) for name in expected} == expected
    flags = dict(zip(SURFACE, surface(RouteFeatures(text, has_tools=True, turns=3)), strict=True))
    assert [flags[name] for name in ("question", "turns", "system", "tools", "code", "structured")] == [
        1,
        1,
        0,
        1,
        0,
        0,
    ]


@given(st.text(max_size=300), st.integers(0, 5))
def test_surface_takes_any_text(text: str, turns: int) -> None:
    found = surface(RouteFeatures(text, turns=turns))
    assert found.shape == (len(SURFACE),)
    assert np.isfinite(found).all()
    assert np.isfinite(surface(RouteFeatures("7" * 100_000))).all()


def test_the_small_model_is_enough_unless_the_large_one_alone_is_right() -> None:
    assert Quality(0.4, 0.5, "embedding").enough == pytest.approx(0.7)
    # What neither can answer is no reason to pay for the large one, and what it surely can is one.
    assert Quality(0.0, 0.0, "embedding").enough == 1.0
    assert Quality(0.3, 1.0, "embedding").enough == pytest.approx(0.3)


def test_models_that_err_together_lose_nothing_by_the_small_one() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(2000, 3)).astype(np.float32)
    read = Design(rows, np.arange(2000), (3,))
    # What makes prompts hard is not in what is read; so each is right half of the time, and they are so together.
    hard = rng.random(2000) < 0.5
    both = np.where(hard, 0.0, 1.0)
    assert fit_pair(read, both, both).enough(rows).min() > 0.99
    # Where they differ by chance alone, the large one alone is right a quarter of the time.
    other = np.where(rng.random(2000) < 0.5, 0.0, 1.0)
    apart = fit_pair(read, both, other)
    np.testing.assert_allclose(apart.enough(rows), 0.75, atol=0.06)
    # What the large one says of a prompt may be unknown: it then counts as right, and says nothing of the large one.
    unknown = np.where(hard, np.nan, 1.0)
    assert fit_pair(read, both, unknown).large.predict(rows).min() > 0.99
    np.testing.assert_allclose(fit_pair(read, both, unknown).small.predict(rows), 0.5, atol=0.06)
    # And where it is never right, nothing can be lost.
    assert fit_pair(read, both, np.zeros(2000)).enough(rows).min() > 0.99


def test_sureness_reads_the_forecast_at_the_end_of_a_state() -> None:
    state = np.array([9.0, 9.0, np.log(0.5), np.log(0.25), -3.0, -4.0, -5.0, 1.2], np.float32)
    np.testing.assert_allclose(sureness(state), [0.5, np.log(0.5), np.log(2), np.log(0.5) + 5], rtol=1e-5)
    assert np.isfinite(sureness(np.zeros(8, np.float32))).all()


def _calibration(loss: list[float], seconds: list[float]) -> Calibration:
    inner = np.linspace(0.1, 0.9, len(loss) - 2)
    rows = (np.array([0.0, *inner, 1.0]), np.array(loss), np.array(seconds), np.linspace(1, 0, len(loss)))
    return Calibration(*rows, 0.95, 500)


def test_a_target_takes_the_last_threshold_before_the_first_that_fails() -> None:
    # From the safest on, 0.04 comes behind a failure at 0.06 and must not be reached.
    made = _calibration([0.3, 0.04, 0.06, 0.02, 0.0], [1.0, 1.5, 2.0, 2.5, 3.0])
    assert made.for_loss(0.05) == pytest.approx(0.9)
    assert made.for_loss(0.06) == pytest.approx(0.1)
    assert made.for_loss(0.3) == 0.0
    assert made.for_seconds(2.2) == pytest.approx(0.5)
    assert made.for_seconds(9.0) == 1.0
    with pytest.raises(Infeasible, match=r"at most 1\.00% worse .* 2\.00% is the least that 500 calibration prompts"):
        made.for_loss(0.01)
    with pytest.raises(
        Infeasible, match=r"at most 900 device seconds for 1,000 requests .* 1000, with the small model"
    ):
        made.for_seconds(0.9)
    with pytest.raises(ValueError, match=r"most is 5; 0 to 1"):
        made.for_loss(5)
    with pytest.raises(ValueError, match="do not rise"):
        replace(made, thresholds=made.thresholds[::-1])
    with pytest.raises(ValueError, match="equally many"):
        replace(made, loss=made.loss[1:])


def test_bounds_count_what_the_large_model_would_have_had_right() -> None:
    estimates = np.array([0.9, 0.8, 0.7, 0.6] * 25)
    small, large = np.tile([1.0, 0.0, 0.0, 1.0], 25), np.tile([1.0, 1.0, 0.0, 0.0], 25)
    ones = np.ones(100)
    made = calibrate(estimates, small, large, ones, 3 * ones, np.array([0.0, 0.75, 0.85, 1.0]), 6.0)
    # Of 50 that the large model has right 25 are lost at 0.0 and 0.75, none above; 1 - 0.05 ** (1 / 50) is exact.
    assert made.loss[:2] == pytest.approx([0.6242, 0.6242], abs=1e-3)
    assert made.loss[2:].tolist() == pytest.approx([1 - 0.05 ** (1 / 50), 0.0])
    assert made.small.tolist() == [1.0, 0.5, 0.25, 0.0]
    assert all(true < bound < true + 0.8 for true, bound in zip((1.0, 2.0, 2.5, 3.0), made.seconds, strict=True))


def test_calibrated_targets_hold_as_often_as_they_say() -> None:
    # The true loss of a threshold is that of the whole population: 100 calibrations, of which 5 % may be wrong.
    everything = made_table(8000, seed=9)
    score = 1 / (1 + np.exp(3 * everything.states[:, 0].astype(np.float64)))
    small, large = everything.right("small"), everything.right("large")
    thresholds = grid(score[:1000])
    drawn = np.random.default_rng(2)
    realised = []
    ones = np.ones(400)
    for _ in range(100):
        chosen = drawn.integers(len(score), size=400)
        made = calibrate(score[chosen], small[chosen], large[chosen], ones, 3 * ones, thresholds, 6.0)
        lost = (score > made.for_loss(0.1)) & (large > small)
        realised.append(lost.sum() / large.sum())
    # 10 or fewer of 100 have a probability of 0.989 at 5 %. The bounds are not bought by never using the small model.
    assert sum(loss > 0.1 for loss in realised) <= 10
    assert np.mean(realised) > 0.05


def test_a_bound_on_a_mean_of_uneven_costs_fails_as_rarely_as_it_says() -> None:
    drawn = np.random.default_rng(4)
    # A request in fifty takes thirty times as long: a sample that happens to lack them looks even.
    costs = np.where(drawn.random((2000, 150)) < 0.02, 30.0, 1.0)
    bounds = mean_upper_bound(costs, 60.0, 0.05)
    assert (bounds < 1.58).mean() <= 0.05
    normal = costs.mean(1) + 1.645 * costs.std(1, ddof=1) / np.sqrt(150)
    assert (normal < 1.58).mean() > 0.1
    # It comes down to the mean as prompts are added, and is never above what a request may cost.
    many = mean_upper_bound(drawn.permutation(np.tile(costs[:1], 100).ravel())[None], 60.0, 0.05)
    assert costs[0].mean() < many[0] < 1.2 * costs[0].mean() + 0.3
    assert mean_upper_bound(np.full((1, 3), 99.0), 60.0, 0.05) == pytest.approx([60.0])
    assert mean_upper_bound(np.empty((2, 0)), 60.0, 0.05).tolist() == [60.0, 60.0]


def test_estimates_tell_prompts_apart_and_survive_their_file(tmp_path: Path) -> None:
    table = made_table(2400, seed=5)
    made = fit_quality(table)
    made.save(tmp_path / "fitted" / "q.safetensors")
    again = FittedQuality.load(tmp_path / "fitted" / "q.safetensors")
    assert again.wants_state
    test = table.take(table.rows("test"))
    auc = {}
    without = {"probe": {}, "cores": {"state": None}, "embedding": {"state": None, "cores": None}}
    for source in ("probe", "cores", "embedding"):
        told, sure = [], []
        for place in range(len(test)):
            features = replace(test.features(place), **without[source])
            quality = again.estimate(features, "")
            assert quality == made.estimate(features, "")
            assert quality.source == source
            assert 0 < quality.small < 1
            told.append(quality.enough)
            sure.append(quality.small)
        right = test.right("small") > 0
        auc[source] = np.mean(np.array(sure)[right][:, None] > np.array(sure)[~right][None, :])
        loss = again.threshold(source, loss=0.1)
        lost = (np.array(told) > loss) & (test.right("large") > test.right("small"))
        assert lost.sum() / test.right("large").sum() < 0.13
        assert 0 < np.mean(np.array(told) > loss) < 1
        assert again.threshold(source, seconds=0.002) < again.threshold(source, seconds=0.0027)
    assert auc["probe"] > 0.85 > auc["embedding"] > 0.65
    # Cores of these texts lie near them: their highest estimate tells about as much, at thresholds of its own.
    assert auc["cores"] > 0.65
    assert again.threshold("cores", loss=0.1) > again.threshold("embedding", loss=0.1)
    sure = np.array([np.exp(one.confidence.q10) for one in test.outcomes])
    for loss in (0.05, 0.1):
        lost = (sure > again.cascade(0.1, loss=loss)) & (test.right("large") > test.right("small"))
        assert lost.sum() / test.right("large").sum() < loss + 0.03
        assert 0 < np.mean(sure > again.cascade(0.1, loss=loss)) < 1
    assert again.cascade(0.1, loss=0.05) > again.cascade(0.1, loss=0.1)
    with pytest.raises(ValueError, match=r"quantile is 0\.3; calibrated are: 0, 0\.05, 0\.1, 0\.25, 0\.5"):
        again.cascade(0.3, loss=0.1)
    with pytest.raises(Infeasible, match=r"at most 0\.00% worse"):
        again.cascade(0.5, loss=0.0)
    nothing, fitted_on = again.estimate(RouteFeatures("?"), ""), table.take(table.rows("train"))
    assert (nothing.source, nothing.small) == (
        "task",
        pytest.approx(fitted_on.right("small")[fitted_on.right("large") > 0].mean()),
    )


def test_a_prefix_lowers_the_estimate_of_the_whole_and_not_what_is_believed() -> None:
    table = made_table(1200, seed=6)
    made = fit_quality(table)
    place = max(range(len(table)), key=lambda at: table.vectors[at, 0])
    easy, hard = -table.vectors[place], table.vectors[place]
    text = "Never mind all that. Once more: what is two plus two?"
    plain = RouteFeatures(text, vector=easy, prompt_chars=len(text))
    ends = np.tile(easy, (len(cores(text)), 1))
    judged = made.estimate(replace(plain, cores=ends), "")
    attacked = made.estimate(replace(plain, vector=hard, cores=ends), "")
    assert judged.source == attacked.source == "cores"
    assert len(judged.readings) == 1 + len(cores(text)) == 1 + len(ends)
    assert attacked.readings[0] < made.estimate(plain, "").enough - 0.2
    assert attacked.enough == max(attacked.readings) == max(judged.readings[1:])
    # A text too short for cores is read as a whole, against the thresholds of cores all the same.
    short = made.estimate(RouteFeatures("Hello!", vector=easy, cores=np.zeros((0, 8), np.float32)), "")
    assert (short.source, len(short.readings)) == ("cores", 1)


def test_a_stale_or_broken_file_is_refused_by_name(tmp_path: Path) -> None:
    made = fit_quality(made_table(200, seed=8))
    given = {"small": "small-1", "large": "large-1", "embedder": "embedder-1", "hand_over": ""}
    made.check(**given)
    made.check(**{**given, "embedder": ""})
    made.check(**{**given, "hand_over": "No."})
    replace(made, hand_over="No.").check(**{**given, "hand_over": "No."})
    with pytest.raises(StaleQuality, match=r"hands over by 'No\.'; nothing is set"):
        replace(made, hand_over="No.").check(**given)
    for name, said in (("small", "small model small-1; other"), ("large", "large model large-1; other"),
                       ("embedder", "embedding model embedder-1; other")):  # fmt: skip
        with pytest.raises(StaleQuality, match=said):
            made.check(**{**given, name: "other"})
    path = tmp_path / "q.safetensors"
    made.save(path)
    path.write_bytes(path.read_bytes().replace(b"longest_line", b"longest_lime"))
    with pytest.raises(StaleQuality, match=r"q\.safetensors was written by another version"):
        FittedQuality.load(path)
    path.write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"q\.safetensors: the quality estimates cannot be read"):
        FittedQuality.load(path)
    with pytest.raises(ValueError, match=r"none\.safetensors: the quality estimates cannot be read"):
        FittedQuality.load(tmp_path / "none.safetensors")
    for wrong in ({}, {"loss": 0.1, "seconds": 1.0}):
        with pytest.raises(ValueError, match="exactly one"):
            made.threshold("probe", **wrong)
    bare = replace(made, estimators={"probe": made.estimators["probe"]})
    with pytest.raises(ValueError, match="source is 'embedding'; calibrated are: probe"):
        bare.threshold("embedding", loss=0.1)


def test_what_is_handed_over_is_no_loss_and_costs_both_unless_it_is_kept(tmp_path: Path) -> None:
    table = made_table(3000, seed=12)
    made, taught = fit_quality(table), fit_quality(handing_over(table))
    for source in ("embedding", "probe"):
        plain, handed = (one.estimators[source].calibration for one in (made, taught))
        assert plain is not None
        assert handed is not None
        # At the lowest threshold it hands nothing over, and answers as one that was not taught to.
        assert handed.loss[0] == pytest.approx(plain.loss[0])
        assert handed.seconds[0] == pytest.approx(plain.seconds[0], rel=0.1)
        # Above it asks the small model first of nearly all, loses nothing for that, and pays for both.
        first = int(np.argmax(handed.loss < 0.05))
        assert handed.small[first] > plain.small[int(np.argmax(plain.loss < 0.05))] + 0.1
        assert handed.seconds[first] > handed.seconds[0] + 0.0005
        assert taught.threshold(source, loss=0.02) < made.threshold(source, loss=0.05)
    assert taught.cascade(0.5, loss=0.02) < 1e-6, "what is no answer is not taken for a sure one"
    assert (made.hand_over, taught.hand_over) == ("", "~")
    taught.save(tmp_path / "q.safetensors")
    again = FittedQuality.load(tmp_path / "q.safetensors")
    assert again.hand_over == "~"
    asked = [table.features(place) for place in range(40)]
    told = [again.estimate(features, "") for features in asked]
    assert told == [taught.estimate(features, "") for features in asked]
    assert all(0 < one.kept < 1 for one in told)
    assert {made.estimate(features, "").kept for features in asked} == {0.0}
    # Every tenth answer that it does not give would be right, and the rest wrong: few are worth keeping.
    assert np.mean([one.kept for one in told]) < np.mean([one.enough for one in told])


@given(st.data())
def test_bounds_are_of_what_is_done_at_each_threshold(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    drawn = np.random.default_rng(data.draw(st.integers(0, 99)))
    small, large, own = (drawn.integers(0, 2, count).astype(float) for _ in range(3))
    estimates, kept = drawn.choice([0.2, 0.4, 0.6, 0.8], count), drawn.choice([0.1, 0.4, 0.7], count)
    kept_s, upgraded_s, own_s = drawn.random((3, count))
    handed = drawn.random(count) < 0.5
    thresholds = np.array([0.0, 0.3, 0.4, 0.65, 1.0])
    keeping = Keeping(handed, own, own_s, kept)
    made = calibrate(estimates, small, large, kept_s, upgraded_s, thresholds, 9.0, keeping=keeping)
    for at, threshold in enumerate(thresholds):
        lost, spent = 0, []
        for i in range(count):
            if estimates[i] <= threshold:
                spent.append(upgraded_s[i])
                continue
            keeps = handed[i] and kept[i] > threshold
            lost += large[i] > (own[i] if keeps else small[i])
            spent.append(own_s[i] if keeps else kept_s[i])
        bound = upper_bound(lost, int(large.sum()), 0.05) if threshold < 1 else 0.0
        assert made.loss[at] == pytest.approx(bound)
        mixed = np.array(spent)[np.random.default_rng(0).permutation(count)]
        assert made.seconds[at] == pytest.approx(mean_upper_bound(mixed[None], 9.0, 0.05)[0])


def test_a_table_without_a_part_is_refused() -> None:
    table = made_table(60, seed=1)
    with pytest.raises(ValueError, match="no prompts in its part 'calibration'"):
        fit_quality(table.take(table.rows("train")))
