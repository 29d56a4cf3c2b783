"""What the answer cache says of a request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from headgate.cache.bound import Evidence

HitKind = Literal["exact", "semantic"]


class StoredChoice(msgspec.Struct, frozen=True):
    """One finished choice of an answer, in the one form both streaming and plain replies are made from."""

    text: str
    finish_reason: str
    token_ids: tuple[int, ...] = ()
    """The answer's tokens, to serve as a draft when the entry is near but may not be served."""
    logprobs: bytes = b""
    """Encoded wire form of the choice's logprobs; empty where none were asked for."""
    beside: bytes = b""
    """Encoded calls of functions and reasoning; empty where the text is all that was said."""


class Entry(msgspec.Struct, frozen=True):
    """A stored answer. Times are seconds since the epoch.

    It and its choices are structs, which are made in a fifteenth of the time that a frozen dataclass takes: one is made
    for every hit and every candidate.
    """

    key: str
    text: str
    """The last user text the answer belongs to."""
    choices: tuple[StoredChoice, ...]
    model: str
    """The id of the model that wrote it."""
    prompt_tokens: int
    completion_tokens: int
    device_s: float
    """Device seconds its generation took: what a hit saves."""
    created: float
    expires: float
    sketch: bytes = b""
    """The text's wordpieces for the comparator, as `Comparator.pack` gives them; empty where there are none."""
    seal: bytes = b""
    """What the guards see in the text, as `guards.sealed` gives it; empty where it was not read."""
    image_tokens: int = 0
    """Of the prompt's tokens, those of its pictures. Entries of before they were counted have none."""


class Hit(msgspec.Struct, frozen=True):
    """The entry answers the request."""

    kind: HitKind
    entry: Entry
    similarity: float
    """Cosine similarity of the two texts' embeddings; 1.0 for an exact hit."""
    bound: float | None = None
    """Upper bound on the share of wrong answers among hits served like this one; None where none is certified and for
    an exact hit, which is never wrong by meaning."""
    evidence: Evidence | None = None
    """What a fitted rule knew of it when it decided."""


@dataclass(frozen=True, slots=True)
class Near:
    """The entry is close but may not be served."""

    entry: Entry
    similarity: float
    reason: str
    """The guard that failed, such as `numbers` or `negation`; `bound` where the answer is too likely wrong for what is
    accepted, `max_error` where nothing is certified for that."""
    evidence: Evidence | None = None
    """What a fitted rule knew of it when it decided; None where a guard or something else forbade it first."""


@dataclass(frozen=True, slots=True)
class Miss:
    """Nothing close is stored, or the request is not eligible: `reason` says which."""

    reason: str = "absent"


Verdict = Hit | Near | Miss
