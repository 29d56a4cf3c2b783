"""What is kept of an answer that may be rated, and of what was said of it."""

from __future__ import annotations

from typing import Literal

import msgspec

Cause = Literal["generated", "exact", "semantic"]
"""Where an answer came from, as the usage ledger has it."""

GOOD = 0.5
"""The least score of a good answer."""


class Given(msgspec.Struct, frozen=True):
    """An answer that was given. Not a word of it or of its question.

    Attributes:
        id: in the reply's body.
        team: whose it is.
        key: id of the key that asked; empty on an open server.
        user: the end user that the request named, if it did.
        at: Unix time of its end.
        model: which one wrote it.
        cause: where it came from.
        entry: key of the cache's entry that it was served from or stored under; empty where there is none.
        features: hash of what the router decided over; empty where nothing was left to it.
    """

    id: str
    team: str
    key: str
    user: str
    at: float
    model: str
    cause: Cause
    entry: str
    features: str


class Rating(msgspec.Struct, frozen=True):
    """What was said of an answer last.

    Attributes:
        answer: what is rated.
        score: 0 to 1.
        comment: in the words of who rated it.
        end_user: who that was, as the app names him; the user of the request where it says nothing.
        key: id of the key that brought it.
        at: Unix time.
    """

    answer: Given
    score: float
    comment: str
    end_user: str
    key: str
    at: float

    @property
    def good(self) -> bool:
        """Whether the answer counts as good."""
        return self.score >= GOOD
