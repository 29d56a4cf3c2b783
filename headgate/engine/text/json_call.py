"""One function call written as JSON, read from text that comes in pieces.

A call is known as soon as its name is; its arguments are handed on as they come, in the characters the model wrote.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from typing import Protocol

_ARGUMENTS = ("arguments", "parameters")
_BEGINNINGS = '{["-0123456789tfn'
"""What JSON values begin with."""
_FENCE = "```"
_LONGEST_FRAME = 64
"""Characters beside the name that may stand before a call's arguments."""


class Call(Protocol):
    """A call that is being read. It ends `done`, or `failed` where the text turns out to be no call."""

    done: bool
    failed: bool

    @property
    def name(self) -> str | None:
        """The function's, once it is known that this is a call of it."""
        ...

    def push(self, text: str) -> str:
        """Read on; gives what of the text comes after the end of a call that is done."""
        ...

    def take(self) -> str:
        """What the arguments' JSON has gained since the last time; empty while the name is unknown."""
        ...


class JsonValue:
    """Finds the end of one JSON value; it begins with the first character that is pushed."""

    def __init__(self) -> None:
        self._depth = 0
        self._quoted = False
        self._escaped = False
        self._begun = False

    def push(self, text: str, start: int) -> tuple[int, bool]:
        """Where the value's part of `text`, from `start` on, ends, and whether the value does."""
        for at in range(start, len(text)):
            character = text[at]
            begun, self._begun = self._begun, True
            if self._quoted:
                if self._escaped:
                    self._escaped = False
                elif character == "\\":
                    self._escaped = True
                elif character == '"':
                    self._quoted = False
                    if not self._depth:
                        return at + 1, True
            elif begun and not self._depth and (character in ',:"{}[]' or character.isspace()):
                return at, True  # what follows a number, true, false or null
            elif character == '"':
                self._quoted = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                if self._depth <= 0:
                    return at + 1, True
        return len(text), False


class _Arguments:
    """The arguments' JSON: an object is handed on as it comes, JSON in a string as what the string says."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._object: bool | None = None
        self.whole = False

    def add(self, text: str, *, whole: bool) -> None:
        """Take in a part of the value; `whole`: it is the last."""
        if self._object is None and text:
            self._object = text[0] == "{"
        self._parts.append(text)
        self.whole = whole
        if whole and not self._object:
            self._parts, self._object = [_unquoted("".join(self._parts))], True

    def take(self) -> str:
        """What can be handed on, once."""
        if not self._object:
            return ""
        text, self._parts = "".join(self._parts), []
        return text


def _unquoted(text: str) -> str:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, str) else "{}" if value is None else text


class ObjectCall:
    """`{"name": …, "arguments": {…}}`, or with `parameters`; the keys in any order, others are skipped."""

    def __init__(self, known: Collection[str]) -> None:
        """`known`: names of the functions there are. A call of another is none."""
        self._known = known
        self._arguments = _Arguments()
        self._argued = False
        """Whether the arguments have begun: before that the text may still be no call."""
        self._expected = "{"
        self._key = ""
        self._value: JsonValue | None = None
        self._parts: list[str] = []
        self._name: str | None = None
        self.done = False
        self.failed = False

    @property
    def name(self) -> str | None:
        """The function's, once its arguments have begun too."""
        return self._name if self._argued else None

    def push(self, text: str) -> str:
        """Read on; gives what comes after the call."""
        at = 0
        while at < len(text) and not self.done and not self.failed:
            if self._value is not None:
                start = at
                at, whole = self._value.push(text, start)
                self._take_part(text[start:at], whole=whole)
            elif text[at].isspace():
                at += 1
            else:
                at += self._mark(text[at])
        return text[at:]

    def take(self) -> str:
        """What the arguments have gained."""
        return self._arguments.take() if self.name is not None else ""

    def _mark(self, character: str) -> int:
        """One character between values; gives 0 where a value begins with it."""
        expected = self._expected
        if character in ('"' if expected == "key" else _BEGINNINGS if expected == "value" else ""):
            self._value, self._parts = JsonValue(), []
            return 0
        if expected == "{" and character == "{":
            self._expected = "key"
        elif expected == ":" and character == ":":
            self._expected = "value"
        elif expected == "," and character == ",":
            self._expected = "key"
        elif expected in ("key", ",") and character == "}":
            self._end()
        else:
            self._fail()
            return 0
        return 1

    def _take_part(self, text: str, *, whole: bool) -> None:
        if self._expected == "value" and self._key in _ARGUMENTS and not self._arguments.whole:
            self._arguments.add(text, whole=whole)
            self._argued = True
        else:
            self._parts.append(text)
        if not whole:
            return
        self._value = None
        if self._expected == "key":
            self._key, self._expected = self._string(), ":"
            return
        self._expected = ","
        if self._key == "name" and self._name is None:
            self._name = self._string()
            self.failed = self._name not in self._known

    def _string(self) -> str:
        try:
            value = json.loads("".join(self._parts))
        except ValueError:
            value = None
        if not isinstance(value, str):
            self._fail()
            return ""
        return value

    def _end(self) -> None:
        if self._name is None:
            self._fail()
            return
        if not self._argued:
            self._arguments.add("{}", whole=True)
            self._argued = True
        self.done = True

    def _fail(self) -> None:
        # What was told of a call cannot be taken back: it ends where it stops to be one.
        if self.name is not None:
            self.done = True
        else:
            self.failed = True


class NamedCall:
    """The function's name and its arguments' JSON, such as `find[ARGS]{…}`."""

    def __init__(self, known: Collection[str], heads: Sequence[str], *, fence: bool = False) -> None:
        """Begin to read.

        Args:
            known: names of the functions there are.
            heads: what may stand before the arguments, patterns with a group `name`.
            fence: whether the arguments may be a block of code, which `heads` begin.
        """
        self._known = known
        self._heads = [re.compile(head) for head in heads]
        self._fence = _FENCE if fence else ""
        self._arguments = _Arguments()
        self._head = ""
        self._value: JsonValue | None = None
        self._ended = False
        self._tail = ""
        self.name: str | None = None
        self.done = False
        self.failed = False

    def push(self, text: str) -> str:
        """Read on; gives what comes after the call."""
        at = 0
        while at < len(text) and self._value is None and not self.failed:
            if text[at] == "{":
                self._begin()
            else:
                self._head += text[at]
                at += 1
                longest = max(map(len, self._known), default=0) + _LONGEST_FRAME
                self.failed = len(self._head.strip()) > longest
        if self._value is not None and not self._ended:
            start = at
            at, self._ended = self._value.push(text, start)
            self._arguments.add(text[start:at], whole=self._ended)
        return self._close(text[at:]) if self._ended else text[at:]

    def take(self) -> str:
        """What the arguments have gained."""
        return self._arguments.take()

    def _begin(self) -> None:
        found = [match["name"].strip() for head in self._heads if (match := head.fullmatch(self._head.strip()))]
        self.name = next((name for name in found if name in self._known), None)
        if self.name is None:
            self.failed = True
        else:
            self._value = JsonValue()

    def _close(self, text: str) -> str:
        """The end of the block of code, if there is one; gives what comes after the call."""
        self._tail += text
        tail = self._tail.lstrip()
        if tail.startswith(self._fence):
            self.done = True
            return tail[len(self._fence) :]
        self.done = not self._fence.startswith(tail)
        return self._tail if self.done else ""
