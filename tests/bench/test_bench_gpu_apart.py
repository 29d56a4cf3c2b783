"""`headgate bench gpu`: whatever a stage does to its process, the others run."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from functools import partial

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
