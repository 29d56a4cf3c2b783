"""`headgate bench gpu`, its process: stages run in one apart, which a broken kernel may take down or keep for ever.

After an illegal access CUDA refuses all further work of a process, and what hangs on a GPU cannot be interrupted.
Either costs its own stage here: the next one begins in a new process. What the old one started goes with it, since a
server that is left behind would keep its part of the GPU's memory.
"""

from __future__ import annotations

import gc
import math
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

from headgate.bench.gpu.stages import Stage, StageFailed
from headgate.engine.kernels.checks.line import Line

_START_S = 120.0
"""Until a process is there, with all that it imports."""
_LEAVE_S = 5.0
"""Until one is gone that has closed its connection."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why a stage ended, and whether its process can go on."""

    text: str
    usable: bool


class Apart:
    """Stages in a process of their own, one after the other."""

    def __init__(self, make: Callable[[], Iterable[Stage]]) -> None:
        """`make` is called there; it must be one that can be pickled."""
        self._make = make
        self._process: SpawnProcess | None = None
        self._connection: Connection | None = None

    def lines(self, name: str, limit_s: float, until: float = math.inf) -> Iterator[Line]:
        """What the stage of this name gives; StageFailed when it fails, takes longer, or takes the process with it.

        `until`: by `time.monotonic`, when it has to be over although it has not taken so long.
        """
        connection = self._connection or self._start(until)
        began = time.monotonic()
        end = min(began + limit_s, until)
        late = f"not done after {max(0.0, end - began):.0f} s{', when all time was up' if end == until else ''}"
        connection.send(name)
        while (said := self._next(connection, end - time.monotonic(), late)) is not None:
            if isinstance(said, _Failure):
                if not said.usable:
                    self.close()
                raise StageFailed(said.text)
            yield said

    def close(self) -> None:
        """End the process and what it started, whatever they do."""
        if self._process is not None and self._connection is not None:
            assert self._process.pid is not None
            with suppress(ProcessLookupError):  # it may have ended before it had a group
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()
            self._process.join()
            self._connection.close()
        self._process = self._connection = None

    def _start(self, until: float) -> Connection:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        self._connection = ours
        self._process = context.Process(target=_serve, args=(theirs, self._make), daemon=False)
        self._process.start()
        theirs.close()  # or nobody would notice that the process has ended
        wait_s = max(0.0, min(_START_S, until - time.monotonic()))
        self._next(ours, wait_s, f"no process after {wait_s:.0f} s")
        return ours

    def _next(self, connection: Connection, wait_s: float, late: str) -> Line | _Failure | None:
        try:
            if not connection.poll(max(0.0, wait_s)):
                self.close()
                raise StageFailed(late)
            said: Line | _Failure | None = connection.recv()
        except (EOFError, OSError):
            process = self._process
            assert process is not None
            process.join(_LEAVE_S)
            self.close()
            code = process.exitcode
            raise StageFailed(f"its process ended with {code}") from None
        return said


def _serve(connection: Connection, make: Callable[[], Iterable[Stage]]) -> None:
    """Run stages by name until the other side has gone."""
    os.setsid()  # a group of its own, by which whatever it starts is ended too
    stages = {stage.name: stage for stage in make()}
    connection.send(None)
    while True:
        try:
            name = connection.recv()
        except EOFError:
            return
        connection.send(_run(stages[name], connection))


def _run(stage: Stage, connection: Connection) -> _Failure | None:
    try:
        _make_room()
        for line in stage.work():
            connection.send(line)
        _synchronize()  # what fails late fails in the stage that launched it
    except Exception as error:
        text = f"{type(error).__name__}: {error}"[:2000]
        try:
            _synchronize()
        except Exception:
            return _Failure(text, usable=False)
        return _Failure(text, usable=True)
    return None


def _make_room() -> None:
    """An engine's parts know each other: the memory of one that is gone comes back when Python looks for such rings."""
    gc.collect()
    torch = _cuda()
    if torch is not None:
        torch.cuda.empty_cache()  # another process may be to have it


def _synchronize() -> None:
    torch = _cuda()
    if torch is not None:
        torch.cuda.synchronize()


def _cuda() -> Any:
    """torch where it was imported and has a CUDA device, else None."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and torch.cuda.is_available() else None
