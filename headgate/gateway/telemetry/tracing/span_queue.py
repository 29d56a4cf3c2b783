"""Ended spans on their way out: a bounded queue and a thread; a collector that is slow or away costs spans only."""

from __future__ import annotations

import logging
import threading
from collections import deque
from contextlib import suppress

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

logger = logging.getLogger("headgate.gateway")

_GATHER_S = 1.0
"""How long spans gather before they are sent."""
_BATCH = 512
_LEAVE_S = 1.0


class SpanQueue(SpanProcessor):
    """Sends spans in batches. Counts those that found no room, and those that nobody took."""

    def __init__(self, exporter: SpanExporter, most: int = 4096) -> None:
        """`most`: spans that may wait."""
        self.sent = 0
        self.dropped = 0
        self._exporter = exporter
        self._most = most
        self._waiting: deque[ReadableSpan] = deque()
        self._sending = threading.Lock()
        self._full = threading.Event()
        self._ending = threading.Event()
        self._failing = False
        self._thread = threading.Thread(target=self._run, name="headgate-spans", daemon=True)
        self._thread.start()

    def on_end(self, span: ReadableSpan) -> None:
        """A span has ended."""
        if span.context is None or not span.context.trace_flags.sampled:
            return
        if len(self._waiting) >= self._most:
            self.dropped += 1
            return
        self._waiting.append(span)
        if len(self._waiting) >= _BATCH and not self._full.is_set():
            self._full.set()

    def force_flush(self, timeout_millis: int = 30000) -> bool:  # noqa: ARG002  the exporter has its own bound
        """Send what waits, here and now."""
        self._send()
        return True

    def shutdown(self) -> None:
        """Send what waits, for a second at most, and end."""
        self._ending.set()
        self._full.set()
        self._thread.join(_LEAVE_S)
        self._exporter.shutdown()

    def _run(self) -> None:
        while not self._ending.is_set():
            self._full.wait(_GATHER_S)
            self._full.clear()
            self._send()
        self._send()

    def _send(self) -> None:
        with self._sending:
            while batch := self._batch():
                try:
                    taken = self._exporter.export(batch) is SpanExportResult.SUCCESS
                except Exception as error:
                    logger.debug("spans could not be sent: %s", error)
                    taken = False
                self._note(taken, len(batch))

    def _batch(self) -> list[ReadableSpan]:
        batch: list[ReadableSpan] = []
        with suppress(IndexError):
            while len(batch) < _BATCH:
                batch.append(self._waiting.popleft())
        return batch

    def _note(self, taken: bool, count: int) -> None:
        if taken:
            self.sent += count
        else:
            self.dropped += count
        if taken == self._failing:
            self._failing = not taken
            if taken:
                logger.warning("the collector of spans takes them again")
            else:
                logger.warning("the collector of spans does not take them; requests are served without")
