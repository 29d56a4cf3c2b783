import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.bench.cache.vcache import Curve, decide, fit_curve

SIMILARITIES = st.integers(500, 1000).map(lambda thousandths: thousandths / 1000)
OBSERVATIONS = st.lists(st.tuples(SIMILARITIES, st.booleans()), min_size=4, max_size=25)
MIXED = [(0.7, False), (0.78, True), (0.8, False), (0.83, False), (0.85, True), (0.9, True), (0.95, True)]


def test_fewer_than_six_observations_with_the_two_artificial_ones_always_explore() -> None:
    for count in range(4):
        assert fit_curve([(0.95, True)] * count) is None
    assert fit_curve([(0.95, True)] * 4) is not None
    for uniform in (0.0, 0.5, 1.0):
        decision = decide(None, 1.0, 0.9, uniform)
        assert (decision.serve, decision.explore) == (False, 1.0)


def test_the_curve_is_the_maximum_of_the_likelihood_with_the_seeds() -> None:
    curve = fit_curve(MIXED)
    assert curve is not None
    known = np.array([(0.0, 0.0), (1.0, 1.0), *MIXED])
    expected = 1.0 / (1.0 + np.exp(-curve.slope * (known[:, 0] - curve.middle)))
    residuals = known[:, 1] - expected
    assert residuals.sum() == pytest.approx(0.0, abs=1e-5)
    assert (residuals * known[:, 0]).sum() == pytest.approx(0.0, abs=1e-5)
    # The middle's variance in the parametrisation by slope and middle itself, not by the delta method.
    weight = expected * (1.0 - expected)
    by_slope, by_middle = known[:, 0] - curve.middle, np.full(len(known), -curve.slope)
    information = np.array(
        [
            [(weight * by_slope**2).sum(), (weight * by_slope * by_middle).sum()],
            [(weight * by_slope * by_middle).sum(), (weight * by_middle**2).sum()],
        ]
    )
    assert curve.middle_sd == pytest.approx(math.sqrt(np.linalg.inv(information)[1, 1]), rel=1e-5)


def test_correctness_is_the_best_of_the_grid() -> None:
    curve = Curve(40.0, 0.8, 0.03)
    bounds = []
    for chance in (number / 51 for number in range(1, 51)):
        limit = min(1.0, max(0.0, 0.8 + 0.03 * NormalDist().inv_cdf(1.0 - chance)))
        bounds.append((1.0 - chance) / (1.0 + math.exp(-40.0 * (0.93 - limit))))
    assert curve.correctness(0.93) == pytest.approx(max(bounds))
    assert 0.8 < curve.correctness(0.93) < 1.0 / (1.0 + math.exp(-40.0 * 0.13))


@settings(max_examples=50)
@given(st.floats(1, 100), st.floats(0.5, 0.95), st.floats(0.001, 0.5), SIMILARITIES, SIMILARITIES)
def test_correctness_grows_with_similarity_and_falls_with_uncertainty(
    slope: float, middle: float, sd: float, one: float, other: float
) -> None:
    curve = Curve(slope, middle, sd)
    near, far = max(one, other), min(one, other)
    assert 0.0 <= curve.correctness(far) <= curve.correctness(near) <= 1.0
    # At the grid's upper half a wider law moves the limit down, but there half the chance is given away already.
    if curve.correctness(near) > 0.5:
        assert Curve(slope, middle, 2.0 * sd).correctness(near) <= curve.correctness(near) + 1e-12


@settings(max_examples=30)
@given(OBSERVATIONS, SIMILARITIES, st.floats(0.001, 0.5))
def test_the_error_of_a_request_stays_within_delta_if_the_bound_is_true(
    observations: list[tuple[float, bool]], similarity: float, delta: float
) -> None:
    curve = fit_curve(observations)
    assert curve is not None
    correctness = curve.correctness(similarity)
    explore = decide(curve, similarity, delta, 0.5).explore
    assert 0.0 <= explore <= 1.0
    assert (1.0 - explore) * (1.0 - correctness) <= delta + 1e-12
    # And no more cautious than it has to be.
    assert explore == 0.0 or (1.0 - explore) * (1.0 - correctness) == pytest.approx(delta)
    assert decide(curve, similarity, delta / 2, 0.5).explore >= explore


def test_the_draw_decides_between_exploring_and_serving() -> None:
    curve = fit_curve(MIXED)
    explore = decide(curve, 0.95, 0.05, 0.0).explore
    assert 0.5 < explore < 1.0
    assert not decide(curve, 0.95, 0.05, explore).serve
    assert decide(curve, 0.95, 0.05, math.nextafter(explore, 1.0)).serve
    assert decide(curve, 0.95, 0.05, 0.7) == decide(curve, 0.95, 0.05, 0.7)


def test_hopeless_candidates_are_served_with_probability_delta() -> None:
    """What makes the promise one per request: of these hits nearly all are wrong."""
    hopeless = fit_curve([(0.60, True), (0.99, False)] * 10)
    assert hopeless is not None
    assert hopeless.slope < 0.0
    assert hopeless.correctness(0.98) == 0.0
    decision = decide(hopeless, 0.98, 0.02, 0.99)
    assert decision.explore == pytest.approx(0.98)
    assert decision.serve


@pytest.mark.parametrize("count", [4, 10, 40])
def test_observations_that_one_similarity_parts_have_a_finite_curve_inside_the_gap(count: int) -> None:
    curve = fit_curve([(0.70, False)] * count + [(0.90, True)] * count)
    assert curve is not None
    assert 0.70 < curve.middle < 0.90
    assert 10.0 < curve.slope < 1000.0
    assert 0.0 < curve.middle_sd < 0.1


def test_more_observations_that_agree_make_the_entry_served_more_often() -> None:
    explores = [
        decide(fit_curve([(0.70, False)] * count + [(0.90, True)] * count), 0.95, 0.05, 0.5).explore
        for count in (2, 5, 20, 80)
    ]
    assert explores == sorted(explores, reverse=True)
    assert explores[0] > 0.5
    assert explores[-1] == 0.0


@settings(max_examples=30)
@given(OBSERVATIONS, st.randoms(use_true_random=False), SIMILARITIES)
def test_the_order_of_the_observations_does_not_matter(observations: list, random: object, similarity: float) -> None:
    shuffled = list(observations)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    here, there = fit_curve(observations), fit_curve(shuffled)
    assert here is not None
    assert there is not None
    if here.slope > 1e-3:
        assert here.correctness(similarity) == pytest.approx(there.correctness(similarity), abs=1e-5)


def test_what_is_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match=r"similarity is 1\.2"):
        fit_curve([(1.2, True)])
    with pytest.raises(ValueError, match="delta is 0"):
        decide(None, 0.9, 0.0, 0.5)
    with pytest.raises(ValueError, match=r"uniform is 1\.5"):
        decide(None, 0.9, 0.1, 1.5)
