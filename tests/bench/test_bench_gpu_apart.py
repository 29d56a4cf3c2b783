"""`headgate bench gpu`: whatever a stage does to its process, the others run."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from functools import partial
from weakref import ref

from headgate.bench.gpu_check_apart import Apart
from headgate.bench.gpu_check_stages import Outcome, Stage, run_stages
from headgate.engine.kernels.checks.line import Line


def stages() -> list[Stage]:
    """In the other process."""
    return [Stage(name, 0, partial(work, name)) for name in ("good", "fails", "dies", "hangs")]


def work(name: str) -> Iterator[Line]:
    yield Line(name, "began", {"process": float(os.getpid())})
    if name == "fails":
        raise RuntimeError("no kernel image")
    if name == "dies":
        os._exit(3)
    if name == "hangs":
        threading.Event().wait()


def test_each_stage_is_by_itself() -> None:
    apart, outcomes = Apart(stages), list[Outcome]()
    names = ["good", "fails", "good", "dies", "good", "hangs"]
    limits = {"hangs": 2.0}
    try:
        course = [Stage(name, 0, partial(apart.lines, name, limits.get(name, 60.0))) for name in names]
        run_stages(course, 600, outcomes.append)
    finally:
        apart.close()
    assert [(o.name, o.failure) for o in outcomes] == [
        ("good", ""),
        ("fails", "RuntimeError: no kernel image"),
        ("good", ""),
        ("dies", "its process ended with 3"),
        ("good", ""),
        ("hangs", "not done after 2 s"),
    ]
    processes = [int(line.figures["process"]) for outcome in outcomes for line in outcome.lines]
    assert processes[:4] == [processes[0]] * 4
    assert processes[4:] == [processes[4]] * 2
    assert os.getpid() != processes[0] != processes[4]


class Ring:
    """Something that knows itself."""

    def __init__(self) -> None:
        self.own = self


def leaving() -> list[Stage]:
    """Two stages: of the ring that the first leaves behind the second says whether it is there."""
    left: list[ref[Ring]] = []

    def first() -> Iterator[Line]:
        left.append(ref(Ring()))
        yield Line("left", "a ring")

    def second() -> Iterator[Line]:
        yield Line("found", "gone" if left[0]() is None else "there")

    return [Stage("first", 0, first), Stage("second", 0, second)]


def test_what_a_stage_leaves_behind_is_gone_when_the_next_begins() -> None:
    apart = Apart(leaving)
    try:
        told = [line.text for name in ("first", "second") for line in apart.lines(name, 60.0)]
    finally:
        apart.close()
    assert told == ["a ring", "gone"]
