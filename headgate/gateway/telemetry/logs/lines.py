"""Lines of log that nobody waits for: a thread writes them, and a log that is stuck costs lines, not requests."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TextIO

_GATHER_S = 0.05
"""How long the thread lets lines gather: one write for many."""
MOST_LINES = 20_000


class LineHandler(logging.Handler):
    """A handler that only notes lines; its thread writes them to a file or to stderr.

    A file that was moved or removed is made anew at the next write, so that logrotate needs to tell nobody.
    """

    def __init__(self, path: Path | None = None, most: int = MOST_LINES) -> None:
        """Begin to write.

        Args:
            path: of the file, which is appended to; None: stderr.
            most: lines that may wait to be written; further ones are dropped and counted.

        OSError where the file cannot be opened.
        """
        self._file: TextIO | None = None
        if path is not None:
            # First: a handler that is none must not be closed at the end of the process.
            self._open(path)
        super().__init__()
        self.dropped = 0
        self._path = path
        self._most = most
        self._lines: deque[str] = deque()
        self._writing = threading.Lock()
        self._there = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headgate-log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Note a line."""
        if len(self._lines) >= self._most:
            self.dropped += 1
            return
        try:
            line = self.format(record)
        except Exception as error:
            # Whoever logs, a library for instance, is not to end by it.
            where = f"{record.name} ({record.pathname}:{record.lineno})"
            line = f"{where}: what it logs cannot be written ({type(error).__name__})"
        self._lines.append(line)
        if not self._there.is_set():
            self._there.set()

    def flush(self) -> None:
        """Write what waits, now and here; at the end not behind a write that is stuck."""
        if self._writing.acquire(blocking=not self._ending.is_set()):
            try:
                self._write()
            finally:
                self._writing.release()

    def close(self) -> None:
        """Write what waits, within a second or two, and end."""
        self._ending.set()
        self._there.set()
        self._thread.join(timeout=2.0)
        super().close()

    def _run(self) -> None:
        while not self._ending.is_set():
            self._there.wait()
            self._ending.wait(_GATHER_S)
            # Cleared before the lines are taken: one that comes in between wakes the thread again.
            self._there.clear()
            self.flush()
        self.flush()
        if self._file is not None:
            self._file.close()

    def _write(self) -> None:
        lines = []
        with suppress(IndexError):
            while True:
                lines.append(self._lines.popleft())
        if not lines:
            return
        text = "\n".join(lines) + "\n"
        try:
            if self._path is None:
                _say(text)
            else:
                file = self._current(self._path)
                file.write(text)
                file.flush()
        except (OSError, ValueError):
            # A full disk or a closed stderr: requests are served without.
            self.dropped += len(lines)

    def _current(self, path: Path) -> TextIO:
        """The file by its name, whatever became of the one that was opened."""
        if self._file is None or self._file.closed or not _same(self._file, path):
            self._open(path)
        assert self._file is not None, "just opened"
        return self._file

    def _open(self, path: Path) -> None:
        if self._file is not None:
            self._file.close()
        path.parent.mkdir(parents=True, exist_ok=True)
        # One half of a surrogate pair, which JSON may hold and UTF-8 not, must not cost the lines around it.
        self._file = path.open("a", encoding="utf-8", errors="backslashreplace")


def _say(text: str) -> None:
    """Write to stderr; OSError or ValueError where it is closed.

    Past Python's buffer: a thread that is stuck in there holds its lock, and no process ends then.
    """
    to: TextIO | None = sys.stderr
    if to is None:
        raise ValueError("there is no stderr")
    try:
        number = to.fileno()
    except OSError:
        to.write(text)  # something else stands in for it
        to.flush()
        return
    left = memoryview(text.encode("utf-8", "backslashreplace"))
    while left:
        left = left[os.write(number, left) :]


def dropped(*loggers: str | None) -> int:
    """Lines that the handlers of some loggers could not write, each handler once; None is the root's name."""
    handlers = {handler for name in loggers for handler in logging.getLogger(name).handlers}
    return sum(handler.dropped for handler in handlers if isinstance(handler, LineHandler))


def _same(file: TextIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False
