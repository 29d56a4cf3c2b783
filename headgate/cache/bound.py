"""When an answer serves another text: what is known, how likely it is right, and from where on that is proven."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate.cache.binomial import at_most, upper_bound

_SCHEMA = 1
_COMMON = ("similarity", "margin", "alignment")
# The intercept takes part of the penalty only, so that labels of one kind still have a finite fit.
_INTERCEPT_PENALTY = 0.01
_NEWTON_STEPS = 100
_OFFSET_VARIANCES = tuple(2.0**power for power in range(-6, 5))
_OFFSET_VARIANCE_SPREAD = math.log(4.0)
# A normal law of variance v under a logistic curve flattens it by about 1 / sqrt(1 + _FLATTENING v).
# Source: Zeger, Liang and Albert, Biometrics 44 (1988).
_FLATTENING = (16.0 * math.sqrt(3.0) / (15.0 * math.pi)) ** 2


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known about one candidate before it is served. All finite."""

    similarity: float
    """Cosine of the two texts' embeddings."""
    margin: float
    """Similarity minus that of the next other candidate; the similarity itself where there is no other."""
    alignment: float
    """How well the tokens of either text find a partner in the other, 0 to 1."""
    signals: tuple[tuple[str, float], ...] = ()
    """Name and value of whatever else may tell; a model wants the names it was fitted on, in the same order."""

    def __post_init__(self) -> None:
        values = zip(self.names, self.values, strict=True)
        for name, value in values:
            if not math.isfinite(value):
                raise ValueError(f"{name} is {value}; finite numbers are accepted")
        if not -1.0 <= self.similarity <= 1.0:
            raise ValueError(f"similarity is {self.similarity}; -1 to 1 is accepted")
        if not 0.0 <= self.alignment <= 1.0:
            raise ValueError(f"alignment is {self.alignment}; 0 to 1 is accepted")
        if len(set(self.names)) < len(self.names) or "" in self.names:
            raise ValueError(f"the signals are named {self.names[len(_COMMON) :]}; distinct new names are accepted")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the values, in their order."""
        return _COMMON + tuple(name for name, _ in self.signals)

    @property
    def values(self) -> tuple[float, ...]:
        """The values, in the order of the names."""
        return (self.similarity, self.margin, self.alignment, *(value for _, value in self.signals))


@dataclass(frozen=True, slots=True)
class HitModel:
    """Logistic model of the probability that a candidate's answer is right: one weight per value of the evidence.

    Weights are those of standardised values: `(value - mean) / scale`. An entry whose labels differ from what the
    weights expect has an offset of its own, drawn to 0 by a normal prior.
    """

    names: tuple[str, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    weights: tuple[float, ...]
    intercept: float
    offset_variance: float
    """Variance of the prior of an entry's offset, in squared log odds."""

    def __post_init__(self) -> None:
        for name in ("mean", "scale", "weights"):
            values = getattr(self, name)
            if len(values) != len(self.names):
                raise ValueError(f"{name} has {len(values)} values; {len(self.names)}, one per name, are accepted")
            if not all(map(math.isfinite, values)):
                raise ValueError(f"{name} is {values}; finite numbers are accepted")
        if not all(scale > 0.0 for scale in self.scale):
            raise ValueError(f"scale is {self.scale}; numbers above 0 are accepted")
        if not math.isfinite(self.intercept):
            raise ValueError(f"intercept is {self.intercept}; finite numbers are accepted")
        _check_positive("offset_variance", self.offset_variance)

    def log_odds(self, evidence: Evidence) -> float:
        """Natural logarithm of the odds of being right, before the entry's offset.

        Raises:
            ValueError: the evidence has other signals than the model was fitted on.
        """
        if evidence.names != self.names:
            raise ValueError(f"the evidence holds {evidence.names}; {self.names} is accepted")
        terms = zip(evidence.values, self.mean, self.scale, self.weights, strict=True)
        return self.intercept + sum(weight * (value - mean) / scale for value, mean, scale, weight in terms)

    def offset(self, labels: Sequence[tuple[float, bool]]) -> float:
        """The likeliest offset of an entry, in log odds; 0.0 without a label.

        Args:
            labels: for each of the entry's labels, the log odds that the model gave and whether the answer was right.
        """
        # The slope of the log posterior falls in the offset, and its root lies within what all labels can move.
        low = high = 0.0
        for _, right in labels:
            high += self.offset_variance * right
            low -= self.offset_variance * (not right)
        for _ in range(60):
            middle = 0.5 * (low + high)
            pull = sum(right - sigmoid(log_odds + middle) for log_odds, right in labels)
            if pull > middle / self.offset_variance:
                low = middle
            else:
                high = middle
        return 0.5 * (low + high)


