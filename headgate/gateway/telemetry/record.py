"""What is known of a request when it has ended: the source of its metrics and of its line in the access log."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from headgate.gateway.teams.costs import NOTHING, Cost
from headgate.gateway.teams.deadlines import Deadline
from headgate.gateway.teams.limits import Standing
from headgate.gateway.teams.retries import Retry
from headgate.routing.policy import Decision

if TYPE_CHECKING:
    from headgate.gateway.road.events import Opened
    from headgate.gateway.telemetry.tracing.otel import Trace


@dataclass(frozen=True, slots=True)
class Chosen:
    """A routing decision as the log has it."""

    task: str
    confidence: float
    features: str
    """A keyed hash of what was decided over."""
    predicted_s: float | None
    """What the price said that the answer would take."""
    decision: Decision
    """All that it followed from, to be explained."""
    choose_s: float
    """What deciding took, but for embedding the text."""


@dataclass(frozen=True, slots=True)
class Failed:
    """An attempt of which no answer came that was given."""

    model: str
    end: str
    """As in headgate_upstream_attempts_total; of a model of this process, or one that was not asked, the cause of
    falling back; or, of an answer, `unsure` or `handed_over`."""
    began: float
    ended: float
    """Monotonic seconds."""


class RequestRecord(msgspec.Struct):
    """Filled in along the road, read once at its end. Durations are seconds; never holds content.

    A struct, because one is made for every request: that takes a fifth of what a dataclass does.
    """

    request_id: str
    endpoint: str
    team: str = ""
    key_id: str | None = None
    user: str = ""
    """The end user that it names."""
    experiment: str = ""
    """The arm of its team's experiment that the request is of."""
    config: str = ""
    """Revision of the configuration."""
    arrived: float = 0.0
    """When it came, in monotonic seconds."""
    admitted_s: float | None = None
    """From its arrival until it was let in."""
    opened_s: float | None = None
    """From its arrival until a model was asked, or an answer found."""
    opened: Opened | None = None
    """What was settled."""
    model: str = ""
    route: str = ""
    verdict: str = ""
    stream: bool = False
    status: int = 0
    error: str | None = None
    reply_id: str = ""
    """The id in the reply's body."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    queue_s: float = 0.0
    first_token_s: float | None = None
    total_s: float = 0.0
    chosen: Chosen | None = None
    standing: Callable[[], Standing] | None = None
    """How the limits of who asks stand, once that is known."""
    retry: Retry | None = None
    """By what it would be known if it came again; None where that cannot be."""
    deadline: Deadline | None = None
    """Within which time its answer has to begin, where its client says."""
    cost: Cost = NOTHING
    """What was computed for it cost, once it is settled."""
    budget: str = ""
    """The team's budgets that are nearly spent."""
    dropped: str = ""
    """Names of fields that were left out of it."""
    attempts: int = 0
    """Requests to other servers that were made for it."""
    failed: tuple[Failed, ...] = ()
    """Attempts, at other servers or here, in the order in which they failed."""
    trace: Trace | None = None
    """Its span, where spans are made."""


CURRENT: ContextVar[RequestRecord | None] = ContextVar("record", default=None)
"""The record of the request that is worked for, for what is far down its road."""
