"""Server-sent events read from bytes that come in any pieces."""

from __future__ import annotations

MAX_EVENT_BYTES = 2 * 1024 * 1024
"""Longest event. No chunk of an answer is anywhere near; a server that sends more is not one."""


class EventTooLong(ValueError):
    """An event is beyond the bound."""


class EventParser:
    """The `data` of each event. What events are named, their ids and comments say nothing to us."""

    def __init__(self, longest: int = MAX_EVENT_BYTES) -> None:
        """`longest`: bytes that an event may have."""
        self._longest = longest
        self._rest = b""
        self._begun = False

    def feed(self, data: bytes) -> list[bytes]:
        """The data of the events that are whole now. EventTooLong where one grows beyond the bound."""
        if not self._begun:
            data = self._beginning(data)
        if self._rest:
            data = self._rest + data
        if b"\r" in data:
            # A carriage return at the very end may be the first half of a line's end.
            held = b"\r" if data.endswith(b"\r") else b""
            data = data[: len(data) - len(held)].replace(b"\r\n", b"\n").replace(b"\r", b"\n") + held
        *events, self._rest = data.split(b"\n\n")
        if len(data) > self._longest and max(map(len, (*events, self._rest))) > self._longest:
            raise EventTooLong(f"an event is longer than {self._longest} bytes")
        found = []
        for event in events:
            # Nearly every event of these APIs is this one line.
            if event.startswith(b"data: ") and b"\n" not in event:
                found.append(event[6:])
            elif (payload := _data(event)) is not None:
                found.append(payload)
        return found

    def end(self) -> list[bytes]:
        """At the end of the bytes: an event without its blank line counts where it has a line's end."""
        rest, self._rest = self._rest.replace(b"\r", b"\n"), b""
        payload = _data(rest.rstrip(b"\n")) if rest.endswith(b"\n") else None
        return [] if payload is None else [payload]

    def _beginning(self, data: bytes) -> bytes:
        """Without a byte order mark."""
        data = self._rest + data
        self._rest = b""
        if len(data) < 3 and b"\xef\xbb\xbf".startswith(data):
            self._rest = data
            return b""
        self._begun = True
        return data.removeprefix(b"\xef\xbb\xbf")


def _data(event: bytes) -> bytes | None:
    """The lines of `data`, joined; None where there is none."""
    lines = []
    for line in event.split(b"\n"):
        name, _, value = line.partition(b":")
        if name == b"data":
            lines.append(value.removeprefix(b" "))
    return b"\n".join(lines) if lines else None
