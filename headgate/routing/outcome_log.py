"""Outcomes of a gateway's own requests: a line each, without a word of what was asked or answered.

Both models answered a request, and it was told whether the small one's answer means the same as the large one's; or one
of them did, and a user said how it was. What is kept of the request is what estimates read: embeddings and counts.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np

from headgate.routing.outcomes import Attempt, Confidence, TableError
from headgate.routing.types import Vector

_LOOK = 1 << 12
"""Bytes that are read at a time in search of a line's end."""


class LoggedOutcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One request that both models answered, or that one answered and a user rated.

    Attributes:
        at: Unix time.
        small: identity of the small checkpoint.
        large: of the large one.
        embedder: name of the embedding model.
        team: whose request it was.
        features: the keyed hash that the access log has of the request.
        answered: id of the model whose answer was given.
        readings: of the text and, where they are judged, of its cores; float32 of `[readings, columns]`.
        columns: of a reading: the embedding, then the counts of `SURFACE`.
        cores: whether cores are judged.
        prompt_tokens: of the small model.
        one: the small model's answer; right where it means the same as the large one's, or was rated good. None where
            the large one's was rated.
        other: the large model's answer, which counts as right unless it was rated bad. None where the small one's was.
        confidence: of the small model's answer; None of a rated one.
        voice: names the user who rated it to nobody; empty where both models answered.
    """

    at: float
    small: str
    large: str
    embedder: str
    team: str
    features: str
    answered: str
    readings: bytes
    columns: int
    cores: bool
    prompt_tokens: int
    one: Attempt | None
    other: Attempt | None
    confidence: Confidence | None = None
    voice: str = ""

    @property
    def rows(self) -> Vector:
        """The readings, `[readings, columns]`."""
        return np.frombuffer(self.readings, np.float32).reshape(-1, self.columns)


class OutcomeLog:
    """Appends to a file of JSON lines. A full half of what may be kept is set aside, in place of the last one."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        """`max_bytes`: of the file and of what was set aside, together."""
        self._path = path
        self._half = max_bytes // 2
        self._lock = threading.Lock()

    def append(self, outcome: LoggedOutcome) -> None:
        """Write a line, from any thread. OSError where that fails; what was written of it is taken back."""
        line = msgspec.json.encode(outcome) + b"\n"
        with self._lock:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            size = self._whole() if self._path.is_file() else 0
            if size and size + len(line) > self._half:
                self._path.replace(set_aside(self._path))
                size = 0
            try:
                with self._path.open("ab") as file:
                    file.write(line)
            except OSError:
                # Of a line that a full disk cut the next one would be the rest, and the log could not be read.
                with suppress(OSError):
                    os.truncate(self._path, size)
                raise

    def _whole(self) -> int:
        """Bytes of the file, whose last line, where it has no end, is cut off: what comes next would be its rest."""
        with self._path.open("rb+") as file:
            size = end = file.seek(0, os.SEEK_END)
            found = -1
            while end and found < 0:
                start = max(0, end - _LOOK)
                file.seek(start)
                found = file.read(end - start).rfind(b"\n")
                end = start
            whole = end + found + 1
            if whole < size:
                file.truncate(whole)
        return whole


def set_aside(path: Path) -> Path:
    """The file of the older half."""
    return path.with_name(f"{path.name}.1")


def read_log(path: Path) -> list[LoggedOutcome]:
    """The outcomes of a log, the oldest first, what was set aside included.

    A last line that is not there as a whole is left out: a gateway may be writing it, or was ended then.

    Raises:
        TableError: the file cannot be read, or a line is not of this form; the message names it.
    """
    decoder = msgspec.json.Decoder(LoggedOutcome)
    found: list[LoggedOutcome] = []
    for file in (set_aside(path), path):
        if file != path and not file.is_file():
            continue
        try:
            lines = file.read_bytes().splitlines(keepends=True)
        except OSError as error:
            raise TableError(f"{file}: {error.strerror or error}") from None
        for number, line in enumerate(lines, 1):
            try:
                one = decoder.decode(line)
                if not len(one.rows) or not np.isfinite(one.rows).all():
                    raise ValueError("readings are empty or not finite")
                if one.one is None and one.other is None:
                    raise ValueError("neither model answered")
            except (msgspec.DecodeError, ValueError) as error:
                if not line.endswith(b"\n"):
                    break
                raise TableError(f"{file}:{number}: {error}") from None
            found.append(one)
    return found
