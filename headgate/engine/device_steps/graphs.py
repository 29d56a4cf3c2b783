"""Steps by the number of their rows, each of which can be recorded once and launched again as it is."""

from __future__ import annotations

import gc
import logging
from bisect import bisect_left
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from headgate.engine.sampling.upload import upload

logger = logging.getLogger(__name__)

Recorder = Callable[[Callable[[], None]], Callable[[], None]]
"""Makes of a call one that does the same again at once, with the same memory."""
DEMAND = 128
"""Steps that were launched kernel by kernel, after which those who wait for the next one wait for its recording too."""


def recorder(device: torch.device) -> Recorder | None:
    """What records on the device; None where nothing is gained by it."""
    return GraphRecorder() if device.type == "cuda" else None


class Bucket:
    """A step of up to `rows` rows: what it is given, and what it gives, always in the same memory.

    Attributes:
        order: int64 [rows], the rows it computes; `spare` where there are fewer.
        out: float64 [2, rows], their tokens and these tokens' log-probabilities.
        launch: begins the step.
        recorded: whether there is nothing left to try to make `launch` faster.
        misses: how often it was launched before.
    """

    def __init__(self, rows: int, spare: int, device: torch.device, step: Callable[[Bucket], None]) -> None:
        self.order = torch.full((rows,), spare, dtype=torch.int64, device=device)
        self.out = torch.zeros(2, rows, dtype=torch.float64, device=device)
        self.launch: Callable[[], None] = partial(step, self)
        self.recorded = False
        self.misses = 0
        self._spare = spare
        self._placed: Seq[int] = ()

    @property
    def rows(self) -> int:
        """Most rows."""
        return len(self.order)

    def place(self, rows: Seq[int]) -> None:
        """Compute these rows from the next launch on."""
        if rows != self._placed:
            filled = [*rows, *[self._spare] * (self.rows - len(rows))]
            self.order.copy_(upload(filled, torch.int64, self.order.device), non_blocking=True)
            self._placed = rows


class Buckets:
    """The buckets up to a number of rows, with a spare row to fill them up."""

    def __init__(
        self,
        most: int,
        spare: int,
        device: torch.device,
        step: Callable[[Bucket], None],
        record: Recorder | None,
    ) -> None:
        """`record`: None where nothing is gained by it."""
        self._record = record
        self._buckets = [Bucket(rows, spare, device, step) for rows in sizes(most)]
        self._sizes = [bucket.rows for bucket in self._buckets]

    def of(self, rows: int) -> Bucket:
        """The smallest with so many."""
        return self._buckets[bisect_left(self._sizes, rows)]

    @property
    def left(self) -> int:
        """How many are to be recorded; may be asked from another thread."""
        return sum(not bucket.recorded for bucket in self._buckets) if self._record is not None else 0

    def release(self) -> None:
        """Give all of them up."""
        self._buckets.clear()

    def record_one(self, *, idle: bool) -> bool:
        """Record one; False if there is none left, or, unless `idle`, none that is much wanted.

        A recording takes as long as hundreds of steps, and compiles what was never launched.
        """
        left = [b for b in self._buckets if not b.recorded and (idle or b.misses >= DEMAND)]
        if self._record is None or not left:
            return False
        bucket = max(left, key=lambda b: (b.misses, -b.rows))
        bucket.recorded = True
        try:
            bucket.place(())  # the step is run while it is recorded: on the spare row it changes nothing
            bucket.launch = self._record(bucket.launch)
            logger.info("recorded a step of %d rows, %d sizes are left", bucket.rows, self.left)
        except Exception:
            logger.exception("a step of %d rows cannot be recorded; it stays slower", bucket.rows)
        return True


def sizes(most: int) -> list[int]:
    """Rows of the buckets: doubling up to 16, then by 16, from 128 on by 32; the last has exactly `most`."""
    steps = [1, 2, 4, 8, *range(16, 128, 16), *range(128, max(most, 128) + 1, 32)]
    return [*(rows for rows in steps if rows < most), most]


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without Python's collector of cycles."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class GraphRecorder:
    """Records CUDA graphs, which share the memory of what is between their inputs and outputs.

    All on one stream: a pool's memory goes from graph to graph on its own stream alone, and cuBLAS keeps some for each.
    """

    def __init__(self) -> None:
        self._pool: Any = None
        self._stream: Any = None

    def __call__(self, step: Callable[[], None]) -> Callable[[], None]:
        """See Recorder."""
        before: Any = torch.cuda.current_stream()
        if self._stream is None:
            self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream: Any = self._stream
        stream.wait_stream(before)
        try:
            with torch.cuda.stream(stream):
                step()  # compiles, and lets libraries take their memory: neither can be recorded
        finally:
            before.wait_stream(stream)  # also for what was launched of a step that failed
        graph = torch.cuda.CUDAGraph()
        # A recording that cannot be ended leaves the thread on its stream: the outer context takes it back. Other
        # threads may use the device meanwhile, as those that load a model do. This one may not give up graphs of
        # engines that are gone, as it would if their memory were collected now.
        with (
            torch.cuda.stream(before),
            _uncollected(),
            torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"),
        ):
            step()
        self._pool = graph.pool()
        replay: Callable[[], None] = graph.replay
        return replay
