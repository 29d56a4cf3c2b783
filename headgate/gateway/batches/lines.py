"""Reading an input file a line at a time: nothing of it stays in memory but what is being answered."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from headgate.gateway.wire.batches import BatchError, InputLine, parse_line
from headgate.gateway.wire.body_weight import check_weight
from headgate.gateway.wire.errors import ApiError

MAX_ERRORS = 100
"""Errors of a file that are told; those that follow only say the same."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Most lines of a file, and most bytes and values of one: see `check_weight`."""

    lines: int
    line_bytes: int
    line_values: int


@dataclass(slots=True)
class Checked:
    """What a file holds: its requests, or what is wrong with it."""

    total: int = 0
    errors: list[BatchError] = field(default_factory=list)


def check(path: Path, endpoint: str, limits: Limits) -> Checked:
    """Read a whole file. OSError where it cannot be read."""
    found, seen = Checked(), set[bytes]()
    with path.open("rb") as file:
        for number, text in _numbered(file, limits.line_bytes):
            if found.total >= limits.lines:
                message = f"The file has more than {limits.lines} requests."
                found.errors.append(BatchError("too_many_requests", message, line=number))
                break
            found.total += 1
            error = _wrong(text, endpoint, limits, seen)
            if error is not None:
                found.errors.append(BatchError(error.code, error.message, error.param, number))
                if len(found.errors) >= MAX_ERRORS:
                    break
    if not found.total:
        found.errors.append(BatchError("empty_file", "The file holds no requests."))
    return found


class Lines:
    """The requests of a file that was checked, but for those that are done."""

    def __init__(self, path: Path, endpoint: str, limits: Limits, done: Container[int]) -> None:
        """Open the file; OSError where it cannot be read. `done`: numbers of lines to leave out, from 1 on."""
        self._file = path.open("rb")
        self._endpoint = endpoint
        self._numbered = _numbered(self._file, limits.line_bytes)
        self._done = done

    def next(self) -> tuple[int, InputLine] | None:
        """The next one with its number; None at the end. ApiError where the file is not what was checked."""
        for number, text in self._numbered:
            if number not in self._done:
                return number, parse_line(text, self._endpoint)
        return None

    def close(self) -> None:
        """Leave the file."""
        self._file.close()


def _numbered(file: BinaryIO, most: int) -> Iterator[tuple[int, bytes]]:
    """Lines that are not blank, and their numbers; of one that is too long, its beginning."""
    number = 0
    while text := file.readline(most + 2):
        number += 1
        while len(text) > most + 1 and not text.endswith(b"\n"):
            rest = file.readline(most)
            if not rest or rest.endswith(b"\n"):
                break
        if not text.isspace():
            yield number, text


def _wrong(text: bytes, endpoint: str, limits: Limits, seen: set[bytes]) -> ApiError | None:
    if len(text.rstrip(b"\r\n")) > limits.line_bytes:
        return ApiError(400, f"The line is longer than {limits.line_bytes} bytes.", code="request_too_large")
    try:
        check_weight(text, limits.line_values)
        line = parse_line(text, endpoint)
    except ApiError as error:
        return error
    # A digest each: fifty thousand long names would be much to remember.
    digest = hashlib.blake2b(line.custom_id.encode(), digest_size=16).digest()
    if digest in seen:
        message = f"The custom_id '{line.custom_id[:80]}' is that of an earlier line."
        return ApiError(400, message, param="custom_id", code="duplicate_custom_id")
    seen.add(digest)
    return None
