"""Clients that stop reading: whoever takes nothing of its reply for long is left, and what it holds is free.

A reply that is not taken waits with all that is held for it: places within limits, an upstream's connection, memory.
Its connection is ended, and its handler is cancelled as where a client leaves. So is one whose client is gone without a
word. Whoever takes little, but takes it again and again, as a player at the speed of its sound, is waited for: for that
reason it is no TCP_USER_TIMEOUT, which Linux does not begin anew before there is room for all of a long segment.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import termios
from weakref import WeakKeyDictionary

_LOOKS = 4
"""So often is looked while nothing may be taken."""
_ACKED_AT = 120
"""Where `tcpi_bytes_acked` stands in Linux's `struct tcp_info` (linux/tcp.h), eight bytes."""


class Sending:
    """The connections of clients, in one event loop. Does nothing where a system does not tell what was taken."""

    def __init__(self, longest_s: float) -> None:
        """End a connection whose client takes nothing of what is sent for `longest_s` seconds or a quarter more."""
        self._longest_s = longest_s
        # Not of those that are gone: there may be many between two looks.
        self._seen: WeakKeyDictionary[asyncio.Transport, tuple[int | None, float]] = WeakKeyDictionary()
        self._looking = False

    def watch(self, transport: asyncio.Transport | None) -> None:
        """From now on, until it is closed."""
        if transport is None or transport in self._seen:
            return
        self._seen[transport] = None, 0.0
        if not self._looking:
            self._look_later()

    def _look_later(self) -> None:
        self._looking = True
        asyncio.get_running_loop().call_later(self._longest_s / _LOOKS, self._look)

    def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        for transport, (before, since) in list(self._seen.items()):
            if transport.is_closing() and not transport.get_write_buffer_size():
                del self._seen[transport]
                continue
            taken = _taken(transport)
            if taken is None or taken != before:
                self._seen[transport] = taken, now
            elif now - since >= self._longest_s:
                del self._seen[transport]
                transport.abort()
        self._looking = False
        if self._seen:
            self._look_later()


def _taken(transport: asyncio.Transport) -> int | None:
    """Bytes that a client has taken in all; None where nothing waits for it, or nobody knows."""
    own = transport.get_extra_info("socket")
    if own is None or not hasattr(socket, "TCP_INFO"):
        return None
    try:
        waiting = fcntl.ioctl(own.fileno(), termios.TIOCOUTQ, bytes(4))
        if not transport.get_write_buffer_size() and not any(waiting):
            return None
        told = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKED_AT + 8)
        return int(struct.unpack_from("=Q", told, _ACKED_AT)[0])
    except (OSError, ValueError, struct.error):  # it is no connection of TCP, or is lost, or the kernel is old
        return None
