"""Bodies on their way: one that hardly comes is not waited for."""

from __future__ import annotations

import asyncio
from types import TracebackType

from headgate.gateway.wire.errors import ApiError

GRACE_S = 30.0
"""In which nothing need come: a client may be asked for its body, or pack it, meanwhile."""
LEAST_BYTES_S = 1000.0
"""A second, from there on; a telephone on the edge of its net sends ten times as much."""


class Arriving:
    """The wait for one body, as a context. ApiError 408 where it comes too slowly."""

    def __init__(self, grace_s: float = GRACE_S, least_bytes_s: float = LEAST_BYTES_S) -> None:
        """`grace_s`: seconds before anything has to come; `least_bytes_s`: bytes a second from then on."""
        self._grace_s = grace_s
        self._least = least_bytes_s
        self._came = 0
        self._until = 0.0
        self._limit = asyncio.timeout(None)

    def came(self, count: int) -> None:
        """So many bytes more are there."""
        self._came += count
        self._limit.reschedule(self._until + self._came / self._least)

    async def __aenter__(self) -> Arriving:
        await self._limit.__aenter__()
        self._until = asyncio.get_running_loop().time() + self._grace_s
        self.came(0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._limit.__aexit__(kind, error, trace)
        except TimeoutError:
            if not self._limit.expired():
                raise
            message = (
                f"The request body came too slowly: {self._came} bytes in {self._grace_s + self._came / self._least:g} "
                f"s. Expected at least {self._least:g} bytes a second after {self._grace_s:g} s."
            )
            raise ApiError(408, message, type="timeout_error", code="body_too_slow") from None
