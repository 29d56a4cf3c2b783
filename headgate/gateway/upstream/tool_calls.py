"""The calls of functions in one choice of an upstream's answer, one after the other, however it mixes their pieces."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from headgate.engine.text.json_call import JsonValue
from headgate.gateway.road.request import ToolCallDelta
from headgate.gateway.upstream.failures import Failure

_MOST_CALLS = 1024


class FunctionPiece(Struct):
    """What is added to a call."""

    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class CallPiece(Struct):
    """A piece of a call as upstreams write it."""

    function: FunctionPiece
    index: int | None = None
    id: str | None = None


class _Call:
    """A call that is being read."""

    def __init__(self, given_id: str | None, name: str) -> None:
        self.given_id = given_id
        self.id = given_id or f"call_{secrets.token_hex(12)}"
        self.name = name
        self.waiting = ""
        """Arguments that have not been told."""
        self.whole = False
        """Whether the arguments are a JSON value that has ended."""
        self._value = JsonValue()
        self._begun = False

    def add(self, arguments: str) -> None:
        self.waiting += arguments
        if not self._begun:
            arguments = arguments.lstrip()
            self._begun = bool(arguments)
        if not self.whole:
            self.whole = self._value.push(arguments, 0)[1]


class CallsInTurn:
    """Numbers calls from 0 and tells one after the other; id and name with the first piece of each and only there.

    Upstreams may begin a call before the one before it has all its arguments. What comes of it waits until these are
    whole, since in most protocols a call that another follows has ended.
    """

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._numbers: dict[int, int] = {}
        """Those of calls, by the upstream's own."""
        self._told = 0
        """Calls of which something was told."""

    @property
    def unfinished(self) -> bool:
        """Whether a call that was told of lacks arguments."""
        return bool(self._told) and not self._calls[self._told - 1].whole

    def add(self, pieces: Sequence[CallPiece]) -> tuple[ToolCallDelta, ...]:
        """What can be told now. Failure where a piece cannot be one."""
        for piece in pieces:
            at, call = self._call(piece)
            arguments = piece.function.arguments or ""
            if isinstance(arguments, dict):
                arguments = msgspec.json.encode(arguments).decode()
            if at < self._told - 1 and arguments.strip():
                raise Failure("broken", "went on with a call of a function that was whole.")
            call.add(arguments)
        return self._tell(last=False)

    def end(self) -> tuple[ToolCallDelta, ...]:
        """What still waits, when no more will come."""
        return self._tell(last=True)

    def _call(self, piece: CallPiece) -> tuple[int, _Call]:
        """The call that a piece belongs to, and its number; a new one where it is the first of it."""
        index, name = piece.index, piece.function.name or ""
        if index is None:
            # Who numbers none sends each whole, or names it again.
            known = (at for at, call in enumerate(self._calls) if piece.id and call.given_id == piece.id)
            found = next(known, None)
        else:
            if not 0 <= index < _MOST_CALLS:
                raise Failure("broken", f"numbered a call of a function {index}.")
            found = self._numbers.get(index)
            if found is not None and piece.id and name:
                # Some number all of their calls 0.
                before = self._calls[found]
                found = None if before.whole and piece.id != before.given_id else found
        if found is None:
            found = len(self._calls)
            if found >= _MOST_CALLS:
                raise Failure("broken", f"called more than {_MOST_CALLS} functions.")
            self._calls.append(_Call(piece.id, name))
        if index is not None:
            self._numbers[index] = found
        return found, self._calls[found]

    def _tell(self, *, last: bool) -> tuple[ToolCallDelta, ...]:
        told: list[ToolCallDelta] = []
        for at in range(max(0, self._told - 1), len(self._calls)):
            call, first = self._calls[at], at == self._told
            if first and self.unfinished and not last:
                break
            if first or call.waiting:
                own = (call.id, call.name) if first else (None, None)
                told.append(ToolCallDelta(at, call.waiting, *own))
            call.waiting = ""
            self._told = max(self._told, at + 1)
        return tuple(told)
