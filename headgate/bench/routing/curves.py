"""Quality against cost as a router sends more and more requests to the large model, and what such a curve is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.routing.regression import Array


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """What both models made of the same requests, float64 `[requests]` each: rightness 1.0 or 0.0, device seconds."""

    small: Array
    large: Array
    small_s: Array
    large_s: Array


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """What becomes of requests as a threshold rises from 0, float64 but for `of`.

    Attributes:
        quality: rightness at 0, `[requests]`.
        seconds: device seconds at 0, `[requests]`.
        at: thresholds from which on something else is done with a request, `[changes]`.
        of: which request that is, `[changes]`.
        calls: what the change adds to the calls of the large model, `[changes]`.
        better: to the rightness, `[changes]`.
        dearer: to the seconds, `[changes]`.
    """

    quality: Array
    seconds: Array
    at: Array
    of: NDArray[np.int64]
    calls: Array
    better: Array
    dearer: Array


@dataclass(frozen=True, slots=True, eq=False)
class Policy:
    """A rule that says which requests go to the large model first.

    Attributes:
        name: of the rule.
        need: `[requests]`; the higher, the sooner a request goes to the large model.
        kept_s: device seconds of a request that stays, with what the rule itself costs, `[requests]`.
        upgraded_s: of one that goes to the large model, likewise.
        stops: no request with a need of 0 or less is ever upgraded, however much may be spent.
        frugal: the same rule as a threshold that rises, where the small model itself answers what it would hand over as
            long as that is likely enough to be right; the seconds that reach a quality are the lower of both.
    """

    name: str
    need: Array
    kept_s: Array
    upgraded_s: Array
    stops: bool = False
    frugal: Changes | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """Upgrading one request more at each point, for each of several resamples: float64 `[resamples, points]`.

    `calls`: share of requests at the large model; `quality`: share answered rightly; `seconds`: mean device seconds.
    """

    calls: Array
    quality: Array
    seconds: Array


def curve(measured: Measured, policy: Policy, times: Array, *, seed: int = 0) -> Curve:
    """The policy's curve where request i counts `times[r, i]` times in resample r; ties come in random order."""
    tied = np.random.default_rng(seed).permutation(len(policy.need))
    order = tied[np.argsort(-policy.need[tied], kind="stable")]
    if policy.stops:
        order = order[policy.need[order] > 0]
    zeros = np.zeros(len(policy.need))
    return Curve(
        _summed(times, zeros, order, np.ones(len(order))),
        _summed(times, measured.small, order, (measured.large - measured.small)[order]),
        _summed(times, policy.kept_s, order, (policy.upgraded_s - policy.kept_s)[order]),
    )


def rising(changes: Changes, times: Array) -> Curve:
    """The curve of a threshold that rises, where request i counts `times[r, i]` times in resample r."""
    order = np.argsort(changes.at, kind="stable")
    of = changes.of[order]
    return Curve(
        _summed(times, np.zeros(times.shape[1]), of, changes.calls[order]),
        _summed(times, changes.quality, of, changes.better[order]),
        _summed(times, changes.seconds, of, changes.dearer[order]),
    )


def _summed(times: Array, begun: Array, of: NDArray[np.int64], added: Array) -> Array:
    """Means over the requests, which begin with `begun` `[requests]`: each change adds to that of request `of`."""
    start = (times @ begun)[:, None]
    made: Array = np.hstack([start, start + np.cumsum(times[:, of] * added, axis=1)]) / times.sum(1, keepdims=True)
    return made


def oracle(measured: Measured) -> Policy:
    """Knows both answers: upgrades only what that makes right, the cheapest first."""
    gain = measured.large - measured.small
    cheap = 1.0 - 0.5 * measured.large_s / max(float(measured.large_s.max()), 1e-12)
    return Policy("oracle", gain * cheap, measured.small_s, measured.large_s, stops=True)


def area(made: Curve) -> Array:
    """Mean quality over all shares of calls from 0 to 1, `[resamples]`; where a curve ends early it stays level."""
    inner = np.sum(np.diff(made.calls, axis=1) * 0.5 * (made.quality[:, 1:] + made.quality[:, :-1]), axis=1)
    rest: Array = inner + (1.0 - made.calls[:, -1]) * made.quality[:, -1]
    return rest


def ends(measured: Measured, times: Array) -> tuple[Array, Array]:
    """Quality of the small and of the large model alone, `[resamples]` each."""
    total = times.sum(1)
    return times @ measured.small / total, times @ measured.large / total


