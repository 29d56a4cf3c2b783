"""The task classes and their example prompts: data that ships with the package."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import get_args

from headgate.routing.types import Tier

_FIELDS = frozenset({"tier", "examples"})
_TIERS: tuple[Tier, ...] = get_args(Tier)
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Task:
    """One class of prompts."""

    name: str
    tier: Tier
    """The tier that answers it well enough by default."""
    examples: tuple[str, ...]


def load_tasks(path: Path | None = None) -> tuple[Task, ...]:
    """Read task classes from a JSON file; None reads the ones that ship.

    Raises:
        ValueError: the file cannot be read or is not of the form `{"tasks": {name: {"tier": ..., "examples": [...]}}}`;
            the message names the file and the place in it.
    """
    source = path if path is not None else files("headgate.routing") / "tasks.json"
    try:
        data = json.loads(source.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{source}: the task classes cannot be read: {error}") from error
    entries = data.get("tasks") if isinstance(data, dict) else None
    if not isinstance(entries, dict) or not entries:
        raise ValueError(f"{source}: tasks: an object with at least one task class is accepted")
    return tuple(_task(f"{source}: tasks.{name}", name, entry) for name, entry in entries.items())


def _task(place: str, name: str, entry: object) -> Task:
    if name == UNKNOWN:
        raise ValueError(f"{place}: this name is kept for prompts of no class; any other name is accepted")
    if not isinstance(entry, dict):
        raise ValueError(f"{place} is {entry!r}; an object is accepted")
    for field in entry:
        if field not in _FIELDS:
            raise ValueError(f"{place}.{field} is not known; {', '.join(sorted(_FIELDS))} are accepted")
    examples = entry.get("examples")
    tier = next((tier for tier in _TIERS if tier == entry.get("tier")), None)
    if tier is None:
        raise ValueError(f"{place}.tier is {entry.get('tier')!r}; {' or '.join(_TIERS)} is accepted")
    if not isinstance(examples, list) or not examples:
        raise ValueError(f"{place}.examples: a list with at least one text is accepted")
    for at, example in enumerate(examples):
        if not isinstance(example, str) or not example.strip():
            raise ValueError(f"{place}.examples[{at}] is {example!r}; a text is accepted")
    return Task(name, tier, tuple(examples))
