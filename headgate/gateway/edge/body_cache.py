"""Bodies that were read a moment ago: what follows from one alone is worked out once.

Applications send the same request again and again. What its bytes say, how its team has it and under which key an
answer is stored follow from them, from who sends them and from the configuration. Whatever else decides over a request
(limits, budgets, what is stored now and how old it is) is asked for each one anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from headgate.gateway.caching.question import Bypass, Question
from headgate.gateway.road.request import CacheControl, ChatRequest
from headgate.gateway.teams.keys import Principal
from headgate.gateway.teams.overrides import scheduled
from headgate.gateway.wire.headers import cache_control, session

if TYPE_CHECKING:
    from multidict import MultiMapping

    from headgate.gateway.caching.answers import Stored

MOST_BYTES = 16 * 1024 * 1024
"""Of all kept bodies together. What was made of long ones takes a few times as much."""
LONGEST = 64 * 1024
"""Longer bodies are read anew: their like seldom comes twice."""
SHORT = 1024
"""Up to so many bytes as it is stored, what was made of an answer is kept beside what was made of the body."""
OVERHEAD = 8192
"""Charged for each body, beside its bytes."""

Parse = Callable[[bytes, CacheControl, str | None], ChatRequest]
_Key = tuple[bytes, str | None, str, str | None, CacheControl, Parse]


class Asked:
    """A request as its team has it, and what the cache is asked for it in an epoch of the keys and a generation of the
    models, once that is known.
    """

    __slots__ = ("epoch", "experiment", "question", "request", "stored")

    def __init__(self, request: ChatRequest, experiment: str) -> None:
        """`experiment`: the arm that it is of."""
        self.request = request
        self.experiment = experiment
        self.question: Question | Bypass | None = None
        self.epoch: tuple[str, int] = "", 0
        self.stored: Stored | None = None
        """The answer that it was given last, if that is a short one."""


class Reading:
    """A body as it was read for somebody."""

    __slots__ = ("asked", "principal", "request")

    def __init__(self, request: ChatRequest, principal: Principal) -> None:
        self.request = request
        self.principal = principal
        self.asked: Asked | None = None
        """What the road made of it."""


class Readings:
    """Keeps the latest. Belongs to one event loop."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._bytes = 0
        self._kept: OrderedDict[_Key, Reading] = OrderedDict()

    def __len__(self) -> int:
        """Bodies that are kept."""
        return len(self._kept)

    @property
    def remembered(self) -> tuple[int, float]:
        """See `Remembers`."""
        return len(self._kept), self._bytes / self._most

    def read(self, body: bytes, headers: MultiMapping[str], principal: Principal, parse: Parse) -> Reading:
        """What a body and the headers beside it ask; ApiError as `parse` raises it.

        Nothing is kept of what is refused, and a principal whom a reload has replaced is read for anew.
        """
        control, name = cache_control(headers), session(headers)
        key = (body, principal.key_id, principal.team, name, control, parse)
        found = self._kept.get(key)
        if found is not None and found.principal is principal:
            self._kept.move_to_end(key)
            return found
        reading = Reading(scheduled(parse(body, control, name), principal), principal)
        if len(body) <= LONGEST:
            if found is None:
                self._bytes += len(body) + OVERHEAD
            self._kept[key] = reading
            while self._bytes > self._most:
                dropped, _ = self._kept.popitem(last=False)
                self._bytes -= len(dropped[0]) + OVERHEAD
        return reading