def gap_closed(made: Curve, best: Curve, measured: Measured, times: Array) -> Array:
    """Share of the area between random upgrades and the oracle's that the curve takes, `[resamples]`.

    Random upgrades go straight from the small model's quality to the large one's. Not a number without a gap.
    """
    chance = 0.5 * sum(ends(measured, times))
    gap = area(best) - chance
    closed: Array = np.divide(area(made) - chance, gap, out=np.full(len(gap), np.nan), where=gap > 0)
    return closed


def apgr(made: Curve, measured: Measured, times: Array) -> Array:
    """Average performance gap recovered (Ong et al. 2024, "RouteLLM"): the area, with the small model's quality as
    0 and the large one's as 1. Not a number where the large model is no better."""
    low, high = ends(measured, times)
    found: Array = np.divide(area(made) - low, high - low, out=np.full(len(low), np.nan), where=high > low)
    return found


def calls_for(made: Curve, measured: Measured, times: Array, share: float) -> Array:
    """CPT: the least share of calls at the large model that recovers `share` of the gap between the models.

    1.0 where only all calls do; not a number where the large model is no better.
    """
    low, high = ends(measured, times)
    found = _first(made.calls, made.quality >= (low + share * (high - low))[:, None], otherwise=np.ones(len(low)))
    return np.where(high > low, found, np.nan)


def seconds_for(made: Curve, measured: Measured, times: Array, share: float) -> Array:
    """The least device seconds that reach `share` of the large model's quality, as a share of its own.

    Where the curve never does, the large model alone has to, at 1.0.
    """
    always = times @ measured.large_s / times.sum(1)
    found = _first(made.seconds, made.quality >= (share * ends(measured, times)[1])[:, None], otherwise=always)
    shares: Array = found / always
    return shares


def _first(values: Array, reached: NDArray[np.bool_], otherwise: Array) -> Array:
    least = np.where(reached, values, np.inf).min(1)
    return np.where(np.isfinite(least), least, otherwise)


def hull(seconds: Sequence[float], quality: Sequence[float]) -> tuple[Array, Array]:
    """Corners of the least concave function that never falls and lies nowhere below the points.

    Mixing two policies by chance reaches every point between them, so the hull is what can be had.
    """
    points = sorted(zip(seconds, quality, strict=True), key=lambda point: (point[0], -point[1]))
    corners: list[tuple[float, float]] = []
    for x, y in points:
        if corners and y <= corners[-1][1]:
            continue
        while len(corners) > 1 and (
            (corners[-1][1] - corners[-2][1]) * (x - corners[-2][0])
            <= (y - corners[-2][1]) * (corners[-1][0] - corners[-2][0])
        ):
            corners.pop()
        corners.append((x, y))
    return np.array([x for x, _ in corners]), np.array([y for _, y in corners])


def aiq(made: Curve, measured: Measured, times: Array) -> Array:
    """Average improvement in quality (Hu et al. 2024, "RouterBench"), `[resamples]`.

    The mean height of the curve's hull, the two models alone included, from the small model's device seconds to the
    large one's.
    """
    total = times.sum(1)
    low, high = times @ measured.small_s / total, times @ measured.large_s / total
    small, large = ends(measured, times)
    found = np.empty(len(total))
    for row in range(len(total)):
        x, y = hull(
            [low[row], high[row], *made.seconds[row].tolist()], [small[row], large[row], *made.quality[row].tolist()]
        )
        at = np.unique(np.concatenate([[low[row], high[row]], x[(x > low[row]) & (x < high[row])]]))
        heights = np.interp(at, x, y)
        found[row] = np.sum(np.diff(at) * 0.5 * (heights[1:] + heights[:-1])) / (high[row] - low[row])
    return found


def resamples(count: int, requests: int, seed: int) -> Array:
    """How often each request counts: once each in the first row, then `count` bootstrap draws; `[1 + count, requests]`.

    The same draws for every policy make their differences paired.
    """
    drawn = np.random.default_rng(seed).multinomial(requests, np.full(requests, 1 / requests), size=count)
    return np.vstack([np.ones((1, requests)), drawn.astype(np.float64)])


def interval(values: Array) -> tuple[float, float, float]:
    """The value of the first row, and the 2.5 % and 97.5 % quantiles of the others where they are numbers."""
    rest = values[1:][np.isfinite(values[1:])]
    low, high = np.quantile(rest, (0.025, 0.975)) if len(rest) else (np.nan, np.nan)
    return float(values[0]), float(low), float(high)
