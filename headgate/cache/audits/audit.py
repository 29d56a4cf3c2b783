"""Audits of served hits: how often they are wrong, with an interval that holds whenever one looks at it."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_COUNTS = ("audited", "labels", "wrong")
_UNIT_BITS = 53
_BISECTIONS = 30
# Shares of the capital that the bettors of either side stake, equal parts of the start capital each. The best stake
# against a share too low is about the audited excess, which may be tiny; against one too high, what part of it is not
# there, which may be all of it.
_STAKES_ABOVE = 2.0 ** -np.arange(1.0, 16.0)
_STAKES_BELOW = np.array([0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 0.95, 1.0])


@dataclass(frozen=True, slots=True)
class Audit:
    """Whether one served hit is audited."""

    request_id: str
    audited: bool
    share: float
    """The probability with which it was to be audited."""
    sequence: int
    """Which of the auditor's sequences it belongs to."""


@dataclass(frozen=True, slots=True)
class Interval:
    """What the audits of one sequence say about the share of wrong hits."""

    lower: float
    upper: float
    estimate: float | None
    """Share of wrong labels, each weighted by the inverse of its hit's audit probability; None before the first. It is
    of what the labels say, not corrected for how often they err."""
    hits: int
    """Served hits, audited or not."""
    audited: int
    """Those of them that were chosen for an audit."""
    labels: int
    """Those of them whose label has come."""


