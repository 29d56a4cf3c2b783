"""The requests that ended last, each with all that was settled on its way: never content.

A request's record is kept as it is when the request ends; what a reader sees is made of it when he asks.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator

from headgate.gateway.explain import decision_report
from headgate.gateway.telemetry.record import RequestRecord
from headgate.gateway.wire.traces import CacheTrace, RequestLine, RequestTrace, Stage, StageName


class Traces:
    """A bounded ring. All calls come from one event loop."""

    def __init__(self, most: int, clock: Callable[[], float] = time.time) -> None:
        """`most`: requests that are remembered; `clock`: Unix time."""
        self._ended: deque[tuple[float, RequestRecord]] = deque(maxlen=most)
        self._clock = clock
        self.requests = self.refused = self.failed = 0
        """Of all that ended since the start: those that got 429, and those that got 5xx."""

    def ended(self, record: RequestRecord) -> None:
        """A request has ended, well or not; the oldest one leaves when there is no room."""
        self._ended.append((self._clock(), record))
        self.requests += 1
        if record.status == 429:
            self.refused += 1
        elif record.status >= 500:
            self.failed += 1

    def lines(self, wanted: Callable[[RequestRecord], bool], most: int) -> Iterator[RequestLine]:
        """Those that are wanted, the latest first."""
        for at, record in reversed(self._ended):
            if most <= 0:
                return
            if wanted(record):
                most -= 1
                yield _line(at, record)

    def find(self, request_id: str) -> RequestTrace | None:
        """A request by its id: the latest, where a client gave several the same."""
        for at, record in reversed(self._ended):
            if record.request_id == request_id:
                return _trace(at, record)
        return None

    def __len__(self) -> int:
        return len(self._ended)


def _line(at: float, record: RequestRecord) -> RequestLine:
    return RequestLine(
        record.request_id,
        at - record.total_s,
        record.endpoint,
        record.status,
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
        cache,
        route,
        None if chosen is None else chosen.predicted_s,
    )


def _stages(record: RequestRecord) -> Iterator[Stage]:
    """Its way, each stage from where the one before ended. What it never came to is left out."""
    total, opened = record.total_s, record.opened
    admitted = record.admitted_s
    yield Stage("admit", 0.0, total if admitted is None else admitted)
    if admitted is None:
        return
    if opened is None:
        yield Stage("failed", admitted, total)
        return
    at = admitted
    decided: tuple[tuple[StageName, float | None], ...] = (("cache", opened.looked_s), ("route", opened.planned_s))
    for name, took in decided:
        if took is not None:
            yield Stage(name, at, min(at + took, total))
            at = min(at + took, total)
    first = record.first_token_s
    if opened.age_s is not None or first is None:
        yield Stage("reply", at, total)
        return
    # The engine's clock began when it was handed over, which was after this.
    queued = min(at + record.queue_s, first)
    if record.queue_s:
        yield Stage("queue", at, queued)
        at = queued
    yield Stage("prompt", at, first)
    yield Stage("answer", first, total)
