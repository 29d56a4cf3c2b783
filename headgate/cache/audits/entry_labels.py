"""How an entry stands by its own labels: held back or not, and how much likelier to be right or wrong than others.

The labels are notes beside the entry in the store. So all gateways see them, they outlive each of them, and they go
with the answer they are about. What users say of it is noted there as well, a vote a voice: that holds an entry back
where enough of them agree, and moves no rule, because nobody knows how often they err.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import msgspec

from headgate.cache.audits.label_log import LabelRecord, Source
from headgate.cache.bound import HitModel

VOTES = 12
"""Notes of votes that an entry takes: its labels find room beside them, and push none of them out, as those pass."""
VOTES_OF_ONE = 2
"""Those of one voice: it may change its mind once."""


class Note(msgspec.Struct, array_like=True, frozen=True):
    """One label of an entry, or that what labels said before is lifted."""

    created: float
    """`Entry.created` of the answer it is about: a newer one under the same key is another answer."""
    right: bool | None
    """None lifts."""
    source: Source | Literal["vote"] = "audit"
    rule: str = ""
    log_odds: float | None = None
    voice: str = ""
    """Whose vote it is."""

    @staticmethod
    def of(record: LabelRecord) -> Note:
        """The note of a label."""
        return Note(record.created, record.right, record.source, record.rule, record.log_odds)


@dataclass(frozen=True, slots=True)
class Standing:
    """What an entry's labels say together."""

    held: bool
    """An audit found it wrong, or voters did, and nobody has lifted that."""
    offset: float
    """In log odds, to add to what the model says of its candidates; 0.0 without labels."""
    wrong: int
    """Labels of audits and voices that call it wrong."""


def standing(notes: Iterable[bytes], created: float, rule: str, model: HitModel | None, voices: int = 0) -> Standing:
    """Read an entry's notes.

    One wrong label of an audit holds it back, and so do `voices` voices that call it wrong where fewer call it right.
    Its offset `b` is the likeliest one under a normal prior:

        b = argmax  sum_i log P(y_i | l_i + b) - b^2 / (2 v),   P(1 | x) = 1 / (1 + exp(-x))

    over its labels `y_i`, 1 for right, with the log odds `l_i` that the model gave before each. The variance `v` is
    that of the entries the model was fitted on, by marginal likelihood: the fewer the labels and the more
    alike entries are, the closer `b` is to 0 (empirical Bayes: Efron and Morris, JASA 68 (1973)).

    Args:
        notes: as the store has them, the oldest first. Those of other answers, rules and versions are left out.
        created: `Entry.created`.
        rule: whose log odds count.
        model: of that rule; without one the offset is 0.
        voices: that hold it back; 0: none do.
    """
    labels: list[tuple[float, bool]] = []
    votes: dict[str, bool] = {}
    wrong = 0
    for packed in notes:
        note = _read(packed)
        if note is None or note.created != created:
            continue
        if note.right is None:
            labels, votes, wrong = [], {}, 0
            continue
        if note.source == "vote":
            votes[note.voice] = note.right
            continue
        wrong += note.source == "audit" and not note.right
        if note.log_odds is not None and note.rule == rule:
            labels.append((note.log_odds, note.right))
    against = sum(not right for right in votes.values())
    outvoted = 0 < voices <= against and 2 * against > len(votes)
    return Standing(wrong > 0 or outvoted, 0.0 if model is None else model.offset(labels), wrong + against)


def takes_vote(notes: Iterable[bytes], created: float, voice: str, right: bool) -> bool:
    """Whether a voice's vote is news of an entry, and there is room for it.

    An entry takes `VOTES` votes until what is said of it is lifted, and of one voice `VOTES_OF_ONE`. So nobody can push
    out of its notes what others said.
    """
    votes: list[Note] = []
    for packed in notes:
        note = _read(packed)
        if note is None or note.created != created:
            continue
        if note.right is None:
            votes = []
        elif note.source == "vote":
            votes.append(note)
    own = [note.right for note in votes if note.voice == voice]
    return len(votes) < VOTES and len(own) < VOTES_OF_ONE and own[-1:] != [right]


def _read(packed: bytes) -> Note | None:
    try:
        return msgspec.msgpack.decode(packed, type=Note)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
