"""What becomes of a rating: it is kept, counted, held against stored answers, and learned from.

No single user decides anything for others. A stored answer is kept from similar questions where several end users call
it bad, each with one vote, and a key's votes reach a bounded number of answers an hour; learning weighs ratings by
team and never sets a threshold by them (`headgate.training.logged`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from headgate.cache.quota import InsertShare
from headgate.gateway.backend import Loader
from headgate.gateway.feedback.book import Book
from headgate.gateway.feedback.records import Given, Rating
from headgate.gateway.teams.keys import Principal
from headgate.gateway.telemetry.metrics.feedback import FeedbackMetrics
from headgate.gateway.telemetry.record import RequestRecord
from headgate.gateway.wire.errors import not_found, not_permitted
from headgate.gateway.wire.feedback import FeedbackRequest

logger = logging.getLogger("headgate.gateway")

VOTES_AN_HOUR = 100
"""Stored answers on which a key's users may vote in an hour."""


class Feedback:
    """Takes ratings. All calls come from one event loop."""

    def __init__(self, book: Book, loader: Loader, metrics: FeedbackMetrics, clock: Callable[[], float] = time.time):
        """Feedback on the answers of a loader's models. `clock`: Unix time."""
        self.book = book
        self._loader = loader
        self._metrics = metrics
        self._clock = clock
        self._votes = InsertShare(1.0, 3600.0, clock, VOTES_AN_HOUR)

    def given(self, record: RequestRecord, principal: Principal) -> None:
        """A request was answered: remember its answer, unless its team wants none remembered."""
        if principal.policy.feedback.enabled:
            self.book.given(record)

    async def rate(self, principal: Principal, said: FeedbackRequest, score: float) -> tuple[Rating, bool]:
        """Take what a key says of an answer of its team; and whether something was said of it before.

        Raises:
            ApiError: 403 where the team takes no feedback, 404 where it has no such answer.
            sqlite3.Error: the disk fails; then nothing becomes of it.
        """
        answer = await self.answer(principal, said.id)
        user = said.end_user or answer.user
        rating = Rating(answer, score, said.comment or "", user, principal.key_id or "", self._clock())
        before = await self.book.rate(rating)
        if before is None:
            self._metrics.rated(answer.model, answer.cause, score)
        await self._vote(rating)
        await self._teach(rating)
        return rating, before is not None

    async def answer(self, principal: Principal, answer_id: str) -> Given:
        """A team's answer. ApiError 403 where the team takes no feedback, 404 where it has no such answer."""
        if not principal.policy.feedback.enabled:
            raise not_permitted(f"The team '{principal.team}' takes no feedback: feedback.enabled is false.")
        found = await self.book.find(principal.team, answer_id)
        if found is None:
            raise not_found("answer", answer_id)
        return found

    async def _vote(self, rating: Rating) -> None:
        """For or against the stored answer, if it is one. Whom the request named is who was given it."""
        answer, audits = rating.answer, self._loader.backend.audits
        if audits is None or not answer.entry or not self._votes.admit(answer.team, answer.key):
            return
        voice = self._voice(answer.team, answer.key, answer.user or rating.end_user)
        try:
            await audits.watch.voted(answer.entry, answer.at, rating.good, voice)
        except OSError as error:
            logger.info("the cache does not hear of a rating: %s", error)

    async def _teach(self, rating: Rating) -> None:
        """What the router could know beforehand, with what it came to, where the team allows that."""
        answer, comparisons = rating.answer, self._loader.backend.comparisons
        if comparisons is None or not answer.features:
            return
        voice = self._voice(answer.team, rating.key, rating.end_user)
        try:
            await comparisons.lessons.rated(answer.team, answer.model, answer.features, rating.score, voice)
        except OSError as error:
            logger.warning("a rating could not be logged to learn from: %s", error)

    def _voice(self, team: str, key: str, user: str) -> str:
        return self._loader.cache.fingerprinter.voice(team, key, user)
