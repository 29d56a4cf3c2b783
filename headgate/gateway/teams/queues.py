"""Who waits for a model's first word: so many at most of each class, and nobody longer than his team wants to.

The engine orders who waits; here it is bounded. A request that would wait too long is told so at once, and when to come
again by how fast the model works now.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from headgate.engine.request import Priority
from headgate.gateway.destinations import Live
from headgate.gateway.wire.errors import ApiError, overloaded
from headgate.routing.price import price
from headgate.routing.types import Price

MOST_WAITING = 2048
_FIRST_ANSWER = 64.0
_NEW_WEIGHT = 0.05
_LEAST_S = 0.1


@dataclass(frozen=True, slots=True)
class Class:
    """A model's requests of one class: those that users wait for, before or after others, or those that nobody does."""

    model: str
    priority: Priority


class Place:
    """Of a request that waits, until its answer begins. Leaving it again does nothing."""

    def __init__(self, queues: Queues, of: Class, prompt_tokens: int, deadline_s: float | None) -> None:
        self.deadline_s = deadline_s
        """Seconds within which the answer has to begin; None: it may take what it takes."""
        self._queues = queues
        self._of = of
        self._prompt_tokens = prompt_tokens
        self._waits = True

    def leave(self) -> None:
        """It waits no more."""
        if self._waits:
            self._waits = False
            self._queues.left(self._of, self._prompt_tokens)

    def answered(self, tokens: int) -> None:
        """The answer is whole: how long queues are follows from how long answers are."""
        self._queues.answered(self._of.model, tokens)

    def late(self) -> ApiError:
        """503: its time is over."""
        return self._queues.late(self._of, self.deadline_s or 0.0)


class Queues:
    """The bounds. Calls come from one event loop."""

    def __init__(self, most: int = MOST_WAITING) -> None:
        """`most`: requests of a class that may wait for a model."""
        self._most = most
        self._waiting: Counter[Class] = Counter()
        self._tokens: Counter[Class] = Counter()
        self._answer: dict[str, float] = {}
        self._queue_s: dict[Class, float] = {}

    def waiting(self, model: str, priority: Priority) -> int:
        """Requests of a class whose answer has not begun."""
        return self._waiting[Class(model, priority)]

    def standing(self) -> list[tuple[str, Priority, int]]:
        """Model, class and number of those that wait, for each that ever was waited for."""
        return [(of.model, of.priority, count) for of, count in self._waiting.items()]

    def enter(
        self,
        model: str,
        priority: Priority,
        live: Live | None,
        prompt_tokens: int,
        max_queue_s: float | None,
        left_s: float | None = None,
    ) -> Place:
        """A place among those that wait; ApiError 503 where there is none, or it would take longer than wanted.

        Args:
            model: which they wait for.
            priority: the request's class.
            live: how the model stands.
            prompt_tokens: the request's.
            max_queue_s: longest wait that its team wants; work that nobody waits for may take what it takes.
            left_s: seconds until its client gives up; None: nobody knows.
        """
        of = Class(model, priority)
        waiting = self._waiting[of]
        cost = None
        if live is not None and (max_queue_s is not None or left_s is not None or waiting >= self._most):
            cost = self._price(of, live, prompt_tokens)
        queue_s = 0.0 if cost is None else cost.queue_s
        self._queue_s[of] = queue_s
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
        self._waiting[of] += 1
        self._tokens[of] += prompt_tokens
        return Place(self, of, prompt_tokens, deadline_s)

    def left(self, of: Class, prompt_tokens: int) -> None:
        """One waits no more."""
        self._waiting[of] -= 1
        self._tokens[of] -= prompt_tokens

    def late(self, of: Class, waited_s: float) -> ApiError:
        """503: an answer did not begin in time."""
        message = f"The answer of '{of.model}' did not begin within {waited_s:.1f} s; the server is busy."
        return overloaded(message, after_s=max(_LEAST_S, self._queue_s.get(of, 0.0)))

    def expected_s(self, priority: Priority) -> float:
        """Seconds that the last of a class had to expect, of any model: of the one with the longest queue."""
        return max((s for of, s in self._queue_s.items() if of.priority == priority), default=0.0)

    def answered(self, model: str, tokens: int) -> None:
        """An answer had so many tokens: how long queues are follows from it."""
        mean = self._answer.get(model, _FIRST_ANSWER)
        self._answer[model] = mean + _NEW_WEIGHT * (tokens - mean)

    def _price(self, of: Class, live: Live, prompt_tokens: int) -> Price:
        load = live.load
        if of.priority == "interactive":
            # Who else waits, waits behind it.
            waiting, pending = min(load.waiting, self._waiting[of]), min(load.pending_tokens, self._tokens[of])
            load = replace(load, waiting=waiting, pending_tokens=pending)
        return price(
            prompt_tokens=prompt_tokens,
            resident_tokens=0,
            output_tokens=self._answer.get(of.model, _FIRST_ANSWER),
            rates=live.rates,
            load=load,
        )