def fit_model(
    evidence: Sequence[Evidence], right: Sequence[bool], entries: Sequence[str], *, penalty: float = 1.0
) -> HitModel:
    """Fit the weights by Newton's method and the offsets' variance by marginal likelihood (empirical Bayes).

    A weak prior around 1 decides the variance where no entry has two labels.

    Args:
        evidence: what was known about each labelled candidate, all with the same signals.
        right: the labels.
        entries: whose labels they are.
        penalty: of the squared standardised weights; as much as so many labels say against a weight of 1.

    Raises:
        ValueError: nothing is given, the lengths or signals differ, or the penalty is not positive.
    """
    if not evidence or not len(evidence) == len(right) == len(entries):
        lengths = f"{len(evidence)}, {len(right)} and {len(entries)}"
        raise ValueError(f"evidence, right and entries have {lengths} items; as many of each, at least 1, are accepted")
    names = evidence[0].names
    for item in evidence:
        if item.names != names:
            raise ValueError(f"evidence holds {names} and {item.names}; the same names throughout are accepted")
    _check_positive("penalty", penalty)
    values = np.array([item.values for item in evidence], dtype=np.float64)
    mean, scale = values.mean(axis=0), values.std(axis=0)
    # A value that never changes says nothing; rounding must not make a scale of it.
    scale[scale < 1e-9 * (1.0 + np.abs(mean))] = 1.0
    design = np.column_stack([np.ones(len(values)), (values - mean) / scale])
    labels = np.array(right, dtype=np.float64)
    ridge = np.full(design.shape[1], penalty)
    ridge[0] *= _INTERCEPT_PENALTY
    weights = _newton(design, labels, ridge)
    return HitModel(
        names=names,
        mean=tuple(mean.tolist()),
        scale=tuple(scale.tolist()),
        weights=tuple(weights[1:].tolist()),
        intercept=float(weights[0]),
        offset_variance=_offset_variance(design @ weights, labels, entries),
    )


@dataclass(frozen=True, slots=True)
class Certificate:
    """What the labels prove about serving from a threshold on."""

    threshold: float | None
    """The loosest threshold that passed; None where none did."""
    upper: float
    """Upper bound on the share of wrong hits at the threshold; 1.0 without one."""
    errors: int
    """Wrong ones among the labelled would-be hits at the threshold."""
    labels: int
    """Labelled would-be hits at the threshold."""
    passed: tuple[float, ...]
    """Every threshold that passed, from strict to loose."""


