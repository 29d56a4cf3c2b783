"""Identical requests in flight share one generation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")


class FlightLostError(RuntimeError):
    """The shared generation was cancelled from outside while somebody still waited for it."""


class SingleFlight(Generic[T]):
    """One producer per key, any number of subscribers, each of whom sees every item from the first on.

    The producer runs in a task of its own, so that the request that started it may leave without harm to the others.
    It is cancelled when the last subscriber leaves. Its items are kept until then and no longer.

    A flight lands when its producer ends. So that no request falls between the flight and the cache, the producer
    itself should store the finished answer before it ends.

    All calls come from one event loop.
    """

    def __init__(self) -> None:
        self._flights: dict[str, _Flight[T]] = {}

    def __len__(self) -> int:
        """Keys in flight."""
        return len(self._flights)

    def subscribe(self, key: str, start: Callable[[], AsyncIterator[T]]) -> Subscription[T]:
        """Join the flight of `key`, or begin it with `start` where there is none.

        Use it as `async with flights.subscribe(key, start) as items: async for item in items: ...`; joining happens on
        entry, leaving on exit. Only the first subscriber's `start` is called.
        """
        return Subscription(self, key, start)

    def _join(self, key: str, start: Callable[[], AsyncIterator[T]]) -> tuple[_Flight[T], bool]:
        flight = self._flights.get(key)
        leads = flight is None
        if flight is None:
            flight = _Flight()
            self._flights[key] = flight
            flight.task = asyncio.create_task(self._fly(key, flight, start), name=f"flight {key}")
        flight.subscribers += 1
        return flight, leads

    async def _leave(self, key: str, flight: _Flight[T]) -> None:
        flight.subscribers -= 1
        if flight.subscribers:
            return
        # Taken off at once: who comes from now on begins a new flight and never joins a dying one.
        self._land(key, flight)
        # What ended it has the frames of all that it ran, and those have the flight: nothing in such a circle, pictures
        # and prompts above all, is free before the collector comes by.
        task, flight.task, flight.error = flight.task, None, None
        if task is not None and not task.done():
            task.cancel()
            # wait() neither raises the producer's error nor passes our own cancellation on to it.
            await asyncio.wait([task])

    async def _fly(self, key: str, flight: _Flight[T], start: Callable[[], AsyncIterator[T]]) -> None:
        try:
            items = start()
            try:
                async for item in items:
                    flight.publish(item)
            finally:
                close = getattr(items, "aclose", None)
                if close is not None:
                    await close()
        except Exception as error:
            flight.error = error
        except BaseException:
            flight.error = FlightLostError(f"the generation shared under {key} was cancelled")
            raise
        finally:
            self._land(key, flight)
            flight.finish()

    def _land(self, key: str, flight: _Flight[T]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]


class Subscription(Generic[T]):
    """One request's seat in a flight: an async context manager that gives an async iterator over all items.

    The iterator raises what the producer raised, after the items that came before it, and `FlightLostError` where the
    producer was cancelled from outside.
    """

    def __init__(self, flights: SingleFlight[T], key: str, start: Callable[[], AsyncIterator[T]]) -> None:
        self._flights = flights
        self._key = key
        self._start = start
        self._flight: _Flight[T] | None = None
        self.leads = False
        """Whether this request began the flight. Known after entry."""
        self._position = 0

    @property
    def pending(self) -> bool:
        """Whether the next item is there already, so that nothing has to be waited for."""
        return self._flight is not None and self._position < len(self._flight.items)

    async def __aenter__(self) -> Subscription[T]:
        if self._flight is not None:
            raise RuntimeError("this subscription is already open; subscribe again for another seat")
        self._flight, self.leads = self._flights._join(self._key, self._start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        flight, self._flight = self._flight, None
        if flight is not None:
            await self._flights._leave(self._key, flight)

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        flight = self._flight
        if flight is None:
            raise RuntimeError("this subscription is not open; iterate inside its async with block")
        while self._position == len(flight.items):
            if flight.finished:
                if flight.error is not None:
                    raise flight.error.with_traceback(flight.error.__traceback__)
                raise StopAsyncIteration
            await flight.news()
        self._position += 1
        return flight.items[self._position - 1]


class _Flight(Generic[T]):
    """The items of one generation and who waits for more."""

    def __init__(self) -> None:
        self.items: list[T] = []
        self._waiters: set[asyncio.Future[None]] = set()
        self.finished = False
        self.error: Exception | None = None
        self.subscribers = 0
        self.task: asyncio.Task[None] | None = None

    def publish(self, item: T) -> None:
        self.items.append(item)
        self._wake()

    def finish(self) -> None:
        self.finished = True
        self._wake()

    async def news(self) -> None:
        """Wait for the next item or the end."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()
