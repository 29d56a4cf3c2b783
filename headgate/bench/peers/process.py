"""A measured engine in a process of its own, spoken to as `protocol` says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import headgate
from headgate.bench.peers.protocol import About, Prompts, Refused, Round
from headgate.gateway import WAITING

# The peers' interpreters find this package behind their own, so that nothing of ours takes the place of theirs.
_RUN = (
    "import runpy, sys; root, module, *rest = sys.argv[1:]; sys.path.append(root); sys.argv = [module, *rest]; "
    "runpy.run_module(module, run_name='__main__', alter_sys=True)"
)


class EngineFailed(Exception):
    """The process ended, or said something else than a round.

    Attributes:
        engine: whose process; None where it was a tool's.
    """

    def __init__(self, text: str, engine: EngineProcess | None = None) -> None:
        super().__init__(text)
        self.engine = engine


def module_command(command: Sequence[object]) -> list[str]:
    """`python -m module ...` with this package at the end of the interpreter's path; other commands as they are."""
    words = [str(word) for word in command]
    if words[1:2] != ["-m"]:
        return words
    return [words[0], "-c", _RUN, str(Path(headgate.__file__).parent.parent), *words[2:]]


class EngineProcess:
    """A context manager. What the process writes to standard error goes to a log file.

    Settings that this process made for our engine (`WAITING`) are not handed on: peers run as they come.
    """

    def __init__(self, command: Sequence[object], log: Path, settings: Mapping[str, str] | None = None) -> None:
        """`settings` are added to the environment."""
        self._command = module_command(command)
        self._log = log
        inherited = {name: value for name, value in os.environ.items() if name not in WAITING}
        self._environment = {**inherited, "PYTHONUNBUFFERED": "1", **(settings or {})}

    def __enter__(self) -> Self:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._environment,
                text=True,
            )
        try:
            self.about = About(**self._read())
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # of a question that nobody was there to read
            self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def run(self, prompts: Prompts) -> Round:
        """One round.

        Raises:
            Refused: the engine cannot run such a workload.
            EngineFailed: it broke; the message names the log.
        """
        assert self._process.stdin is not None
        try:
            print(json.dumps([(list(prompt), new) for prompt, new in prompts]), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise EngineFailed(f"{self._command[0]} is gone; see {self._log}", self) from None
        answer = self._read()
        if "refused" in answer:
            raise Refused(answer["refused"])
        return Round(**answer)

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError:
            words = self._log.read_text(errors="replace").strip().splitlines()
            said = f"the engine ended without an answer: {words[-1:]}; see {self._log}"
            raise EngineFailed(said, self) from None
        return answer


def ours(checkpoint: Path, weights: str, threads: int) -> list[object]:
    """What starts our own engine as one of the measured."""
    return [sys.executable, "-m", "headgate.bench.peers.drive_headgate", checkpoint, weights, threads]