def certify(
    scores: Sequence[float] | NDArray[np.float64],
    right: Sequence[bool] | NDArray[np.bool_],
    max_error: float,
    alpha: float,
    ladder: Sequence[float],
    *,
    false_accept: float = 0.0,
    spare: int = 0,
) -> Certificate:
    """The loosest threshold from which on wrong answers are proven to be at most `max_error` of the served hits.

    Fixed-sequence testing: the ladder is walked from strict to loose; at each threshold the Clopper-Pearson upper bound
    of the wrong share among labelled candidates with `score >= threshold` must not exceed `max_error`; the first
    failure ends the walk. Because every test before a wrong acceptance must have passed, `alpha` needs no correction
    for their number: with probability at least 1 - alpha the wrong share of future hits is within `max_error`.

    Thresholds with so few labels that even `spare` errors, by default none, would fail are left out of the sequence.
    As hits only grow in number down the ladder, these are always the first ones, and no threshold after a tested one
    is ever left out. Leaving them out looks at how many labels there are, not at what they say, and costs no confidence
    as long as stricter hits are not wrong more often than looser ones; whoever cannot assume that starts the ladder at
    a threshold chosen on other data.

    Assumed: labelled candidates and future ones are exchangeable; ladder, model and offsets were made without these
    labels (an entry's offset may use its earlier labels, never the one it is scored for).

    Source: Angelopoulos, Bates, Candès, Jordan and Lei, Learn then Test (2021), fixed-sequence testing; Rogan and
    Gladen, American Journal of Epidemiology 107 (1978), for the labeller's errors.

    Args:
        scores: of the labelled candidates; higher is safer.
        right: their labels.
        max_error: share of served hits that may be wrong.
        alpha: probability with which the promise may fail.
        ladder: thresholds from strict to loose, fixed in advance.
        false_accept: probability that the labeller calls a wrong answer right, or an upper bound on it. An observed
            wrong share e then stands for a true one of up to e / (1 - false_accept). That it may also call right
            answers wrong is not counted in our favour.
        spare: errors that the first tested threshold must have labels enough to survive. The sequence then starts
            looser, but one unlucky label no longer ends it: worth it where labels are many.

    Raises:
        ValueError: an argument is out of range, or the ladder does not fall.
    """
    _check_share("max_error", max_error)
    _check_share("alpha", alpha)
    if not 0.0 <= false_accept < 1.0:
        raise ValueError(f"false_accept is {false_accept}; 0 or more and less than 1 is accepted")
    if spare < 0:
        raise ValueError(f"spare is {spare}; 0 or more is accepted")
    rungs = np.asarray(ladder, dtype=np.float64)
    if not np.all(np.isfinite(rungs)) or not np.all(np.diff(rungs) < 0.0):
        raise ValueError(f"ladder is {tuple(ladder)}; finite thresholds, each below the one before, are accepted")
    found = np.asarray(scores, dtype=np.float64)
    wrong = ~np.asarray(right, dtype=np.bool_)
    if found.ndim != 1 or found.shape != wrong.shape:
        raise ValueError(
            f"scores and right have shapes {found.shape} and {wrong.shape}; one label per score is accepted"
        )
    if not np.all(np.isfinite(found)):
        raise ValueError("scores hold numbers that are not finite; finite scores are accepted")
    order = np.argsort(-found, kind="stable")
    hits = np.searchsorted(-found[order], -rungs, side="right")
    errors_within = np.concatenate([[0], np.cumsum(wrong[order])])
    # Testing the observed share against this is testing the true share against max_error.
    observed = max_error * (1.0 - false_accept)
    passed: list[float] = []
    errors = labels = 0
    for rung, within in zip(rungs.tolist(), hits.tolist(), strict=True):
        if at_most(min(spare, within), within, observed) > alpha:
            continue
        wrong_within = int(errors_within[within])
        # The same as an upper bound of at most `observed`, for one sum instead of a search.
        if at_most(wrong_within, within, observed) > alpha:
            break
        passed.append(rung)
        errors, labels = wrong_within, within
    if not passed:
        return Certificate(None, 1.0, 0, 0, ())
    # Rounding in the search must not contradict the test.
    upper = min(max_error, upper_bound(errors, labels, alpha) / (1.0 - false_accept))
    return Certificate(passed[-1], upper, errors, labels, tuple(passed))


def even_ladder(strictest: float, loosest: float, rungs: int) -> tuple[float, ...]:
    """Thresholds on a probability, from strict to loose, at even steps of its log odds.

    Raises:
        ValueError: the ends are no probabilities in falling order, or there are fewer than 2 rungs.
    """
    if not 0.0 < loosest < strictest < 1.0:
        raise ValueError(
            f"strictest and loosest are {strictest} and {loosest}; 1 > strictest > loosest > 0 is accepted"
        )
    if rungs < 2:
        raise ValueError(f"rungs is {rungs}; 2 or more is accepted")
    first, last = (math.log(end / (1.0 - end)) for end in (strictest, loosest))
    return tuple(sigmoid(first + (last - first) * step / (rungs - 1)) for step in range(rungs))


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a candidate is served, and by which numbers."""

    serve: bool
    probability: float
    """Of being right, as the model has it. The promise does not rest on it but on the threshold."""
    threshold: float | None
    """The probability from which on candidates are served; None where nothing is certified."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Serves what the model finds likely enough. Without a certified threshold it serves nothing."""

    model: HitModel
    threshold: float | None
    """As `certify` gave it for probabilities."""
    max_error: float
    """The share of wrong hits that the threshold was certified for."""

    def __post_init__(self) -> None:
        if self.threshold is not None and not 0.0 <= self.threshold <= 1.0:
            raise ValueError(f"threshold is {self.threshold}; 0 to 1, or None to serve nothing, is accepted")
        _check_share("max_error", self.max_error)

    def decide(self, evidence: Evidence, offset: float = 0.0) -> Decision:
        """Serve or not.

        Args:
            evidence: about the candidate.
            offset: of its entry, as `HitModel.offset` gives it.

        Raises:
            ValueError: the evidence has other signals than the model was fitted on, or the offset is not finite.
        """
        if not math.isfinite(offset):
            raise ValueError(f"offset is {offset}; a finite number of log odds is accepted")
        probability = sigmoid(self.model.log_odds(evidence) + offset)
        serve = self.threshold is not None and probability >= self.threshold
        return Decision(serve, probability, self.threshold)

    def to_plain(self) -> dict[str, object]:
        """The rule as a value that JSON carries without loss."""
        return {"schema": _SCHEMA} | asdict(self)

    @classmethod
    def from_plain(cls, value: object) -> Rule:
        """The rule that `to_plain` wrote, before or after its way through JSON.

        Raises:
            ValueError: it is of another schema, or a field is missing or wrong.
        """
        if not isinstance(value, Mapping) or value.get("schema") != _SCHEMA:
            found = value.get("schema") if isinstance(value, Mapping) else type(value).__name__
            raise ValueError(f"the rule's schema is {found!r}; {_SCHEMA} is accepted")
        try:
            return msgspec.convert(value, cls)
        except msgspec.ValidationError as error:
            raise ValueError(f"the rule cannot be read: {error}") from error


