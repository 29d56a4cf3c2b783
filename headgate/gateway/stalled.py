"""Clients that stop reading: whoever takes nothing of its reply for long is left, and what it holds is free.

A reply that is not taken waits with all that is held for it: places within limits, an upstream's connection, memory.
The system ends such a connection, as one whose client is gone without a word, and its handler is cancelled as where a
client leaves.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress


def bound_sending(transport: asyncio.BaseTransport | None, longest_s: float) -> None:
    """Have a client's connection end where it takes nothing that is sent for so long.

    By Linux's TCP_USER_TIMEOUT (tcp(7)); elsewhere nothing is done.
    """
    own = None if transport is None else transport.get_extra_info("socket")
    if own is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
        with suppress(OSError):  # it is no connection of TCP, or is lost
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, max(1, round(longest_s * 1e3)))
