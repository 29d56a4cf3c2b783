"""Watch over what is served by meaning: entries found wrong are held back, and so are hits of a kind that proved bad.

One watch serves all teams, and gateways with one journal agree on it. Its promise is about the rule, and the rule is
one for all; a team or a gateway by itself has too few hits to say anything soon. What it holds back is the team's own
all the same: an entry belongs to one scope.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from headgate.cache.audits.audit import Audit, Auditor, Interval
from headgate.cache.audits.entry_labels import Note, standing, takes_vote
from headgate.cache.audits.label_log import LabelLog, LabelRecord, Source
from headgate.cache.audits.labels import Label
from headgate.cache.bound import HitModel
from headgate.cache.store.base import Store
from headgate.cache.store.journal import Journal
from headgate.cache.verdict import Entry, Hit, Near

logger = logging.getLogger(__name__)

Held = Literal["quarantine", "labels", "audit"]
"""Why a candidate is not served that the rule would serve: an audit or users found its entry wrong, its entry's labels
say that it is less likely right than others, or its kind of hit proved wrong too often."""


class _Rise(msgspec.Struct, array_like=True, frozen=True):
    """The threshold that gateways agree on; the highest version is the latest."""

    version: int
    threshold: float | None


@dataclass(frozen=True, slots=True)
class Quarantined:
    """An entry that is held back."""

    key: str
    model: str
    """Id of the model that wrote it."""
    created: float
    """When the answer was stored, in seconds since the epoch."""
    expires: float
    found: float | None
    """When the last label called it wrong; None where the log has forgotten, or users did."""
    wrong: int
    """How many labels and users did."""


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
        journal: Journal | None = None,
        voices: int = 0,
    ) -> None:
        """A watch that holds nothing back yet.

        Args:
            store: keeps the labels of each entry beside it.
            auditor: draws the audits and bounds the share of wrong hits.
            ladder: thresholds on the score by which hits are served, to rise on after breaches.
            threshold: the one that the rule serves from.
            log: takes every label.
            clock: seconds since the epoch.
            journal: keeps the raised threshold and the auditor's counts, for later starts and other gateways; None
                keeps them to this process.
            voices: so many users that call an entry wrong hold it back; 0: none do.
        """
        self._store, self._auditor, self._ladder, self._clock = store, auditor, tuple(ladder), clock
        self._journal = journal
        self._voices = voices
        self._base = threshold
        self._rise = _Rise(0, threshold)
        self.log = log
        """Every label there was, as far as they are remembered."""
        self.rule = ""
        """The rule whose hits are watched."""
        self._model: HitModel | None = None
        self._counted: dict[str, int] = {}
        self._held: dict[str, float] = {}
        self._unnoted: set[str] = set()
        self.breaches = 0
        """How often the threshold had to rise, by what this process saw."""
        store.on_forget(self._forget)

    @property
    def threshold(self) -> float | None:
        """Score from which on hits are served; None: no more."""
        return self._rise.threshold

    @property
    def quarantined(self) -> int:
        """Entries that this process knows to be held back."""
        return len(self._held)

    @property
    def evidence_names(self) -> tuple[str, ...]:
        """What the values of a label's evidence are, for labels of this rule."""
        return () if self._model is None else self._model.names

    def interval(self) -> Interval:
        """The share of wrong hits since the threshold rose last, as far as the audits tell."""
        return self._auditor.interval()

    async def resume(self, rule: str, model: HitModel | None) -> None:
        """Watch a rule's hits, from where the journal says that the last ones were left.

        Args:
            rule: names the rule: thresholds, counts and log odds of another are not its own.
            model: gives entries' offsets; None gives them none.

        Raises:
            OSError: the journal or the store cannot be reached. Then the watch begins anew, and `sync` catches up.
        """
        self.rule, self._model = rule, model
        await self.log.load()
        for record in self.log:
            if record.source == "audit" and not record.right:
                await self._known(record.entry_key)
        if self._journal is not None:
            await self.sync(await self._journal.values())

    async def holds(self, entry: Entry, score: float) -> Held | None:
        """Why a candidate that the rule would serve is held back; None where it is not.

        What labels say of the entry can only hold it back. That they call it right lowers no bar: what is served is
        then part of what the threshold was certified for.

        Args:
            entry: the candidate.
            score: on the scale of the ladder.

        Raises:
            OSError: the store cannot be asked.
        """
        if self._rise.threshold is None or score < self._rise.threshold:
            return "audit"
        if entry.key in self._unnoted and self._held.get(entry.key) == entry.created:
            return "quarantine"
        notes = await self._store.notes(entry.key)
        found = standing(notes, entry.created, self.rule, self._model, self._voices)
        if found.held:
            self._held[entry.key] = entry.created
            return "quarantine"
        self._held.pop(entry.key, None)
        return "labels" if score + min(0.0, found.offset) < self._rise.threshold else None

    def draw(self, entry_key: str, request_id: str, share: float | None = None) -> Audit:
        """Count a served hit and say whether it is audited; see `Auditor.draw`."""
        return self._auditor.draw(entry_key, request_id, share)

    async def audited(self, audit: Audit, hit: Hit, label: Label) -> None:
        """Take the label of an audited hit: count it, hold the entry back if it was wrong, rise if too many were."""
        if not label.right:
            self._held[hit.entry.key] = hit.entry.created
            logger.warning("an audit found a stored answer wrong; it is not served to similar questions any more")
        await self._note(hit, None, label, "audit")
        if self._auditor.label(audit, label.right) and self._auditor.breach:
            await self._rises()

    async def answered(self, near: Near, label: Label) -> None:
        """Take the label of an entry that was near, from a generation that was made anyway."""
        await self._note(near, near.reason, label, "near")

    async def voted(self, key: str, served: float, right: bool, voice: str) -> bool:
        """Take what a user says of an answer that was served or stored under a key; False where it changes nothing.

        Args:
            key: of the entry.
            served: when, in seconds since the epoch: a younger answer under that key is another one.
            right: what the user says.
            voice: names the user to nobody; each has one vote.

        Raises:
            OSError: the store cannot be reached.
        """
        entry = await self._store.get(key) if self._voices else None
        if entry is None or entry.created > served:
            return False
        notes = await self._store.notes(key)
        if not takes_vote(notes, entry.created, voice, right):
            return False
        note = msgspec.msgpack.encode(Note(entry.created, right, "vote", voice=voice))
        if not await self._store.note(key, note):
            return False
        if standing((*notes, note), entry.created, self.rule, self._model, self._voices).held:
            self._held[key] = entry.created
        return True

    async def quarantine(self) -> list[Quarantined]:
        """The entries that are held back, by whichever gateway, as far as its label log goes.

        Raises:
            OSError: the journal or the store cannot be reached.
        """
        await self.log.load()
        found_at = {r.entry_key: r.at for r in self.log if r.source == "audit" and not r.right}
        listed = []
        for key in sorted({*found_at, *self._held}):
            entry, wrong = await self._known(key)
            if entry is not None and key in self._held:
                known = found_at.get(key)
                listed.append(Quarantined(key, entry.model, entry.created, entry.expires, known, max(1, wrong)))
        return listed

    async def lift(self, key: str) -> bool:
        """Serve an entry again as if nothing had been said of it. False where it was not held back.

        Raises:
            OSError: the store cannot be reached, or keeps no notes.
        """
        entry, _ = await self._known(key)
        if entry is None or key not in self._held:
            return False
        if not await self._store.note(key, msgspec.msgpack.encode(Note(entry.created, None))):
            raise OSError("the store is full")
        self._forget(key)
        return True

    async def lower(self) -> bool:
        """Take the threshold back to the rule's own, with a clean sheet. False where it had not risen.

        Raises:
            OSError: the journal cannot be reached: other gateways and later starts do not hear of it yet.
        """
        if self._rise.threshold == self._base:
            return False
        self._turn(_Rise(self._rise.version + 1, self._base))
        logger.warning("hits are served from %.4g on again", self._base)
        await self._tell()
        return True

    async def sync(self, values: Mapping[str, bytes]) -> None:
        """Agree with other gateways: take over a later threshold, and count each other's hits and labels.

        Args:
            values: of the journal, as they are now.

        Raises:
            OSError: the journal cannot be reached.
        """
        if self._journal is None or not self.rule:
            return
        await self.log.write()
        theirs = _read_rise(values.get(f"threshold:{self.rule}"))
        if theirs.version > self._rise.version:
            self._turn(theirs)
            told = "no more" if theirs.threshold is None else f"from {theirs.threshold:.4g} on"
            logger.warning("the journal says that hits are served %s", told)
        elif theirs.version < self._rise.version:
            await self._tell()
        await self._count(values)

    async def _count(self, values: Mapping[str, bytes]) -> None:
        """Give the journal what came since the last time, and take what it has from others."""
        assert self._journal is not None
        prefix, version = f"audits:{self.rule}:{self._rise.version}:", self._rise.version
        theirs = {n.removeprefix(prefix): int(v) for n, v in values.items() if n.startswith(prefix)}
        if any(theirs.get(name, 0) < count for name, count in self._counted.items()):
            # The journal was lost. What it knew of others cannot be had again; what is begun anew is sound.
            self._auditor.begin()
            self._counted = {}
        own = {n: count - self._counted.get(n, 0) for n, count in self._auditor.counts().items()}
        own = {name: count for name, count in own.items() if count}
        if own:
            told = await self._journal.add({prefix + name: count for name, count in own.items()})
            theirs |= {name.removeprefix(prefix): count for name, count in told.items()}
        if version != self._rise.version:
            return
        if theirs != self._counted or own:
            # Meanwhile more may have come here, which the next time counts.
            now, sent = self._auditor.counts(), {n: self._counted.get(n, 0) + c for n, c in own.items()}
            rest = {n: c - sent.get(n, self._counted.get(n, 0)) for n, c in now.items()}
            self._auditor.replace({n: theirs.get(n, 0) + rest.get(n, 0) for n in {*theirs, *rest}})
            self._counted = theirs
            if self._auditor.breach:
                await self._rises()

    async def _note(self, found: Hit | Near, against: str | None, label: Label, source: Source) -> None:
        entry, evidence = found.entry, found.evidence
        record = LabelRecord(
            entry.key,
            entry.created,
            found.similarity,
            against,
            label.right,
            label.kind,
            source,
            self._clock(),
            self.rule,
            None if evidence is None or self._model is None else self._model.log_odds(evidence),
            () if evidence is None else evidence.values,
        )
        self.log.add(record)
        try:
            # However many questions come close to it, an entry that an audit found wrong stays so.
            passing = source == "near" or label.right
            noted = await self._store.note(entry.key, msgspec.msgpack.encode(Note.of(record)), passing=passing)
            await self.log.write()
        except OSError:
            noted = False
        if not noted and source == "audit" and not label.right and entry.key in self._held:
            # Here it is held back all the same; others find out by themselves.
            self._unnoted.add(entry.key)
            logger.warning("the store did not keep a label: other gateways do not hear of the wrong answer")

    async def _rises(self) -> None:
        before, found = self._rise.threshold, self._auditor.interval()
        assert before is not None, "nothing is served and audited without a threshold"
        after = min((rung for rung in self._ladder if rung > before), default=None)
        self._turn(_Rise(self._rise.version + 1, after))
        self.breaches += 1
        logger.warning(
            "audits show more wrong hits than allowed (at least %.2f %% of %d, %d labels): hits are served %s",
            100.0 * found.lower,
            found.hits,
            found.labels,
            "no more" if after is None else f"from {after:.4g} instead of {before:.4g} on",
        )
        try:
            await self._tell()
        except OSError:
            logger.warning("the journal does not hear of the raised threshold yet")

    def _turn(self, rise: _Rise) -> None:
        """Serve from another threshold on, with a clean sheet."""
        self._rise = rise
        self._auditor.begin()
        self._counted = {}

    async def _tell(self) -> None:
        if self._journal is not None and self.rule:
            await self._journal.set(f"threshold:{self.rule}", msgspec.msgpack.encode(self._rise))

    async def _known(self, key: str) -> tuple[Entry | None, int]:
        """An entry and its wrong labels, after noting whether it is held back."""
        entry = await self._store.get(key)
        if entry is None:
            self._forget(key)
            return None, 0
        found = standing(await self._store.notes(key), entry.created, self.rule, self._model, self._voices)
        if found.held:
            self._held[key] = entry.created
        elif key not in self._unnoted or self._held.get(key) != entry.created:
            self._forget(key)
        return entry, found.wrong

    def _forget(self, key: str) -> None:
        self._held.pop(key, None)
        self._unnoted.discard(key)


def _read_rise(packed: bytes | None) -> _Rise:
    try:
        return _Rise(0, None) if packed is None else msgspec.msgpack.decode(packed, type=_Rise)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _Rise(0, None)
