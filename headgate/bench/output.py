"""How benchmarks give their figures: as quantiles, tables and JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table


def table_of(title: str, words: Sequence[str], figures: Sequence[str], **style: Any) -> Table:
    """A table without rows: columns of words, then columns of figures, which stand to the right."""
    table = Table(title=title, **style)
    for name in words:
        table.add_column(name, no_wrap=True)
    for name in figures:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def at_share(values: Sequence[float], share: float) -> float:
    """The value that so large a share of them does not pass, 0 to 1; not a number where there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else math.nan


def write_json(path: Path | None, content: object) -> None:
    """Write where `--json` says, if it does. What is no finite number is null, since JSON has no word for it."""
    if path is not None:
        path.write_text(json.dumps(_finite(content), indent=1) + "\n", encoding="utf-8")


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
