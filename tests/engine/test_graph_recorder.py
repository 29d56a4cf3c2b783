"""Recording CUDA graphs, as far as that goes without a GPU: what is done around it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from headgate.engine.graphs import GraphRecorder


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
    launch = GraphRecorder()([lambda: collects.append(gc.isenabled())])
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
        GraphRecorder()([step])
    assert gc.isenabled()


def test_of_several_ways_the_soonest_is_kept(recorded: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    took = iter([5.0, 4.0, 6.0] * 5)

    def graph() -> SimpleNamespace:
        made.append(len(made))
        return SimpleNamespace(pool=lambda: 1, replay=partial(recorded.append, f"way {len(made) - 1}"))

    event = SimpleNamespace(record=lambda: None, synchronize=lambda: None, elapsed_time=lambda _: next(took))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", graph)
    monkeypatch.setattr(torch.cuda, "Event", lambda **_: event)
    launch = GraphRecorder()([lambda: None] * 3)
    assert [recorded.count(f"way {way}") for way in range(3)] == [50, 50, 50]
    launch()
    assert recorded[-1] == "way 1"


@pytest.mark.usefixtures("recorded")
def test_a_way_that_cannot_be_recorded_leaves_those_that_can(caplog: pytest.LogCaptureFixture) -> None:
    tried: list[int] = []

    def breaks() -> None:
        raise RuntimeError("no such instruction")

    launch = GraphRecorder()([lambda: tried.append(0), breaks, lambda: tried.append(2)])
    assert tried == [0, 0], "to compile, and to be recorded; nothing after the one that breaks"
    assert "no such instruction" in caplog.text
    launch()
