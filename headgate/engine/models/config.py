"""Reading config.json with errors that name the key, the value and what would be accepted."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from headgate.engine.errors import CheckpointError

LARGEST = 2**31 - 1
"""What a whole number may be where nothing smaller is said: sizes beyond it are slips of the pen."""
MOST_LAYERS = 10_000
"""A hundred times what the largest models have: of more, parts would be made until memory is full."""


class Config:
    """The content of a config.json, or of an object in it. A key that is null is as good as left out."""

    def __init__(self, values: Mapping[str, Any], name: str = "", file: str = "config.json") -> None:
        """`name`: of the object in the file, for errors; and the file's, where it is another."""
        self._values = values
        self._name = f"{name}." if name else ""
        self._file = file

    def get(self, key: str, default: Any = None) -> Any:
        """Whatever the key holds."""
        value = self._values.get(key)
        return default if value is None else value

    def integer(self, key: str, *synonyms: str, default: int | None = None, least: int = 1, most: int = LARGEST) -> int:
        """A whole number from `least` to `most`, by the first of the names that is there.

        Raises:
            CheckpointError: it is something else, or there is none and no default.
        """
        value = next((self._values[k] for k in (key, *synonyms) if self._values.get(k) is not None), default)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            wanted = "a positive integer" if least == 1 else f"an integer of at least {least}"
            raise CheckpointError(f"{self._file}: {self._name}{key} must be {wanted}, got {value!r}")
        if value > most:
            raise CheckpointError(f"{self._file}: {self._name}{key} must be at most {most}, got {value}")
        return value

    def number(self, key: str, default: float | None = None, *, above: float = 0.0) -> float:
        """A finite number above `above`.

        Raises:
            CheckpointError: it is something else, or there is none and no default.
        """
        value = self.get(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not above < value <= sys.float_info.max:
            wanted = "a positive number" if above == 0.0 else f"a number above {above:g}"
            raise CheckpointError(f"{self._file}: {self._name}{key} must be {wanted}, got {value!r}")
        return float(value)

    def number_or_none(self, key: str) -> float | None:
        """As `number`; None where there is none, or 0."""
        return self.number(key) if self.get(key) else None

    def object(self, *keys: str) -> Config:
        """The object by the first of the names that holds something; an empty one where none does.

        Raises:
            CheckpointError: it is something else.
        """
        key = next((k for k in keys if self._values.get(k)), keys[0])
        value = self._values.get(key) or {}
        if not isinstance(value, Mapping):
            raise CheckpointError(f"{self._file}: {self._name}{key} must be an object, got {value!r}")
        return Config(value, f"{self._name}{key}", self._file)
