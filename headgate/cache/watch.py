"""Watch over what is served by meaning: entries found wrong are held back, and so are hits of a kind that proved bad.

One watch serves all teams. Its promise is about the rule, and the rule is one for all; a team by itself has too few
hits to say anything soon. What it holds back is the team's own all the same: an entry belongs to one scope.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Literal

from headgate.cache.audit import Audit, Auditor, Interval, Quarantine
from headgate.cache.label_log import LabelLog, LabelRecord, Source
from headgate.cache.labels import Label
from headgate.cache.store.base import Store
from headgate.cache.verdict import Entry, Hit, Near

logger = logging.getLogger(__name__)

Held = Literal["quarantine", "audit"]
"""Why a candidate is not served that the rule would serve: its entry was found wrong, or its kind of hit was."""

_MARK = "quarantine:"


class Watch:
    """Says what may not be served, and learns it from labels. All calls come from one event loop."""

    def __init__(
        self,
        store: Store,
        auditor: Auditor,
        ladder: Sequence[float],
        threshold: float,
        log: LabelLog,
        clock: Callable[[], float],
    ) -> None:
        """A watch that holds nothing back yet.

        Args:
            store: keeps the marks of entries found wrong, so that other processes and later ones see them.
            auditor: draws the audits and bounds the share of wrong hits.
            ladder: thresholds on the score by which hits are served, to rise on after breaches.
            threshold: the one that the rule serves from.
            log: takes every label.
            clock: seconds since the epoch.
        """
        self._store, self._auditor, self._ladder, self._clock = store, auditor, tuple(ladder), clock
        self._threshold: float | None = threshold
        self._log = log
        self._quarantine = Quarantine()
        self._versions: dict[str, float] = {}
        self._breaches = 0
        store.on_forget(self._forget)

    @property
    def threshold(self) -> float | None:
        """Score from which on hits are served; None: no more."""
        return self._threshold

    @property
    def quarantined(self) -> int:
        """Entries that this process found wrong and that are still stored."""
        return len(self._quarantine)

    @property
    def breaches(self) -> int:
        """How often the threshold had to rise."""
        return self._breaches

    @property
    def log(self) -> LabelLog:
        """Every label there was, as far as they are remembered."""
        return self._log

    def interval(self) -> Interval:
        """The share of wrong hits since the threshold rose last, as far as the audits tell."""
        return self._auditor.interval()

    async def holds(self, entry: Entry, score: float) -> Held | None:
        """Why a candidate that the rule would serve is held back; None where it is not.

        Args:
            entry: the candidate.
            score: on the scale of the ladder.

        Raises:
            OSError: the store cannot be asked.
        """
        if self._threshold is None or score < self._threshold:
            return "audit"
        if entry.key in self._quarantine and self._versions[entry.key] == entry.created:
            return "quarantine"
        mark = await self._store.get(_MARK + entry.key)
        return "quarantine" if mark is not None and mark.created == entry.created else None

    def draw(self, entry_key: str, request_id: str, share: float | None = None) -> Audit:
        """Count a served hit and say whether it is audited; see `Auditor.draw`."""
        return self._auditor.draw(entry_key, request_id, share)

    async def audited(self, audit: Audit, hit: Hit, label: Label) -> None:
        """Take the label of an audited hit: count it, hold the entry back if it was wrong, rise if too many were."""
        self._note(hit, None, label, "audit")
        if not label.right:
            await self._hold(hit.entry)
        if self._auditor.label(audit, label.right) and self._auditor.breach:
            self._rise()

    def answered(self, near: Near, label: Label) -> None:
        """Take the label of an entry that was near, from a generation that was made anyway."""
        self._note(near, near.reason, label, "near")

    def _note(self, found: Hit | Near, against: str | None, label: Label, source: Source) -> None:
        self._log.add(
            LabelRecord(found.entry.key, found.similarity, against, label.right, label.kind, source, self._clock())
        )

    async def _hold(self, entry: Entry) -> None:
        self._quarantine.label(entry.key, False, principal="", author="")
        self._versions[entry.key] = entry.created
        logger.warning("an audit found a stored answer wrong; it is not served to similar questions any more")
        mark = Entry(_MARK + entry.key, "", (), entry.model, 0, 0, 0.0, entry.created, entry.expires)
        try:
            await self._store.put(mark, frozenset())
        except OSError:
            # Here it is held back all the same; others find out by themselves.
            logger.warning("the store does not answer: other processes do not hear of the wrong answer")

    def _rise(self) -> None:
        before, found = self._threshold, self._auditor.interval()
        assert before is not None, "nothing is served and audited without a threshold"
        self._threshold = self._auditor.tighten(self._ladder, before)
        self._breaches += 1
        logger.warning(
            "audits show more wrong hits than allowed (at least %.2f %% of %d, %d labels): hits are served %s",
            100.0 * found.lower,
            found.hits,
            found.labels,
            "no more" if self._threshold is None else f"from {self._threshold:.4g} instead of {before:.4g} on",
        )

    def _forget(self, key: str) -> None:
        self._quarantine.forget(key)
        self._versions.pop(key, None)