def sigmoid(log_odds: float) -> float:
    """The probability that has these log odds."""
    if log_odds >= 0.0:
        return 1.0 / (1.0 + math.exp(-log_odds))
    odds = math.exp(log_odds)
    return odds / (1.0 + odds)


def _newton(
    design: NDArray[np.float64], labels: NDArray[np.float64], ridge: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Weights `[values]` of the ridge logistic regression of labels `[n]` on a design `[n, values]`."""

    def loss(weights: NDArray[np.float64]) -> float:
        log_odds = design @ weights
        return float(np.logaddexp(0.0, log_odds).sum() - labels @ log_odds + 0.5 * ridge @ weights**2)

    weights = np.zeros(design.shape[1])
    now = loss(weights)
    for _ in range(_NEWTON_STEPS):
        expected = _sigmoids(design @ weights)
        slope = design.T @ (expected - labels) + ridge * weights
        curvature = (design * (expected * (1.0 - expected))[:, None]).T @ design + np.diag(ridge)
        step = np.linalg.solve(curvature, slope)
        # Far from the optimum a full step can lead away from it.
        while (then := loss(weights - step)) > now and np.abs(step).max() > 1e-12:
            step *= 0.5
        if then >= now:
            break
        weights, now = weights - step, then
    return weights


def _offset_variance(log_odds: NDArray[np.float64], labels: NDArray[np.float64], entries: Sequence[str]) -> float:
    """The candidate variance under which the labels of all entries are likeliest, offsets integrated out."""
    nodes, shares = np.polynomial.hermite_e.hermegauss(21)
    shares /= shares.sum()
    row_of = np.unique(np.array(entries), return_inverse=True)[1]
    signs = np.where(labels > 0.0, 1.0, -1.0)[:, None]

    def log_likelihood(variance: float) -> float:
        # Spread out by what the offsets flatten: then only how labels of one entry agree tells variances apart.
        spread = log_odds[:, None] * math.sqrt(1.0 + _FLATTENING * variance)
        of_label = -np.logaddexp(0.0, -signs * (spread + math.sqrt(variance) * nodes))
        of_entry = np.zeros((int(row_of.max()) + 1, len(nodes)))
        np.add.at(of_entry, row_of, of_label)
        peak = of_entry.max(axis=1, keepdims=True)
        likelihood = float((peak[:, 0] + np.log(np.exp(of_entry - peak) @ shares)).sum())
        return likelihood - 0.5 * (math.log(variance) / _OFFSET_VARIANCE_SPREAD) ** 2

    return max(_OFFSET_VARIANCES, key=log_likelihood)


def _sigmoids(log_odds: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.exp(-np.logaddexp(0.0, -log_odds))


def _check_share(name: str, value: float) -> None:
    if not 0.0 < value < 1.0:
        raise ValueError(f"{name} is {value}; more than 0 and less than 1 is accepted")


def _check_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0.0):
        raise ValueError(f"{name} is {value}; a finite number above 0 is accepted")
