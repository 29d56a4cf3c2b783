"""Grading by program: exact text, a number, a JSON structure or a function call."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from headgate.engine.demo.tasks.sample import Sample

Grading = Literal["text", "json", "number", "call"]
"""How an answer counts as right.

- `text`: it is the reference, but for white space around either. Where the reference has working, what comes before the
  answer is not graded.
- `json`: it parses to the same structure (key order does not matter; 1 and 1.0 differ).
- `number`: its last number is the reference's last number. What comes before, such as working steps, is not graded.
- `call`: it is one `<tool_call>` block whose JSON is the reference's structure.
"""

SO = ", so "
"""Stands between working and answer."""
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)


def written(working: str, answer: str) -> str:
    """Working and answer as one text."""
    return f"{working}{SO}{answer}" if working else answer


def grade(sample: Sample, text: str) -> bool:
    """Whether `text` answers the sample rightly, by its family's `Grading`."""
    given, wanted = text.strip(), sample.answer.strip()
    if sample.grading == "text":
        return (given.rpartition(SO)[2] if sample.working else given) == wanted
    if sample.grading == "number":
        numbers = _NUMBER.findall(given)
        return bool(numbers) and numbers[-1:] == _NUMBER.findall(wanted)[-1:]
    if sample.grading == "call":
        calls = _CALL.fullmatch(given), _CALL.fullmatch(wanted)
        if calls[0] is None or calls[1] is None:
            return given == wanted
        given, wanted = calls[0].group(1), calls[1].group(1)
    try:
        return _canonical(json.loads(given)) == _canonical(json.loads(wanted))
    except (ValueError, RecursionError):
        return False


def _canonical(value: object) -> str:
    # Comparing texts, because Python's own == holds True for 1 and 1.0 for 1.
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
