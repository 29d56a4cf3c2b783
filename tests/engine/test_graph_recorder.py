"""Steps by the number of their rows, and recording them, as far as that goes without a GPU."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
import torch

from headgate.engine.device_steps.graphs import Bucket, Buckets, GraphRecorder, sizes

CPU = torch.device("cpu")


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was recorded and launched of a device that does nothing."""
    said: list[str] = []
    stream = SimpleNamespace(wait_stream=lambda _: None)

    @contextmanager
    def record(_: object, **_how: object) -> Iterator[None]:
        said.append("recording")
        yield
        said.append("recorded")

    made = SimpleNamespace(pool=lambda: 1, replay=lambda: said.append("launched"))
    monkeypatch.setattr(torch.cuda, "Stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: made)
    monkeypatch.setattr(torch.cuda, "graph", record)
    return said


def test_a_step_is_tried_then_recorded_without_collecting_garbage(recorded: list[str]) -> None:
    collects: list[bool] = []
    launch = GraphRecorder()(lambda: collects.append(gc.isenabled()))
    # Giving up a graph of an engine that is gone would end the recording of this one.
    assert collects == [True, False]
    assert gc.isenabled()
    launch()
    assert recorded == ["recording", "recorded", "launched"]


@pytest.mark.usefixtures("recorded")
def test_a_step_that_cannot_be_recorded_leaves_the_collector_as_it_was() -> None:
    calls = iter([None, RuntimeError("not while recording")])

    def step() -> None:
        error = next(calls)
        if error is not None:
            raise error

    with pytest.raises(RuntimeError, match="not while recording"):
        GraphRecorder()(step)
    assert gc.isenabled()


class _Streams:
    """The streams of a device and of the thread: what was launched on each, and who waited for whom."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.said: list[str] = []
        self.current = self.stream("own")

    def stream(self, name: str = "") -> SimpleNamespace:
        name = name or f"side {len(self.made)}"
        self.made.append(name)
        return SimpleNamespace(name=name, wait_stream=lambda other: self.said.append(f"{name} waits for {other.name}"))

    @contextmanager
    def on(self, stream: SimpleNamespace) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def launch(self) -> None:
        self.said.append(f"step on {self.current.name}")


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> _Streams:
    """Of a device whose recordings go to the stream that they are given."""
    found = _Streams()

    class Graph:
        """As torch's: where a recording cannot be ended, the stream stays."""

        def __init__(self, _: object, *, stream: SimpleNamespace, **_how: object) -> None:
            self._stream = stream

        def __enter__(self) -> None:
            found.current = self._stream

        def __exit__(self, kind: object, *_: object) -> None:
            if kind is not None:
                raise RuntimeError("operation failed due to a previous error during capture")
            found.current = own

    own = found.current
    monkeypatch.setattr(torch.cuda, "Stream", found.stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: found.current)
    monkeypatch.setattr(torch.cuda, "stream", found.on)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: SimpleNamespace(pool=lambda: 1, replay=lambda: None))
    monkeypatch.setattr(torch.cuda, "graph", Graph)
    return found


def test_all_graphs_are_recorded_on_one_stream_where_alone_they_share_memory(streams: _Streams) -> None:
    record = GraphRecorder()
    for _ in range(3):
        record(streams.launch)
    assert streams.said == ["side 1 waits for own", "step on side 1", "own waits for side 1", "step on side 1"] * 3


def test_a_recording_that_cannot_be_ended_leaves_the_thread_where_it_was(streams: _Streams) -> None:
    calls = iter([None, RuntimeError("not while recording")])

    def step() -> None:
        streams.launch()
        error = next(calls)
        if error is not None:
            raise error

    record = GraphRecorder()
    with pytest.raises(RuntimeError, match="a previous error during capture"):
        record(step)
    streams.launch()
    assert streams.said[-1] == "step on own"


def test_what_was_launched_of_a_step_that_failed_is_waited_for(streams: _Streams) -> None:
    def step() -> None:
        streams.launch()
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        GraphRecorder()(step)
    streams.launch()
    assert streams.said[-2:] == ["own waits for side 1", "step on own"]


def test_buckets_hold_any_number_and_little_more() -> None:
    assert sizes(1) == [1]
    assert sizes(5) == [1, 2, 4, 5]
    assert sizes(130) == [1, 2, 4, 8, 16, 32, 48, 64, 80, 96, 112, 128, 130]
    for most in (1, 2, 7, 64, 200):
        buckets = Buckets(most, 999, CPU, lambda *_: None, None)
        for rows in range(1, most + 1):
            held = buckets.of(rows).rows
            assert rows <= held <= min(most, 2 * rows)


