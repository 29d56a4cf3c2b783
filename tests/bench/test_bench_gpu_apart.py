"""`headgate bench gpu`: whatever a stage does to its process, the others run."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from weakref import ref

import pytest

from headgate.bench.gpu.apart import Apart
from headgate.bench.gpu.stages import Outcome, Stage, run_stages
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


def stages_with_a_server(pipe: Path) -> list[Stage]:
    """In the other process; "dies" and "hangs" have a process of their own, which has `pipe` open as long as it is."""
    return [Stage(name, 0, partial(served, pipe, name)) for name in ("dies", "hangs")]


def served(pipe: Path, name: str) -> Iterator[Line]:
    server = f"import sys, time; held = open({str(pipe)!r}, 'w'); print('there', flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", server], stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        running.stdout.readline()
        yield from work(name)


@pytest.mark.parametrize("name", ["dies", "hangs"])
def test_what_a_stage_started_ends_with_it(name: str, tmp_path: Path) -> None:
    pipe, outcomes = tmp_path / "held", list[Outcome]()
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    apart = Apart(partial(stages_with_a_server, pipe))
    try:
        run_stages([Stage(name, 0, partial(apart.lines, name, 2.0))], 600, outcomes.append)
        ended, _, _ = select.select([held], [], [], 20.0)
    finally:
        apart.close()
        os.close(held)
    assert outcomes[0].lines, "it began"
    assert ended, "nobody has the pipe open any more"


def test_no_stage_goes_on_when_all_time_is_up() -> None:
    apart, outcomes = Apart(stages), list[Outcome]()
    try:
        course = [
            Stage("good", 0, partial(apart.lines, "good", 60.0)),
            Stage("hangs", 0, lambda: apart.lines("hangs", 600.0, time.monotonic() + 1.0)),
        ]
        run_stages(course, 600, outcomes.append)
    finally:
        apart.close()
    assert outcomes[1].failure == "not done after 1 s, when all time was up"
