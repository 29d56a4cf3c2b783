"""One function call written with a tag for each argument, as Qwen3-Coder writes it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_FUNCTION, _FUNCTION_END = "<function=", "</function>"
_PARAMETER, _PARAMETER_END = "<parameter=", "</parameter>"
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')


class TaggedCall:
    """`<function=NAME>`, a `<parameter=KEY>` with its value for each argument, `</function>`.

    Values are plain text: what the function's schema says of a parameter decides whether it is a string.
    """

    def __init__(self, schemas: Mapping[str, Mapping[str, Any]]) -> None:
        """`schemas`: JSON schemas of the arguments, by function. A call of another function is none."""
        self._schemas = schemas
        self._text = ""
        self._told = ""
        self._keys = 0
        self.name: str | None = None
        self.done = False
        self.failed = False

    def push(self, text: str) -> str:
        """Read on; gives what comes after the call."""
        self._text += text
        while not self.done and not self.failed and self._step():
            pass
        return self._text if self.done else ""

    def take(self) -> str:
        """What the arguments have gained: whole parameters."""
        told, self._told = self._told, ""
        return told

    def _step(self) -> bool:
        """Read one tag; False where its end has not come."""
        text = self._text.lstrip()
        if self.name is None:
            return self._begin(text)
        if text.startswith(_FUNCTION_END):
            self._text = text[len(_FUNCTION_END) :]
            self._told += "}" if self._keys else "{}"
            self.done = True
            return True
        if not text.startswith(_PARAMETER):
            # Not a tag that belongs here, or the first part of one.
            self.done = not any(tag.startswith(text[: len(tag)]) for tag in (_FUNCTION_END, _PARAMETER))
            if self.done:
                self._told += "}" if self._keys else "{}"
            return False
        head, closed, rest = text[len(_PARAMETER) :].partition(">")
        key = head.strip()
        kind = self._kind(key)
        ended = rest.find(_PARAMETER_END)
        while ended >= 0 and kind != "string" and _within_a_string(rest[:ended]):
            ended = rest.find(_PARAMETER_END, ended + 1)
        if not closed or ended < 0:
            return False
        self._text = rest[ended + len(_PARAMETER_END) :]
        self._told += ", " if self._keys else "{"
        self._told += f"{json.dumps(key, ensure_ascii=False)}: {_json(kind, rest[:ended])}"
        self._keys += 1
        return True

    def _begin(self, text: str) -> bool:
        if text.startswith(_FUNCTION):
            name, closed, rest = text[len(_FUNCTION) :].partition(">")
            if not closed:
                self.failed = len(name) > max(map(len, self._schemas), default=0) + 2
                return False
            self.failed = name.strip() not in self._schemas
            if not self.failed:
                self.name, self._text = name.strip(), rest
            return not self.failed
        self.failed = not _FUNCTION.startswith(text)
        return False

    def _kind(self, key: str) -> object:
        """The type that the function's schema gives a parameter."""
        assert self.name is not None
        properties = self._schemas[self.name].get("properties")
        schema = properties.get(key) if isinstance(properties, Mapping) else None
        return schema.get("type") if isinstance(schema, Mapping) else None


def _json(kind: object, value: str) -> str:
    text = value.removeprefix("\n").removesuffix("\n")
    if kind != "string":
        try:
            return json.dumps(json.loads(text), ensure_ascii=False)
        except ValueError:
            pass
    return json.dumps(text, ensure_ascii=False)


def _within_a_string(value: str) -> bool:
    """Whether the beginning of a JSON value breaks off inside of a string, in which there is no line break."""
    if not value.lstrip().startswith(("{", "[", '"')):
        return False
    _, opened, text = _STRING.sub("", value).partition('"')
    return bool(opened) and "\n" not in text