def test_rows_that_a_bucket_does_not_need_are_the_spare_one() -> None:
    bucket = Bucket(4, 9, CPU, lambda *_: None)
    bucket.place([3, 1])
    assert bucket.order.tolist() == [3, 1, 9, 9]
    bucket.place([2, 3, 1])
    assert bucket.order.tolist() == [2, 3, 1, 9]


def recorded_buckets(broken: int = 0) -> tuple[Buckets, list[str]]:
    """Buckets up to 4, and what is done with them; those of `broken` rows cannot be recorded."""
    log: list[str] = []

    def record(step: Callable[[], None]) -> Callable[[], None]:
        log.append("record")
        step()
        if log[-1] == f"step of {broken}":
            raise RuntimeError("cudaErrorStreamCaptureUnsupported")
        return lambda: log.append("replay")

    def step(bucket: Bucket) -> None:
        assert bucket.order.tolist() == [9] * bucket.rows or "record" not in log[-1:]
        log.append(f"step of {bucket.rows}")

    return Buckets(4, 9, CPU, step, record), log


def test_steps_are_recorded_one_by_one_when_nothing_else_is_to_be_done() -> None:
    buckets, log = recorded_buckets()
    buckets.of(2).place([1, 2])
    buckets.of(2).launch()
    assert not buckets.record_one(idle=False)
    assert buckets.left == 3
    assert [buckets.record_one(idle=True) for _ in range(4)] == [True, True, True, False]
    assert buckets.left == 0
    assert log == ["step of 2", "record", "step of 1", "record", "step of 2", "record", "step of 4"]
    buckets.of(3).place([1, 2, 3])
    buckets.of(3).launch()
    assert log[-1] == "replay"
    assert buckets.of(3).order.tolist() == [1, 2, 3, 9]


def test_a_step_that_is_much_wanted_is_recorded_first_and_while_others_wait() -> None:
    buckets, log = recorded_buckets()
    buckets.of(4).misses = 128
    buckets.of(2).misses = 3
    assert buckets.record_one(idle=False)
    assert log == ["record", "step of 4"]
    assert not buckets.record_one(idle=False)
    assert buckets.record_one(idle=True)
    assert log[-1] == "step of 2"


def test_a_step_that_cannot_be_recorded_stays_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    buckets, log = recorded_buckets(broken=2)
    with caplog.at_level(logging.ERROR):
        while buckets.record_one(idle=True):
            pass
    assert "a step of 2 rows cannot be recorded" in caplog.text
    buckets.of(2).launch()
    assert log[-1] == "step of 2"
    buckets.of(1).launch()
    assert log[-1] == "replay"


def test_rows_that_cannot_be_placed_before_a_recording_harm_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> None:
        raise RuntimeError("an illegal memory access")

    buckets, log = recorded_buckets()
    monkeypatch.setattr(Bucket, "place", gone)
    assert [buckets.record_one(idle=True) for _ in range(4)] == [True, True, True, False]
    assert not log


def test_graphs_are_captured_after_a_step_that_compiles_and_share_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []

    class Stream:
        def wait_stream(self, _: object) -> None:
            log.append("wait")

    class Graph:
        def pool(self) -> str:
            return "pool"

        def replay(self) -> None:
            log.append("replay")

    @contextmanager
    def entered(name: str, **options: object) -> Iterator[None]:
        log.append(f"{name} with {options.get('pool')}" if options else name)
        yield
        log.append("end")

    cuda = torch.cuda
    monkeypatch.setattr(cuda, "Stream", Stream)
    monkeypatch.setattr(cuda, "current_stream", Stream)
    monkeypatch.setattr(cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(cuda, "stream", lambda _: entered("stream"))
    monkeypatch.setattr(cuda, "graph", lambda _, **options: entered("graph", **options))
    record = GraphRecorder()
    replay = record(lambda: log.append("step"))
    warm = ["wait", "stream", "step", "end", "wait"]
    assert log == [*warm, "stream", "graph with None", "step", "end", "end"]
    record(lambda: log.append("other"))
    assert "graph with pool" in log
    del log[:]
    replay()
    assert log == ["replay"]
