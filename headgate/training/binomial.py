"""Exact bounds on a share, from how often something went wrong in so many independent trials."""

from __future__ import annotations

import math
from collections.abc import Callable

_RELATIVE_WIDTH = 1e-12
_NEGLIGIBLE = 1e-17


def at_most(errors: int, trials: int, share: float) -> float:
    """Probability of `errors` or fewer in `trials` independent trials that each go wrong with probability `share`.

    Relative error below 1e-8 for up to a million trials.

    Raises:
        ValueError: an argument is out of range.
    """
    _check_counts(errors, trials)
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"share is {share}; 0 to 1 is accepted")
    return _at_most(errors, trials, share, 1.0 - share)


def upper_bound(errors: int, trials: int, alpha: float) -> float:
    """Clopper-Pearson: the true share is above this with probability at most `alpha`. 1.0 without a trial.

    It is the share at which so few errors would have had probability `alpha`, rounded up.
    Source: Clopper and Pearson, Biometrika 26 (1934), one-sided.

    Raises:
        ValueError: an argument is out of range.
    """
    _check(errors, trials, alpha)
    if errors == trials:
        return 1.0
    return _crossing(lambda share: _at_most(errors, trials, share, 1.0 - share) > alpha)[1]


def lower_bound(errors: int, trials: int, alpha: float) -> float:
    """Clopper-Pearson: the true share is below this with probability at most `alpha`. 0.0 without an error.

    Raises:
        ValueError: an argument is out of range.
    """
    _check(errors, trials, alpha)
    if errors == 0:
        return 0.0
    # At least so many errors is at most so many successes.
    return _crossing(lambda share: _at_most(trials - errors, trials, 1.0 - share, share) <= alpha)[0]


def _check_counts(errors: int, trials: int) -> None:
    if trials < 0:
        raise ValueError(f"trials is {trials}; 0 or more is accepted")
    if not 0 <= errors <= trials:
        raise ValueError(f"errors is {errors}; 0 to {trials}, the number of trials, is accepted")


def _check(errors: int, trials: int, alpha: float) -> None:
    _check_counts(errors, trials)
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha is {alpha}; more than 0 and less than 1 is accepted")


def _at_most(errors: int, trials: int, share: float, rest: float) -> float:
    """`rest` is 1 - share, given apart so that neither loses digits where it is tiny."""
    if errors >= trials or share <= 0.0:
        return 1.0
    if rest <= 0.0:
        return 0.0
    # Summed from the side where the terms only shrink.
    if errors > trials * share:
        return 1.0 - _tail(trials - errors - 1, trials, rest, share)
    return _tail(errors, trials, share, rest)


def _tail(errors: int, trials: int, share: float, rest: float) -> float:
    """Terms 0 to `errors` of the binomial law, the largest first. Needs `errors` at or below the mean."""
    largest = (
        math.lgamma(trials + 1)
        - math.lgamma(errors + 1)
        - math.lgamma(trials - errors + 1)
        + errors * math.log(share)
        + (trials - errors) * math.log(rest)
    )
    term = total = 1.0
    odds = rest / share
    for count in range(errors, 0, -1):
        term *= odds * count / (trials - count + 1)
        total += term
        if term < _NEGLIGIBLE * total:
            break
    return min(1.0, math.exp(largest) * total)


def _crossing(below: Callable[[float], bool]) -> tuple[float, float]:
    """The two ends of a very short interval at whose lower end `below` holds and at whose upper end it does not."""
    low, high = 0.0, 1.0
    while high - low > _RELATIVE_WIDTH * high:
        middle = 0.5 * (low + high)
        if below(middle):
            low = middle
        else:
            high = middle
    return low, high
