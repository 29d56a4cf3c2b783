"""What the server is ready for: which parts are up, who is on the road, and whether it is shutting down."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

from headgate.gateway.wire.errors import overloaded

Phase = Literal["loading", "ready", "failing", "draining"]
State = Literal["loading", "ready", "off", "failed"]


class Lifecycle:
    """Readiness of the parts and the count of requests in flight. All calls come from one event loop."""

    def __init__(self) -> None:
        self._parts: dict[str, tuple[State, str]] = {}
        self._required: set[str] = set()
        self._ready = asyncio.Event()
        self._over = asyncio.Event()
        """Nobody has to wait for the parts any more: they are there, or will not be."""
        self._idle = asyncio.Event()
        self._idle.set()
        self._in_flight = 0
        self._draining = False
        self._ended = False
        """Whether those on the road have had their time."""

    @property
    def ready(self) -> bool:
        """Whether requests are answered now, whatever they ask for."""
        return self.phase == "ready"

    @property
    def loaded(self) -> bool:
        """Whether the required parts have been there."""
        return self._ready.is_set()

    @property
    def phase(self) -> Phase:
        """Where in its life the server is."""
        if self._draining:
            return "draining"
        if not self._ready.is_set():
            return "loading"
        return "ready" if self._complete else "failing"

    @property
    def in_flight(self) -> int:
        """Requests on the road."""
        return self._in_flight

    @property
    def parts(self) -> Mapping[str, tuple[State, str]]:
        """State and detail of each part."""
        return self._parts

    def set(self, part: str, state: State, detail: str = "", *, required: bool = True) -> None:
        """Note a part's state; the server is ready once every required part is.

        Where one fails later, requests go on: they tell who asks what is wrong, and others may be answered.
        """
        self._parts[part] = (state, detail)
        if required:
            self._required.add(part)
        if self._complete:
            self._ready.set()
            self._over.set()
        elif required and state == "loading":
            self._ready.clear()
            self._over.clear()

    def drop(self, part: str) -> None:
        """There is no such part any more."""
        self._parts.pop(part, None)
        self._required.discard(part)

    @property
    def _complete(self) -> bool:
        return all(self._parts[name][0] == "ready" for name in self._required)

    async def wait_until_ready(self) -> None:
        """Wait for the parts, however long they take."""
        await self._ready.wait()

    async def wait_ready(self, timeout_s: float) -> None:
        """Wait for the parts; ApiError 503 when they take longer or the server is shutting down.

        Who entered before and finds them there is on the road, however late its body came.
        """
        if not self._over.is_set():
            try:
                async with asyncio.timeout(timeout_s):
                    await self._over.wait()
            except TimeoutError:
                loading = [name for name, (state, _) in sorted(self._parts.items()) if state == "loading"]
                raise overloaded(f"The server is starting: {', '.join(loading)} still loading.") from None
        if self._draining and (self._ended or not self._ready.is_set()):
            raise overloaded("The server is shutting down.")

    def enter(self) -> None:
        """Count a request that is on the road from now on; ApiError 503 while draining."""
        if self._draining:
            raise overloaded("The server is shutting down.")
        self._in_flight += 1
        self._idle.clear()

    def leave(self) -> None:
        """One that entered is on the road no more."""
        self._in_flight -= 1
        if self._in_flight == 0:
            self._idle.set()

    @contextmanager
    def request(self) -> Iterator[None]:
        """Both, around what is done for it."""
        self.enter()
        try:
            yield
        finally:
            self.leave()

    async def drain(self, deadline_s: float) -> bool:
        """Refuse new requests and those that wait for the parts, and wait for the others in flight; False where some
        were left at the deadline."""
        self._draining = True
        self._over.set()
        try:
            async with asyncio.timeout(deadline_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        finally:
            self._ended = True
        return True
