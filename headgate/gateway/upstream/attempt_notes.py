"""What is noted of each attempt at an upstream: in record and span of the request, in its standing and in the log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec
from yarl import URL

from headgate.gateway.telemetry.record import CURRENT, Failed
from headgate.gateway.upstream.failures import Failure
from headgate.gateway.upstream.health import Standing
from headgate.gateway.upstream.post import Asking, lines_of
from headgate.gateway.upstream.sections import UpstreamSection
from headgate.gateway.wire.errors import ApiError, overloaded

if TYPE_CHECKING:
    from headgate.gateway.telemetry.tracing.otel import Attempt

logger = logging.getLogger("headgate.gateway")


def note_attempt(asking: Asking, section: UpstreamSection, url: URL) -> tuple[Asking, Attempt | None]:
    """What is about to be sent, with what tells whose child the server's span is, and our span, where there is one."""
    record = CURRENT.get()
    if record is None:
        return asking, None
    record.attempts += 1
    if record.trace is None:
        return asking, None
    span = record.trace.attempt(section.id, section.model, url.host or "", url.port or 0)
    return msgspec.structs.replace(asking, head=asking.head + lines_of(span.headers)), span


def note_failure(
    standing: Standing, upstream: str, request_id: str, failure: Failure, began: float, ended: float
) -> None:
    """An attempt at the upstream of this id has failed; its times are monotonic seconds."""
    standing.failed(failure.kind)
    record = CURRENT.get()
    if record is not None:
        record.failed += (Failed(upstream, failure.kind, began, ended),)
    logger.warning("request %s: the upstream '%s' %s", request_id, upstream, failure)


def stopping() -> ApiError:
    """503: the server ends what upstreams still answer."""
    return overloaded("The request was cancelled because the server is shutting down.")
