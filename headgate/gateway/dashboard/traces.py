"""The requests that run or ended last, each with all that was settled on its way: never content.

A request's record is kept as it is; what a reader sees is made of it when he asks.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice

from msgspec.structs import replace

from headgate.gateway.routing.explain import decision_report
from headgate.gateway.telemetry.record import RequestRecord
from headgate.gateway.wire.traces import (
    CacheTrace,
    FailedAttempt,
    RequestLine,
    RequestOutcome,
    RequestTrace,
    Stage,
    StageName,
)


class Traces:
    """A bounded ring, and those that have not ended. All calls come from one event loop."""

    def __init__(
        self, most: int, clock: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """`most`: requests that are remembered; `clock`: Unix time; `monotonic`: the time that records begin by."""
        self._running: dict[int, RequestRecord] = {}
        self._ended: deque[tuple[float, RequestRecord]] = deque(maxlen=most)
        self._clock = clock
        self._monotonic = monotonic
        self.requests = self.refused = self.failed = 0
        """Of all that ended since the start; see `outcome`."""

    def begun(self, record: RequestRecord) -> None:
        """A request has come."""
        self._running[id(record)] = record

    def ended(self, record: RequestRecord) -> None:
        """It has ended, well or not; the oldest one leaves when there is no room."""
        self._running.pop(id(record), None)
        self._ended.append((self._clock(), record))
        self.requests += 1
        end = outcome(record)
        if end == "refused":
            self.refused += 1
        elif end == "failed":
            self.failed += 1

    def lines(self, wanted: Callable[[RequestRecord], bool], most: int) -> Iterator[RequestLine]:
        """Those that are wanted, the latest first, and before them those that have not ended."""
        return (_line(at, record) for at, record in islice(((a, r) for a, r in self._all() if wanted(r)), most))

    def find(self, request_id: str) -> RequestTrace | None:
        """A request by its id: the latest, where a client gave several the same."""
        return next((_trace(at, record) for at, record in self._all() if record.request_id == request_id), None)

    def __len__(self) -> int:
        return len(self._ended)

    @property
    def remembered(self) -> tuple[int, float]:
        """See `Remembers`."""
        return len(self._ended), len(self._ended) / (self._ended.maxlen or 1)

    def _all(self) -> Iterator[tuple[float, RequestRecord]]:
        """Each with the time of its end, which is now for those that run."""
        wall, now = self._clock(), self._monotonic()
        for record in reversed(self._running.values()):
            yield wall, replace(record, total_s=now - record.arrived)
        yield from reversed(self._ended)


def outcome(record: RequestRecord) -> RequestOutcome:
    """What became of a request: refused got 4xx, failed 5xx; 499 is a client who left."""
    if not record.status:
        return "running"
    if record.status == 499:
        return "left"
    return "ok" if record.status < 400 else "refused" if record.status < 500 else "failed"


def _line(at: float, record: RequestRecord) -> RequestLine:
    return RequestLine(
        record.request_id,
        at - record.total_s,
        record.endpoint,
        record.status or None,
        record.error,
        record.team,
        record.key_id,
        record.model,
        record.route,
        record.verdict,
        record.stream,
        record.prompt_tokens,
        record.completion_tokens,
        record.cached_tokens,
        record.first_token_s,
        record.total_s,
        record.cost.nano_usd / 1e9,
    )


def _trace(at: float, record: RequestRecord) -> RequestTrace:
    opened, chosen = record.opened, record.chosen
    cache = None
    if opened is not None:
        cache = CacheTrace(
            opened.verdict, opened.why, opened.similarity, opened.bound, opened.age_s, opened.key, opened.looked_s
        )
    route = None
    if chosen is not None:
        route = decision_report(chosen.decision, chosen.features, record.config, chosen.choose_s)
    return RequestTrace(
        _line(at, record),
        record.config,
        record.experiment,
        record.budget,
        record.cost.device_us / 1e6,
        list(_stages(record)),
        [FailedAttempt(f.model, f.end, f.began - record.arrived, f.ended - record.arrived) for f in record.failed],
        cache,
        route,
        None if chosen is None else chosen.predicted_s,
    )


def _stages(record: RequestRecord) -> Iterator[Stage]:
    """Its way, each stage from where the one before ended. What it never came to is left out."""
    total, opened = record.total_s, record.opened
    admitted, answered = record.admitted_s, 0 < record.status < 400
    if admitted is None:
        # What is answered without a place, such as a list of models or a reply once more, was not kept waiting for one.
        yield Stage("reply" if answered else "admit", 0.0, total)
        return
    yield Stage("admit", 0.0, admitted)
    if opened is None:
        # No model is chosen for texts to embed.
        yield Stage("answer" if answered else "failed" if record.status else "deciding", admitted, total)
        return
    at = admitted
    decided: tuple[tuple[StageName, float | None], ...] = (("cache", opened.looked_s), ("route", opened.planned_s))
    for name, took in decided:
        if took is not None:
            yield Stage(name, at, min(at + took, total))
            at = min(at + took, total)
    first = record.first_token_s
    if opened.age_s is not None or first is None:
        yield Stage("prompt" if opened.age_s is None else "reply", at, total)
        return
    # The wait's clock began when it was handed over, which was after this, and after what failed elsewhere.
    at = min(max(at, _handed_over(record)), first)
    queued = min(at + record.queue_s, first)
    if record.queue_s:
        yield Stage("queue", at, queued)
        at = queued
    yield Stage("prompt", at, first)
    yield Stage("answer", first, total)


def _handed_over(record: RequestRecord) -> float:
    """The earliest that the model that answered can have been asked, as far as failed attempts tell."""
    for failed in record.failed:
        if failed.model == record.model:
            return failed.began - record.arrived
    return max((failed.ended - record.arrived for failed in record.failed), default=0.0)
