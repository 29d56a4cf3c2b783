"""Scheduler, block tables and prefix cache where each run of steps leaves one or two under way."""

from __future__ import annotations

from hypothesis import settings
from lane_memory import lane_of
from test_lane_properties import LaneMachine, WindowedLaneMachine

from headgate.engine.request import Request
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.scheduling.limits import Limits


class AheadMachine(LaneMachine):
    """The same, a step ahead."""

    def __init__(self) -> None:
        super().__init__()
        self.memory.leaves = 1


class FurtherMachine(LaneMachine):
    """Two steps ahead, as with many sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.memory.leaves = 2


class WindowMachine(WindowedLaneMachine):
    """Two steps ahead, of a model that sees a window."""

    def __init__(self) -> None:
        super().__init__()
        self.memory.leaves = 2


AheadMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestAhead = AheadMachine.TestCase
FurtherMachine.TestCase.settings = AheadMachine.TestCase.settings
TestFurther = FurtherMachine.TestCase
WindowMachine.TestCase.settings = settings(max_examples=15, stateful_step_count=40, deadline=None)
TestWindow = WindowMachine.TestCase


def test_each_step_is_read_while_the_next_is_under_way() -> None:
    lane, scheduler, memory = lane_of(Limits(max_step_tokens=20, max_running=2), blocks=40)
    memory.leaves = 1
    lane.submit(Request("a", "m", (1, 2, 3), SamplingParams(max_tokens=6, ignore_eos=True)), 0.0)
    for tokens, held in ((4, 3), (5, 6), (6, 7), (7, 8), (8, 9)):
        (delta,) = lane.step()
        assert len(delta.token_ids) == 1
        # The step that is under way writes behind what is known; no step goes beyond the limit.
        (sequence,) = scheduler.running
        assert len(sequence.tokens) == tokens
        assert len(sequence.table.blocks) == scheduler.tables.blocks_for(min(held, 8))
        lane.check()
    (last,) = lane.step()
    assert last.finish is not None
    assert (last.finish.reason, last.finish.completion_tokens) == ("length", 6)
    assert lane.idle
    assert scheduler.tables.free_blocks == 40
