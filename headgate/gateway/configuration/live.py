"""What of the main file holds without a restart, and what of it has to wait for one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from headgate.gateway.configuration.document import ConfigError
from headgate.gateway.configuration.reading import read_settings
from headgate.gateway.settings import Settings

LIVE = (
    "defaults",
    "routing.threshold",
    "routing.chain",
    "routing.max_queue",
    "routing.max_wait_s",
    "routing.takeover_s",
    "routing.escalations",
    "routing.escalation_window_s",
    "routing.sessions.switch_gain",
    "routing.sessions.band",
    "routing.cascade",
    "routing.outcomes.allow",
    "cache.share",
    "cache.exact.ttl_s",
    "cache.exact.time_sensitive_ttl_s",
    "cache.exact.max_temperature",
    "cache.exact.tool_results",
    "cache.exact.normalize_text",
    "cache.semantic.wait_s",
    "logging.level",
    "logging.content",
)
"""Keys, or blocks of keys, that a running server takes over."""

M = TypeVar("M", bound=BaseModel)


class MainFile:
    """The main file of a running server."""

    def __init__(self, path: Path, read: Settings, running: Settings) -> None:
        """A file that was `read` for the start; `running` has what the command line said otherwise."""
        self.path = path
        # A pipe gives what is in it once: nothing of it would be taken for the defaults.
        self._once = not path.is_file()
        self._began_empty = _empty(path)
        self._before = read
        self._running = running

    def read(self) -> tuple[Settings, tuple[str, ...]]:
        """What holds by the file as it is now, and the keys whose values need a restart.

        ConfigError as at a start, and where nothing is in it any more: it is being written, and no limit ends for that.
        """
        if self._once:
            return self._running, ()
        if _empty(self.path) and not self._began_empty:
            raise ConfigError([f"{self.path}: is empty now; for the defaults write a comment into it"])
        return taken_over(self._running, self._before, read_settings(self.path))


def _empty(path: Path) -> bool:
    """Whether a file has no bytes. One that is not there is told of by reading it."""
    try:
        return path.stat().st_size == 0
    except OSError:
        return False


def taken_over(running: Settings, before: Settings, now: Settings) -> tuple[Settings, tuple[str, ...]]:
    """The running settings with the live keys that differ from before, and the other keys that do."""
    waiting = []
    for key in _differing(before.model_dump(), now.model_dump()):
        live = next((name for name in LIVE if f"{key}.".startswith(f"{name}.")), None)
        if live is None:
            waiting.append(key)
        else:
            path = live.split(".")
            running = _with(running, path, reduce(getattr, path, now))
    return running, tuple(waiting)


def _differing(one: dict[str, Any], other: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Dotted keys with other values. Both have the same keys; a list is one value."""
    for name, value in one.items():
        if isinstance(value, dict) and isinstance(other[name], dict) and value.keys() == other[name].keys():
            yield from _differing(value, other[name], f"{prefix}{name}.")
        elif value != other[name]:
            yield f"{prefix}{name}"


def _with(section: M, path: list[str], value: object) -> M:
    """A copy with another value at the end of a path."""
    name, *rest = path
    return section.model_copy(update={name: _with(getattr(section, name), rest, value) if rest else value})