class Auditor:
    """Chooses which served hits are audited and bounds the share of wrong ones among all served hits.

    Every hit stands for `wrong / probability` where it was audited and 0 where it was not, whose mean is the wrong
    share whatever the probabilities. For each share that could be true, bettors stake fixed parts of their capital on
    the mean being above it, others on its being below. If it is the true one, their mean capital stays under 2 / alpha
    for ever with probability 1 - alpha / 2, so a share at which it does not is ruled out (Ville). So the interval holds
    at all times together: one may look as often as one likes and stop when one likes.

    An audited hit without a label counts as right for the lower bound and as wrong for the upper one: labels may come
    late, in any order or never, and neither bound is wrong by it.

    Labels may be wrong too: a hit that is right is called wrong with a probability of at most `false_reject`, one that
    is wrong is called right with one of at most `false_accept`. The share that is called wrong then lies between
    `wrong * (1 - false_accept)` and `wrong + (1 - wrong) * false_reject`, and either bound is widened by what that
    leaves open (Rogan and Gladen, American Journal of Epidemiology 107 (1978)).

    Assumed: within a sequence every hit is wrong with the same probability,
    given what came before. If that probability changes, a breach still says, at the same alpha, that its average over
    the hits so far was above `max_error`, because the stakes never change.

    Source: Waudby-Smith and Ramdas, Journal of the Royal Statistical Society B 86 (2024), the diversified bets; with
    inverse propensities as Waudby-Smith, Wu, Ramdas, Karampatziakis and Mineiro (2022).
    """

    def __init__(
        self,
        max_error: float,
        share: float,
        alpha: float,
        secret: bytes,
        *,
        false_accept: float = 0.0,
        false_reject: float = 0.0,
    ) -> None:
        """An auditor at the start of its first sequence.

        Args:
            max_error: share of wrong hits that is promised.
            share: probability with which a hit is audited, unless it is raised.
            alpha: probability with which a sequence's interval may ever fail, half of it on either side.
            secret: up to 64 bytes; who does not know them cannot tell which hits are audited.
            false_accept: probability that a label calls a wrong answer right, or an upper bound on it. It widens the
                interval upwards.
            false_reject: probability that a label calls a right answer wrong, or an upper bound on it. It widens the
                interval downwards, and a breach must rise above it.

        Raises:
            ValueError: an argument is out of range.
        """
        for name, value in (("max_error", max_error), ("alpha", alpha)):
            if not 0.0 < value < 1.0:
                raise ValueError(f"{name} is {value}; more than 0 and less than 1 is accepted")
        if not 0.0 < share <= 1.0:
            raise ValueError(f"share is {share}; more than 0 and up to 1 is accepted")
        for name, value in (("false_accept", false_accept), ("false_reject", false_reject)):
            if not 0.0 <= value < 1.0:
                raise ValueError(f"{name} is {value}; 0 or more and less than 1 is accepted")
        if not 1 <= len(secret) <= hashlib.blake2b.MAX_KEY_SIZE:
            raise ValueError(f"secret has {len(secret)} bytes; 1 to {hashlib.blake2b.MAX_KEY_SIZE} are accepted")
        # The share that is called wrong, at most, where the promise is kept.
        self._most_called_wrong = max_error + (1.0 - max_error) * false_reject
        self._share = share
        self._enough = math.log(2.0 / alpha)
        self._secret = secret
        self._false_accept = false_accept
        self._false_reject = false_reject
        self._sequence = -1
        self.begin()

    def draw(self, entry_key: str, request_id: str, share: float | None = None) -> Audit:
        """Count a served hit and say whether it is audited: the same for the same key, request and probability.

        Args:
            entry_key: of the entry that was served.
            request_id: distinct for every request. Serving one twice would audit both or neither.
            share: probability for this hit, where something raises it, such as idle slots. It may depend on anything
                known before the label. A hit audited at a lower probability is audited at a higher one too.

        Raises:
            ValueError: `share` is below the auditor's own or above 1.
        """
        share = self._share if share is None else share
        if not self._share <= share <= 1.0:
            raise ValueError(f"share is {share}; {self._share}, the auditor's own, to 1 is accepted")
        audited = self._uniform(entry_key, request_id) < share
        self._hits += 1
        if audited:
            self._audited[share] += 1
        return Audit(request_id, audited, share, self._sequence)

    def label(self, audit: Audit, right: bool) -> bool:
        """Take the label of an audited hit, once. False where its sequence is over, so that it does not count here.

        Raises:
            ValueError: the hit was not to be audited, or there are more labels than audits.
        """
        if not audit.audited:
            raise ValueError(
                f"the hit of {audit.request_id} was not drawn for an audit; only those that were have labels"
            )
        if audit.sequence != self._sequence:
            return False
        if self._labels[audit.share] == self._audited[audit.share]:
            raise ValueError(
                f"every audit drawn at probability {audit.share} has its label; one label each is accepted"
            )
        self._labels[audit.share] += 1
        if not right:
            self._wrong[audit.share] += 1
            # Only a wrong hit can raise the capital, so no breach is missed by not looking elsewhere.
            if self._rules_out_up_to(self._most_called_wrong):
                self.breach = True
        return True

    def interval(self) -> Interval:
        """What is known now. Each bound is rounded away from the other."""
        labels = self._labels.total()
        weight = sum(count / share for share, count in self._labels.items())
        wrong = sum(count / share for share, count in self._wrong.items())
        lower = _turn(self._rules_out_up_to)[0] if wrong else 0.0
        upper = _turn(lambda share: not self._rules_out_from(share))[1]
        return Interval(
            lower=max(0.0, (lower - self._false_reject) / (1.0 - self._false_reject)),
            upper=min(1.0, upper / (1.0 - self._false_accept)),
            estimate=wrong / weight if labels else None,
            hits=self._hits,
            audited=self._audited.total(),
            labels=labels,
        )

    def begin(self) -> None:
        """Start a new sequence, as after a breach.

        Hits from another threshold are others, with another wrong share, so what the old ones earned or lost must not
        count for them. The new sequence starts with fresh capital and sees only hits drawn from here on, none of
        which was known when the old one ended, so its interval holds with the same alpha. Over all sequences together
        the chance that any fails is at most alpha times their number.
        """
        self._sequence += 1
        self._hits = 0
        self.breach = False
        """Whether the lower bound has ever exceeded `max_error` in this sequence."""
        # By audit probability: hits drawn, labels come, labels that say wrong.
        self._audited: Counter[float] = Counter()
        self._labels: Counter[float] = Counter()
        self._wrong: Counter[float] = Counter()

    def counts(self) -> dict[str, int]:
        """What this sequence has seen: `hits`, and `audited`, `labels` and `wrong` for each audit probability.

        The interval and a breach follow from these alone, in whatever order hits and labels came.
        """
        counts = {"hits": self._hits}
        for name in _COUNTS:
            counts |= {f"{name} {share!r}": count for share, count in self._counter(name).items() if count}
        return counts

    def replace(self, counts: Mapping[str, int]) -> None:
        """Go on with this sequence from other counts, such as the sum of several auditors'.

        Raises:
            ValueError: a name is none of `counts`, or its probability is below the auditor's own share.
        """
        found: dict[str, Counter[float]] = {name: Counter() for name in _COUNTS}
        for label, count in counts.items():
            name, _, share = label.partition(" ")
            if label == "hits":
                continue
            if name not in found or not share or not self._share <= float(share) <= 1.0:
                raise ValueError(
                    f"a count is named '{label}'; hits, and audited, labels or wrong with a probability "
                    f"from {self._share} to 1 are accepted"
                )
            found[name][float(share)] = count
        self._hits = counts.get("hits", 0)
        self._audited, self._labels, self._wrong = (found[name] for name in _COUNTS)
        if self._rules_out_up_to(self._most_called_wrong):
            self.breach = True

    def _counter(self, name: str) -> Counter[float]:
        return {"audited": self._audited, "labels": self._labels, "wrong": self._wrong}[name]

    def _uniform(self, entry_key: str, request_id: str) -> float:
        key = entry_key.encode("utf-8", "surrogatepass")
        mac = hashlib.blake2b(key=self._secret, digest_size=8)
        # The length goes first: without it ("ab", "c") and ("a", "bc") would share a draw.
        mac.update(len(key).to_bytes(8, "big"))
        mac.update(key)
        mac.update(request_id.encode("utf-8", "surrogatepass"))
        return (int.from_bytes(mac.digest(), "big") >> (64 - _UNIT_BITS)) / 2.0**_UNIT_BITS

    def _rules_out_up_to(self, share: float) -> bool:
        """Whether those who bet on a higher mean than `share` have won enough. If so, also for every lower share."""
        zeros = self._hits - self._wrong.total()
        capital = zeros * np.log1p(-_STAKES_ABOVE)
        for probability, count in self._wrong.items():
            capital += count * np.log1p(_STAKES_ABOVE * (1.0 / (probability * share) - 1.0))
        return _log_mean(capital) >= self._enough

    def _rules_out_from(self, share: float) -> bool:
        """Whether those who bet on a lower mean than `share` have won enough. If so, also for every higher share."""
        # The most that one hit can stand for decides how much may be staked without ever owing.
        room = 1.0 / self._share - share
        pending = self._audited - self._labels
        zeros = self._hits - self._wrong.total() - pending.total()
        capital = zeros * np.log1p(_STAKES_BELOW * share / room)
        with np.errstate(divide="ignore"):
            for probability, count in (self._wrong + pending).items():
                capital += count * np.log1p(-_STAKES_BELOW * (1.0 / probability - share) / room)
        return _log_mean(capital) >= self._enough


def _log_mean(logs: NDArray[np.float64]) -> float:
    """Logarithm of the mean of numbers given by their logarithms, at least one of them finite."""
    peak = logs.max()
    return float(peak + np.log(np.exp(logs - peak).mean()))


def _turn(holds: Callable[[float], bool]) -> tuple[float, float]:
    """The ends of a very short interval in which `holds`, true from 0 to somewhere, turns false; 1 counts as false."""
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        if holds(middle):
            low = middle
        else:
            high = middle
    return low, high
