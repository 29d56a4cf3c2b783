"""`/v1/feedback`: what a team's apps say of their answers; `/admin/feedback`: all of it."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator

from aiohttp import web

from headgate.gateway import keys
from headgate.gateway.api.json_reply import json_lines, json_reply
from headgate.gateway.feedback.book import Book
from headgate.gateway.feedback.service import Feedback
from headgate.gateway.middleware import read_body
from headgate.gateway.telemetry.metrics.feedback import FeedbackMetrics
from headgate.gateway.wire.errors import disk_failed, not_found
from headgate.gateway.wire.feedback import (
    feedback_body,
    feedback_line,
    feedback_off,
    parse_feedback,
)
from headgate.gateway.wire.query import read_query

logger = logging.getLogger("headgate.gateway")


def open_feedback(app: web.Application) -> Feedback | None:
    """What remembers answers and takes ratings; None where none are to be kept."""
    most = app[keys.SETTINGS].feedback.most
    return Feedback(Book(most), app[keys.LOADER], FeedbackMetrics(app[keys.METRICS].registry)) if most else None


async def remembering(app: web.Application) -> AsyncIterator[None]:
    """Go on with what the data folder has, and write what comes."""
    feedback, storage = app[keys.FEEDBACK], app.get(keys.STORAGE)
    if feedback is None or storage is None:
        yield
        return
    book = feedback.book
    try:
        await book.open(storage.database)
    except sqlite3.Error as error:
        logger.error("what is said of answers is kept in memory only: %s", error)
    writing = asyncio.create_task(book.follow(), name="write answers that may be rated")
    yield
    writing.cancel()
    await asyncio.wait([writing])
    await book.write()


async def give(http: web.Request) -> web.Response:
    """Say how an answer was; what is said again takes the place of what was said before."""
    said, score = parse_feedback(await read_body(http))
    feedback = _feedback(http)
    await keys.backend(http)
    try:
        rating, updated = await feedback.rate(http[keys.PRINCIPAL], said, score)
    except sqlite3.Error as error:
        raise disk_failed("The feedback could not be kept", error) from None
    return json_reply(feedback_body(rating, updated=updated))


async def get(http: web.Request) -> web.Response:
    """What was said of an answer last."""
    read_query(http.query, ())
    team, answer_id = http[keys.PRINCIPAL].team, http.match_info["answer_id"]
    try:
        found = await _feedback(http).book.rating(team, answer_id)
    except sqlite3.Error as error:
        raise disk_failed("The feedback could not be read", error) from None
    if found is None:
        raise not_found("feedback", answer_id)
    return json_reply(feedback_body(found, updated=False))


async def export(http: web.Request) -> web.Response:
    """Everything that is kept, or a team's, a JSON object a line, the oldest first."""
    read_query(http.query, ("team",))
    try:
        found = await _feedback(http).book.ratings(http.query.get("team"))
    except sqlite3.Error as error:
        raise disk_failed("The feedback could not be read", error) from None
    return json_lines([feedback_line(one) for one in found])


def _feedback(http: web.Request) -> Feedback:
    found = http.app[keys.FEEDBACK]
    if found is None:
        raise feedback_off()
    return found
