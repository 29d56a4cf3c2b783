"""What the tests of `headgate distill` share."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import Result


def conversation(number: int, split: str) -> dict[str, Any]:
    """Something to learn: the answer is always the same word."""
    turns = [{"role": "user", "content": f"say {number % 7}"}, {"role": "assistant", "content": "fox"}]
    return {"messages": turns, "split": split}


def write_lines(path: Path, *lines: object) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


Distil = Callable[..., Result]


def refused(result: Result, *parts: str, code: int = 2) -> None:
    """One line on stderr with these parts, and no traceback."""
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit)
    errors = [line for line in result.stderr.splitlines() if line]
    assert len(errors) == 1, errors
    for part in parts:
        assert part in errors[0]
