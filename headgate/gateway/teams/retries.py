"""Requests that clients send again because a reply was lost: nobody is billed twice for them.

Where the answer was made to its end, it is given again. Such a request is known by its `idempotency-key`, or, where the
official clients say that they try again (`x-stainless-retry-count`), by its key and body. Answers are kept for a while
and up to a size; a request that comes while its answer is being made waits for that.

Where the client was gone before the end, the answer is made anew and goes on the tab that was left. By the same key and
body it is known without a word of its client: nobody has had that answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from headgate.gateway.wire.errors import ApiError

if TYPE_CHECKING:
    from multidict import MultiMapping

    from headgate.gateway.road.destinations import Outcome
    from headgate.gateway.road.events import Opened
    from headgate.gateway.road.request import Chunk

IDEMPOTENCY_KEY = "idempotency-key"
RETRY_COUNT = "x-stainless-retry-count"
WINDOW_S = 120.0
MOST_BYTES = 16 * 1024 * 1024
"""Of all kept answers together, about; larger ones are not kept."""
_ANSWER, _CHUNK, _TOKEN, _LOGPROB = 2048, 192, 40, 320
"""Bytes of an answer, beside those of its chunks, of its tokens, and of what is said of each token and those beside."""


class Retry(msgspec.Struct, frozen=True):
    """By what a request would be known again, and whether this one may be one."""

    name: bytes
    body: bytes
    again: bool


@dataclass(frozen=True, slots=True)
class Whole:
    """An answer that was made to its end."""

    opened: Opened
    chunks: tuple[Chunk, ...]
    outcome: Outcome
    at: float

    @property
    def size(self) -> int:
        """Bytes that it takes, about."""
        size = _ANSWER + _CHUNK * len(self.chunks) + _TOKEN * self.outcome.usage.completion_tokens
        if self.chunks and self.chunks[0].logprobs:
            told = sum(1 + len(item.top) for chunk in self.chunks for item in chunk.logprobs)
            return size + _LOGPROB * told
        return size


class _Making(msgspec.Struct):
    """An answer on its way. Few are waited for, so that what to wait on is made for those only."""

    body: bytes
    made: asyncio.Event | None = None


Key = tuple[str, str | None, bytes, str]
"""Team, key, name, and which part of the request, the same in every gateway."""


def part_of(prompt: str | tuple[int, ...] | None, place: int) -> str:
    """Which part of its request a prompt is: a body may hold several. By its place, as two may be equal."""
    return "" if prompt is None else f"prompt {place}"


def retry_of(headers: MultiMapping[str], body: bytes) -> Retry:
    """What the headers and the body say."""
    digest = blake2b(body, digest_size=16).digest()
    given = headers.get(IDEMPOTENCY_KEY)
    if given is not None:
        return Retry(blake2b(b"key " + given.encode("utf-8", "replace"), digest_size=16).digest(), digest, True)
    return Retry(digest, digest, headers.get(RETRY_COUNT, "0") not in ("0", ""))


class Retries:
    """Answers of a moment ago. Calls come from one event loop."""

    def __init__(
        self,
        window_s: float = WINDOW_S,
        most_bytes: int = MOST_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep answers for `window_s` seconds of `clock`, a monotonic one, and up to so many bytes together."""
        self._window_s = window_s
        self._most_bytes = most_bytes
        self._clock = clock
        self._bytes = 0
        self._kept: dict[Key, tuple[bytes, Whole]] = {}
        self._making: dict[Key, _Making] = {}

    def __len__(self) -> int:
        """Answers that are kept."""
        return len(self._kept)

    @property
    def remembered(self) -> tuple[int, float]:
        """See `Remembers`."""
        return len(self._kept), self._bytes / self._most_bytes

    async def find(self, key: Key, retry: Retry) -> Whole | None:
        """The answer to the same request of before, if there is one; one that is being made is waited for.

        ApiError 422 where the idempotency key was given with another body.
        """
        self._forget()
        making = self._making.get(key)
        if making is not None:
            check_body(retry, making.body)
            if making.made is None:
                making.made = asyncio.Event()
            await making.made.wait()
        kept = self._kept.get(key)
        if kept is None:
            return None
        check_body(retry, kept[0])
        return kept[1]

    def begin(self, key: Key, retry: Retry) -> bool:
        """An answer is being made; False where another to the same request is."""
        if key in self._making:
            return False
        self._making[key] = _Making(retry.body)
        return True

    def end(self, key: Key, whole: Whole | None) -> None:
        """It is there, or will not be: whoever waits for it goes on."""
        making = self._making.pop(key)
        if making.made is not None:
            making.made.set()
        if whole is None:
            return
        self._drop(key)
        self._kept[key] = (making.body, whole)
        self._bytes += whole.size
        self._forget()

    def _forget(self) -> None:
        since = self._clock() - self._window_s
        while self._kept:
            key, (_, whole) = next(iter(self._kept.items()))
            if whole.at > since and self._bytes <= self._most_bytes:
                return
            self._drop(key)

    def _drop(self, key: Key) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._bytes -= kept[1].size


def check_body(retry: Retry, body: bytes) -> None:
    """ApiError 422 where another body was sent under the same idempotency key."""
    if retry.body != body:
        raise reused()


def reused() -> ApiError:
    """422."""
    message = f"The '{IDEMPOTENCY_KEY}' was given before with another body; expected the same, or another key."
    return ApiError(422, message, param=IDEMPOTENCY_KEY, code="idempotency_key_reused")
