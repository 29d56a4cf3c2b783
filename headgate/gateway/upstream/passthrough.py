"""What another server is asked beside chats: the request passed on, and its answer as it comes.

Nothing of either is understood but the account. Until something of an answer was passed on a failed attempt is followed
by another, as with chats; there is no second attempt beside a slow one.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence

from yarl import URL

from headgate.gateway.upstream.attempt_notes import note_attempt, note_failure, stopping
from headgate.gateway.upstream.connections import Connections
from headgate.gateway.upstream.endpoints import ENDPOINTS, Endpoint
from headgate.gateway.upstream.failures import Failure, hiding
from headgate.gateway.upstream.health import Standing
from headgate.gateway.upstream.pace import Pace
from headgate.gateway.upstream.passthrough_reply import Reply
from headgate.gateway.upstream.post import Asking, head_of, lines_of
from headgate.gateway.upstream.retrying import Retrying
from headgate.gateway.upstream.sections import UpstreamSection

_COPIED_BYTES = 64 * 1024
"""Up to here a body goes out in one write with its head."""


class Passed:
    """One request, over all attempts at it."""

    def __init__(self, passer: Passer, endpoint: Endpoint, asking: Asking, request_id: str, *, streams: bool) -> None:
        """Not asked yet: see `Passer.ask`."""
        self._passer = passer
        self._endpoint = endpoint
        self._asking = asking
        self._request_id = request_id
        self._streams = streams
        self._reply: Reply | None = None
        self._beginning: asyncio.Timeout | None = None
        self._began = 0.0

    @property
    def model(self) -> str:
        """The upstream's configured id."""
        return self._passer.id

    @property
    def reply(self) -> Reply:
        """The attempt that has begun."""
        assert self._reply is not None, "it has begun"
        return self._reply

    @property
    def left_s(self) -> float:
        """Seconds until all of it has to be passed on."""
        return self._asking.deadline - time.monotonic()

    async def begin(self) -> None:
        """Have an attempt that has begun. ApiError 502, 503 or 504 where none does, 400 where it is refused."""
        try:
            async with asyncio.timeout(None) as self._beginning:
                await self._begin()
        except TimeoutError:
            raise stopping() from None
        finally:
            self._beginning = None
        if self.reply.whole is not None:
            self._passer.standing.answered()

    async def more(self) -> bytes:
        """The next bytes; none at the end. ApiError where the answer fails."""
        try:
            data = await self.reply.more()
        except Failure as failure:
            if self._passer.stopped:
                raise stopping() from None
            self._failed(failure)
            raise failure.told(self._passer.id) from None
        if not data:
            self._passer.standing.answered()
        return data

    def stop(self) -> None:
        """End it for who waits for it."""
        if self._beginning is not None:
            self._beginning.reschedule(asyncio.get_running_loop().time())
        elif self._reply is not None:
            self._reply.stop()

    def close(self) -> None:
        """Nothing more is wanted of it."""
        self._passer.left(self)
        self._drop()

    async def _begin(self) -> None:
        passer, section = self._passer, self._passer.section
        retrying = Retrying(section.retries, passer.clock, passer.draw, total_s=section.timeouts.total_s)
        # By a kept connection that is lost nobody knows whether it was heard: it would be sent again.
        once = section.retries.most == 0
        while True:
            self._began = passer.clock()
            reply = self._reply = passer.attempt(self._asking, fresh=once or retrying.retries > 0)
            try:
                await reply.begin(self._endpoint, streams=self._streams)
                return
            except Failure as failure:
                self._drop()
                self._failed(failure)
                wait_s = retrying.wait_s(failure)
                if wait_s is None:
                    raise failure.told(passer.id) from None
                passer.standing.retried()
            await asyncio.sleep(wait_s)

    def _drop(self) -> None:
        if self._reply is not None:
            self._reply.end(whole=self._reply.ended)
            self._reply = None

    def _failed(self, failure: Failure) -> None:
        passer = self._passer
        note_failure(passer.standing, passer.id, self._request_id, failure, self._began, passer.clock())


class Passer:
    """Passes requests on to one upstream."""

    def __init__(
        self,
        section: UpstreamSection,
        connections: Connections,
        *,
        api_key: str | None,
        headers: dict[str, str],
        standing: Standing,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """Ask the server of a section.

        Args:
            section: as it is configured.
            connections: to ask by.
            api_key: sent as the bearer token.
            headers: further ones, their references resolved.
            standing: told how attempts end, and asked whether the server is well.
            clock: monotonic seconds.
            draw: numbers from 0 to below 1, for the jitter of retries.
        """
        self.section = section
        self.standing = standing
        self.clock = clock
        self.draw = draw
        self.pace = Pace(clock)
        """How many tokens texts have there."""
        self.stopped = False
        self._connections = connections
        self._hide = hiding((*([api_key] if api_key else []), *headers.values()))
        sent = {**headers, "Accept-Encoding": "identity"}
        if api_key is not None:
            sent["Authorization"] = f"Bearer {api_key}"
        self._url = URL(section.base_url)
        self._heads = {
            endpoint: head_of("POST", URL(section.base_url + endpoint.path), sent)
            for endpoint in ENDPOINTS
            if endpoint.serves in section.serves
        }
        self._runs: set[Passed] = set()

    @property
    def id(self) -> str:
        """The configured id."""
        return self.section.id

    def serves(self, endpoint: Endpoint) -> bool:
        """Whether it is asked for this."""
        return endpoint in self._heads

    def ask(
        self, endpoint: Endpoint, kind: str, body: Sequence[bytes | memoryview], request_id: str, *, streams: bool
    ) -> Passed:
        """A request that is sent when it is begun. ApiError 503 while the server shuts down.

        Args:
            endpoint: one that it serves.
            kind: the content type of the body.
            body: its pieces.
            request_id: ours.
            streams: whether the answer is to come as it is made.
        """
        if self.stopped:
            raise stopping()
        own = lines_of({"Content-Type": kind, "x-request-id": request_id})
        small = sum(map(len, body)) <= _COPIED_BYTES
        asking = Asking(
            self._heads[endpoint] + own,
            b"".join(body) if small else b"",
            self.section.timeouts,
            time.monotonic() + self.section.timeouts.total_s,
            () if small else tuple(body),
        )
        run = Passed(self, endpoint, asking, request_id, streams=streams)
        self._runs.add(run)
        return run

    def attempt(self, asking: Asking, *, fresh: bool) -> Reply:
        """One attempt, not begun yet; `fresh`: by a new connection."""
        asking, span = note_attempt(asking, self.section, self._url)
        return Reply(self._connections, asking, self._hide, fresh=fresh, span=span)

    def left(self, run: Passed) -> None:
        """Nobody waits for it any more."""
        self._runs.discard(run)

    def stop(self) -> None:
        """End what is being answered, and answer nothing more: ApiError 503 for whoever waits for it."""
        self.stopped = True
        for run in self._runs:
            run.stop()
