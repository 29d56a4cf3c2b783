import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.training.binomial import at_most, lower_bound, upper_bound

COUNTS = st.integers(0, 40).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
ALPHAS = st.floats(1e-6, 0.999)
SHARES = st.integers(0, 1024).map(lambda parts: parts / 1024)


def exact_at_most(errors: int, trials: int, share: float) -> Fraction:
    p = Fraction(share)
    return sum((math.comb(trials, i) * p**i * (1 - p) ** (trials - i) for i in range(errors + 1)), Fraction(0))


@settings(max_examples=40)
@given(COUNTS, SHARES)
def test_the_binomial_tail_is_the_sum_of_its_terms(counts: tuple[int, int], share: float) -> None:
    assert at_most(*counts, share) == pytest.approx(float(exact_at_most(*counts, share)), rel=1e-9, abs=1e-14)


@settings(max_examples=40)
@given(COUNTS, ALPHAS)
def test_at_the_bounds_so_extreme_a_count_has_probability_alpha(counts: tuple[int, int], alpha: float) -> None:
    errors, trials = counts
    upper, lower = upper_bound(errors, trials, alpha), lower_bound(errors, trials, alpha)
    # Rounded outwards, by no more than a few parts in 10^12.
    if errors < trials:
        assert exact_at_most(errors, trials, upper) <= alpha * (1.0 + 1e-8)
        assert exact_at_most(errors, trials, upper - 2e-12) >= alpha * (1.0 - 1e-8)
    else:
        assert upper == 1.0
    if errors > 0:
        assert 1 - exact_at_most(errors - 1, trials, lower) <= alpha * (1.0 + 1e-8)
        assert 1 - exact_at_most(errors - 1, trials, lower + 2e-12) >= alpha * (1.0 - 1e-8)
    else:
        assert lower == 0.0


@settings(max_examples=40)
@given(COUNTS, ALPHAS, ALPHAS)
def test_bounds_move_with_errors_trials_and_confidence(counts: tuple[int, int], a: float, b: float) -> None:
    errors, trials = counts
    for bound in (upper_bound, lower_bound):
        here = bound(errors, trials, a)
        assert bound(errors + 1, trials + 1, a) >= here - 1e-9
        assert bound(errors, trials + 1, a) <= here + 1e-9
    assert upper_bound(errors, trials, min(a, b)) >= upper_bound(errors, trials, max(a, b))
    assert lower_bound(errors, trials, min(a, b)) <= lower_bound(errors, trials, max(a, b))


@pytest.mark.parametrize(
    ("errors", "trials", "alpha", "lower", "upper"),
    # Quantiles of the beta law from an independent library.
    [
        (5000, 10**6, 0.05, 0.00488454313555296, 0.0051175840516408605),
        (1, 10**5, 0.01, 1.0050335348455206e-07, 6.638164924268006e-05),
        (3, 10**6, 0.025, 6.186725501906401e-07, 8.767247788067677e-06),
    ],
)
def test_bounds_of_many_trials(errors: int, trials: int, alpha: float, lower: float, upper: float) -> None:
    assert lower_bound(errors, trials, alpha) == pytest.approx(lower, rel=1e-8)
    assert upper_bound(errors, trials, alpha) == pytest.approx(upper, rel=1e-8)


@pytest.mark.parametrize(("share", "trials"), [(0.01, 299), (0.02, 149), (0.05, 59)])
def test_the_fewest_trials_without_error_that_prove_a_share(share: float, trials: int) -> None:
    assert upper_bound(0, trials, 0.05) <= share < upper_bound(0, trials - 1, 0.05)


@pytest.mark.parametrize("arguments", [(-1, 5, 0.1), (6, 5, 0.1), (0, -1, 0.1), (1, 5, 0.0), (1, 5, 1.0)])
def test_counts_and_levels_that_make_no_sense_are_refused(arguments: tuple[int, int, float]) -> None:
    for bound in (upper_bound, lower_bound):
        with pytest.raises(ValueError, match="accepted"):
            bound(*arguments)
