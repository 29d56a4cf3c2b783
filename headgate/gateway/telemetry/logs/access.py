"""The access log: one line per request, as JSON or as words. Never what was asked or answered."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from headgate.gateway.teams.costs import NANO
from headgate.gateway.telemetry.logs.secrets import without_secrets
from headgate.gateway.telemetry.record import RequestRecord

AccessFormat = Literal["json", "text", "off"]
Scalar = str | int | float | bool | None

LOGGER = "headgate.access"
_OURS = re.compile("req_[0-9a-f]{32}")
"""An id that the client did not give."""


class AccessLog:
    """Writes the lines of requests that have ended to the logger `headgate.access`."""

    def __init__(self, shape: AccessFormat, clock: Callable[[], float] = time.time) -> None:
        """`clock`: Unix time."""
        self._shape = shape
        self._clock = clock
        self._logger = logging.getLogger(LOGGER)

    def write(self, record: RequestRecord) -> None:
        """The line of a request, unless the log is off."""
        if self._shape == "off" or not self._logger.isEnabledFor(logging.INFO):
            return
        known = {name: value for name, value in fields(record).items() if value is not None and value != ""}
        at = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if self._shape == "json":
            self._logger.info(msgspec.json.encode({"time": at, **known}).decode())
        else:
            self._logger.info(words(at, known))


def fields(record: RequestRecord) -> dict[str, Scalar]:
    """What the log has of a request, by name. Free text of a client (a model name nobody knows, say) is not in it."""
    found: dict[str, Scalar] = {
        "id": record.request_id if _OURS.fullmatch(record.request_id) else without_secrets(record.request_id),
        "reply": record.reply_id,
        "endpoint": record.endpoint,
        "config": record.config,
        "status": record.status,
        "team": record.team,
        "key": record.key_id,
        "model": record.model,
        "route": record.route,
        "experiment": record.experiment,
        "verdict": record.verdict,
        "cause": None if record.opened is None else record.opened.why,
        "similarity": None if record.opened is None else _rounded(record.opened.similarity, 4),
        "stream": record.stream,
        "prompt_tokens": record.prompt_tokens,
        "completion_tokens": record.completion_tokens,
        "cached_tokens": record.cached_tokens,
        "reasoning_tokens": record.reasoning_tokens or None,
        "admitted_ms": _ms(record.admitted_s),
        "overhead_ms": _ms(record.opened_s),
        "queue_ms": _ms(record.queue_s),
        "first_token_ms": _ms(record.first_token_s),
        "total_ms": _ms(record.total_s),
        "attempts": record.attempts or None,
        "usd": record.cost.nano_usd / NANO or None,
        "error": record.error,
    }
    if record.chosen is not None:
        chosen = record.chosen
        found |= {
            "task": chosen.task,
            "confidence": round(chosen.confidence, 3),
            "features": chosen.features,
            "predicted_ms": _ms(chosen.predicted_s),
        }
    return found


def words(at: str, known: dict[str, Any]) -> str:
    """The line for people: when, what came of it, what was asked, then the rest by name."""
    rest = dict(known)
    head = [at, str(rest.pop("status")), str(rest.pop("endpoint")), f"{rest.pop('total_ms')} ms"]
    return " ".join([*head, *(f"{name}={_word(value)}" for name, value in rest.items() if value is not False)])


def _word(value: Scalar) -> str:
    text = "true" if value is True else str(value)
    # Names that operators chose may have spaces in them; a line break would make two lines of one.
    return text if text.isprintable() and not set(text) & set(' "=') else msgspec.json.encode(text).decode()


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 2)


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
