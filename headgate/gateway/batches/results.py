"""The output and the error file of a batch: what is in them is done, and nothing else is.

A line's result is one append. After a crash both files are read to see which lines are done; what was half written is
cut off and answered again. So no line is lost and none is there twice.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from headgate.gateway.wire.batches import BatchUsage, InputDetails, LineError, LineResponse, OutputDetails, ResultLine


class _PromptDetails(Struct):
    cached_tokens: int = 0


class _CompletionDetails(Struct):
    reasoning_tokens: int = 0


class _Usage(Struct):
    """Of an answer, as any endpoint writes it."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None


class _Body(Struct):
    usage: _Usage | None = None


_LINE = msgspec.json.Decoder(ResultLine)
_BODY = msgspec.json.Decoder(_Body)


class ResultFile:
    """One of the two files. Methods block; `append` and `close` may come from different threads."""

    def __init__(self, path: Path, mine: Callable[[ResultLine], int | None]) -> None:
        """Open a file and cut off what is not a whole line of this batch.

        Args:
            path: the file; OSError where it cannot be used.
            mine: the number of a result's line, or None where it is none of this batch.
        """
        self.numbers: set[int] = set()
        self.size = 0
        """Bytes of whole lines."""
        self.usage = BatchUsage()
        self._turn = threading.Lock()
        self._file = path.open("r+b", buffering=0)
        for text in _whole_lines(path):
            try:
                result = _LINE.decode(text)
            except (msgspec.DecodeError, UnicodeDecodeError):
                break
            number = mine(result)
            if number is None or number in self.numbers:
                break
            self._count(number, result)
            self.size += len(text)
        self._cut()

    def append(self, number: int, result: ResultLine) -> None:
        """Add a line's result. OSError where the disk does not take it; then the file is as it was."""
        text = msgspec.json.encode(result) + b"\n"
        with self._turn:
            try:
                view = memoryview(text)
                while view:
                    view = view[self._file.write(view) :]
            except OSError:
                self._cut()
                raise
            self.size += len(text)
            self._count(number, result)

    def settle(self) -> None:
        """Have the disk take it all."""
        with self._turn:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Wait for a line that is being added; nothing is added any more."""
        with self._turn:
            self._file.close()

    def _cut(self) -> None:
        self._file.truncate(self.size)
        self._file.seek(self.size)

    def _count(self, number: int, result: ResultLine) -> None:
        self.numbers.add(number)
        if result.response is not None and result.response.status_code == 200:
            add_usage(self.usage, result.response.body)


def result_of(batch_id: str, number: int, custom_id: str, response: LineResponse | LineError) -> ResultLine:
    """The line of a result file for a line of the input."""
    name = f"{_prefix(batch_id)}{number}"
    if isinstance(response, LineError):
        return ResultLine(name, custom_id, None, response)
    return ResultLine(name, custom_id, response, None)


def number_in(batch_id: str) -> Callable[[ResultLine], int | None]:
    """Tells the number of the line that a result of the batch is of; None for a result of another."""
    prefix = _prefix(batch_id)

    def number(result: ResultLine) -> int | None:
        digits = result.id.removeprefix(prefix)
        return int(digits) if digits != result.id and digits.isascii() and digits.isdigit() else None

    return number


def add_usage(total: BatchUsage, body: bytes | msgspec.Raw) -> None:
    """Add the tokens of an answer."""
    try:
        usage = _BODY.decode(body).usage
    except msgspec.DecodeError:
        return
    if usage is None:
        return
    total.input_tokens += usage.prompt_tokens
    total.output_tokens += usage.completion_tokens
    total.total_tokens += usage.prompt_tokens + usage.completion_tokens
    cached = usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else 0
    reasoning = usage.completion_tokens_details.reasoning_tokens if usage.completion_tokens_details else 0
    total.input_tokens_details = InputDetails(total.input_tokens_details.cached_tokens + cached)
    total.output_tokens_details = OutputDetails(total.output_tokens_details.reasoning_tokens + reasoning)


def _prefix(batch_id: str) -> str:
    return f"batch_req_{batch_id.removeprefix('batch_')}_"


def _whole_lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        for text in file:
            if not text.endswith(b"\n"):
                return
            yield text
