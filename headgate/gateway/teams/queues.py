"""Who waits for a model's first word: so many at most of each class, and nobody longer than his team wants to.

The engine orders who waits; here it is bounded. A request that would wait too long is told so at once, and when to come
again by how fast the model works now.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from headgate.engine.request import Priority
from headgate.gateway.road.destinations import Live
from headgate.gateway.wire.errors import ApiError, overloaded
from headgate.routing.price import price
from headgate.routing.types import Price

MOST_WAITING = 2048
_FIRST_ANSWER = 64.0
_NEW_WEIGHT = 0.05
_LEAST_S = 0.1


class _Queue:
    """A model's requests of one class: those that users wait for, before or after others, or those that nobody does."""

    __slots__ = ("expected_s", "model", "priority", "tokens", "waiting")

    def __init__(self, model: str, priority: Priority) -> None:
        self.model = model
        self.priority = priority
        self.waiting = 0
        self.tokens = 0
        """Of the prompts of those that wait."""
        self.expected_s = 0.0
        """What the last one had to expect."""


class Place:
    """Of a request that waits, until its answer begins. Leaving it again does nothing."""

    def __init__(self, queues: Queues, queue: _Queue, prompt_tokens: int, deadline_s: float | None) -> None:
        self.deadline_s = deadline_s
        """Seconds within which the answer has to begin; None: it may take what it takes."""
        self._queues = queues
        self._queue = queue
        self._prompt_tokens = prompt_tokens
        self._waits = True

    def leave(self) -> None:
        """It waits no more."""
        if self._waits:
            self._waits = False
            self._queue.waiting -= 1
            self._queue.tokens -= self._prompt_tokens

    def answered(self, tokens: int) -> None:
        """The answer is whole: how long queues are follows from how long answers are."""
        self._queues.answered(self._queue.model, tokens)

    def late(self) -> ApiError:
        """503: its time is over."""
        waited_s = self.deadline_s or 0.0
        message = f"The answer of '{self._queue.model}' did not begin within {waited_s:.1f} s; the server is busy."
        return overloaded(message, after_s=max(_LEAST_S, self._queue.expected_s))


class Queues:
    """The bounds. Calls come from one event loop."""

    def __init__(self, most: int = MOST_WAITING) -> None:
        """`most`: requests of a class that may wait for a model."""
        self._most = most
        self._queues: dict[tuple[str, Priority], _Queue] = {}
        self._answer: dict[str, float] = {}

    def standing(self) -> list[tuple[str, Priority, int]]:
        """Model, class and number of those that wait, for each that ever was waited for."""
        return [(queue.model, queue.priority, queue.waiting) for queue in self._queues.values()]

    def enter(
        self,
        model: str,
        priority: Priority,
        live: Callable[[], Live | None],
        prompt_tokens: int,
        max_queue_s: float | None,
        left_s: float | None = None,
    ) -> Place:
        """A place among those that wait; ApiError 503 where there is none, or it would take longer than wanted.

        Args:
            model: which they wait for.
            priority: the request's class.
            live: tells how the model stands; asked where the wait matters.
            prompt_tokens: the request's.
            max_queue_s: longest wait that its team wants; work that nobody waits for may take what it takes.
            left_s: seconds until its client gives up; None: nobody knows.
        """
        queue = self._queues.get((model, priority))
        if queue is None:
            queue = self._queues[model, priority] = _Queue(model, priority)
        waiting = queue.waiting
        cost = None
        if max_queue_s is not None or left_s is not None or waiting >= self._most:
            cost = self._price(queue, live(), prompt_tokens)
        queue_s = queue.expected_s = 0.0 if cost is None else cost.queue_s
        if waiting >= self._most:
            message = f"{waiting} requests are waiting for '{model}' already, the most that may."
            raise overloaded(message, after_s=max(_LEAST_S, queue_s / waiting))
        if left_s is not None and queue_s > left_s:
            message = (
                f"The queue for '{model}' takes about {queue_s:.1f} s, and this request's client waits for another "
                f"{max(left_s, 0.0):.1f} s."
            )
            raise overloaded(message, after_s=max(_LEAST_S, queue_s - left_s))
        deadline_s = None
        if max_queue_s is not None and priority != "background":
            if queue_s > max_queue_s:
                message = (
                    f"The queue for '{model}' takes about {queue_s:.1f} s, and this team's requests wait at most "
                    f"{max_queue_s:g} s."
                )
                raise overloaded(message, after_s=max(_LEAST_S, queue_s - max_queue_s))
            deadline_s = max_queue_s + (0.0 if cost is None else cost.prefill_s)
        queue.waiting += 1
        queue.tokens += prompt_tokens
        return Place(self, queue, prompt_tokens, deadline_s)

    def expected_s(self, priority: Priority) -> float:
        """Seconds that the last of a class had to expect, of any model: of the one with the longest queue."""
        return max((queue.expected_s for queue in self._queues.values() if queue.priority == priority), default=0.0)

    def answered(self, model: str, tokens: int) -> None:
        """An answer had so many tokens: how long queues are follows from it."""
        mean = self._answer.get(model, _FIRST_ANSWER)
        self._answer[model] = mean + _NEW_WEIGHT * (tokens - mean)

    def _price(self, queue: _Queue, live: Live | None, prompt_tokens: int) -> Price | None:
        if live is None:
            return None
        load = live.load
        if queue.priority == "interactive":
            # Who else waits, waits behind it.
            waiting, pending = min(load.waiting, queue.waiting), min(load.pending_tokens, queue.tokens)
            load = replace(load, waiting=waiting, pending_tokens=pending)
        return price(
            prompt_tokens=prompt_tokens,
            resident_tokens=0,
            output_tokens=self._answer.get(queue.model, _FIRST_ANSWER),
            rates=live.rates,
            load=load,
        )
