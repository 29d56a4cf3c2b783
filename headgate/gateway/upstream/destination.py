"""Another OpenAI-compatible server's model as a destination."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b

import msgspec
from yarl import URL

from headgate.engine.sampling.params import SamplingParams
from headgate.gateway.road.destinations import Facts, Live, Outcome, Pieces, Prepared, Read
from headgate.gateway.road.inputs import lacking, refuse_inputs
from headgate.gateway.road.request import ChatRequest, Chunk, Sampling, Usage
from headgate.gateway.teams.keys import Principal
from headgate.gateway.upstream.answer import AnswerReader, joined
from headgate.gateway.upstream.attempt_notes import note_attempt, note_failure, stopping
from headgate.gateway.upstream.body import attached_to, body_of, path_of, size_of
from headgate.gateway.upstream.connections import Connections
from headgate.gateway.upstream.exchange import Exchange
from headgate.gateway.upstream.failures import Failure, hiding
from headgate.gateway.upstream.health import Standing
from headgate.gateway.upstream.hedging import race
from headgate.gateway.upstream.pace import Pace
from headgate.gateway.upstream.post import Asking, head_of
from headgate.gateway.upstream.retrying import HedgeShare, Retrying, hedge_s
from headgate.gateway.upstream.sections import UpstreamSection
from headgate.gateway.wire.errors import context_exceeded, refuse_unknown, unsupported
from headgate.routing.price import Rates
from headgate.routing.types import Need, Vector

_USUAL_TEMPERATURE = 1.0
"""OpenAI's default, which the servers that follow its API share."""


class UpstreamDestination:
    """Asks another server. What it is asked twice, or hedged, is answered once."""

    def __init__(
        self,
        section: UpstreamSection,
        connections: Connections | None = None,
        *,
        api_key: str | None = None,
        headers: dict[str, str] | None = None,
        standing: Standing | None = None,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """Ask the server of a section.

        Args:
            section: as it is configured.
            connections: to ask by; None: it is only told what it would be asked.
            api_key: sent as the bearer token.
            headers: further ones, their references resolved.
            standing: told how attempts end, and asked whether the server is well.
            clock: monotonic seconds.
            draw: numbers from 0 to below 1, for the jitter of retries.
        """
        self._section = section
        self._connections = connections
        self._clock = clock
        self._draw = draw
        self._hide = hiding((*([api_key] if api_key else []), *(headers or {}).values()))
        sent = {**(headers or {}), "Content-Type": "application/json", "Accept-Encoding": "identity"}
        if api_key is not None:
            sent["Authorization"] = f"Bearer {api_key}"
        self._url = URL(section.base_url)
        self._heads = {
            path: head_of("POST", URL(section.base_url + path), sent) for path in ("/chat/completions", "/completions")
        }
        self._lacks: frozenset[Need] = section.lacks | lacking(section.inputs, urls=section.input_urls)
        self._facts = Facts(section.context_length, remote=True)
        own = section.model_dump_json(include={"base_url", "model", "max_tokens_field", "pass_through_unknown"})
        self._revision = blake2b(own.encode(), digest_size=16).hexdigest()
        self._pace = Pace(clock)
        self._device = f"upstream {section.id}"
        self._hedges = HedgeShare(section.hedge.most_share)
        self.standing = Standing() if standing is None else standing
        self._runs: set[_Run] = set()
        self._stopped = False

    @property
    def id(self) -> str:
        """The configured id."""
        return self._section.id

    @property
    def revision(self) -> str:
        """Of what is configured: what the server changes behind the same name cannot be seen."""
        return self._revision

    @property
    def facts(self) -> Facts:
        """As configured."""
        return self._facts

    @property
    def lacks(self) -> frozenset[Need]:
        """As configured, and what it does not take beside text."""
        return self._lacks

    @property
    def down(self) -> bool:
        """As checks of its health say."""
        return not self.standing.well

    def live(self) -> Live:
        """By the requests that it answers for us and how fast it did lately."""
        pace = self._pace
        return Live(pace.load, pace.rates, self._device)

    @property
    def rates(self) -> Rates:
        """By how fast it answered lately."""
        return self._pace.rates

    def resident(self, _prepared: Prepared, _principal: Principal) -> int:
        """None that we know of."""
        return 0

    async def probe(self, _prepared: Prepared, _principal: Principal) -> Vector | None:
        """None: its states stay there."""
        return None

    def temperature(self, sampling: Sampling) -> float:
        """The request's own, else what such servers take."""
        return _USUAL_TEMPERATURE if sampling.temperature is None else sampling.temperature

    async def prepare(self, request: ChatRequest, _read: Read | None = None) -> Prepared:
        """What is known to be refused; the rest is for the server to say."""
        if request.callable_tools and "tools" in self._lacks:
            raise unsupported("tools", f"The model '{self.id}' cannot call functions. Leave 'tools' out.")
        if request.response_format.schema is not None and "json" in self._lacks:
            raise unsupported("response_format", f"The model '{self.id}' only answers with text.")
        refuse_inputs(request, self.id, self._lacks)
        if request.thinking_tokens is not None:
            name = "thinking_tokens"
            message = f"'{name}' is not supported: of the model '{self.id}', only 'max_tokens' bounds the thinking."
            raise unsupported(name, message)
        if not self._section.pass_through_unknown:
            refuse_unknown(request)
            request = replace(request, unknown=()) if request.unknown else request
        tokens, context = self._pace.tokens(size_of(request), attached_to(request)), self._section.context_length
        if request.max_tokens is not None and request.max_tokens >= context:
            raise context_exceeded(context, tokens, request.max_tokens)
        sampling = _bounds(request.max_tokens, request.logprobs)
        retries, timeouts = self._section.retries, self._section.timeouts
        begins_s = min(timeouts.total_s, retries.within_s + timeouts.first_token_s)
        return Prepared(
            request, (), sampling, estimated_tokens=tokens, begins_s=begins_s if request.stream else timeouts.total_s
        )

    async def generate(self, prepared: Prepared, request_id: str, _principal: Principal) -> Pieces:
        """Ask, and pass on what comes. ApiError 502, 503 or 504 where it fails, 400 where it refuses the request.

        Until something was passed on a failed attempt is followed by another. A request that is not streamed is passed
        on when it is whole.
        """
        if self._stopped:
            raise stopping()
        run = _Run(prepared)
        self._runs.add(run)
        self._pace.in_flight += 1
        try:
            try:
                async with asyncio.timeout(None) as run.beginning:
                    whole = await self._begun(run, request_id)
            except TimeoutError:
                raise stopping() from None
            finally:
                run.beginning = None
            exchange = run.exchange
            assert exchange is not None, "the attempt that began is kept"
            chunks = exchange.first if whole is None else whole
            try:
                while chunks:
                    for chunk in chunks:
                        if (yield chunk):
                            # Who stops it wants its account: there will be none from the server.
                            run.ended = True
                            yield run.outcome()
                            return
                    chunks = [] if whole is not None else await exchange.more()
            except Failure as failure:
                if self._stopped:
                    raise stopping() from None
                self._failed(request_id, run, failure)
                # What fails costs nothing, whatever was said of it.
                run.ended = True
                raise failure.told(self.id) from None
            self._learn(run)
            run.ended = True
            yield run.outcome()
        finally:
            self._pace.in_flight -= 1
            self._runs.discard(run)
            run.close()

    def stop(self) -> None:
        """End what is being answered, and answer nothing more: ApiError 503 for whoever waits for it."""
        self._stopped = True
        for run in self._runs:
            run.stop()

    async def _begun(self, run: _Run, request_id: str) -> list[Chunk] | None:
        """Have an attempt that has begun; all chunks of a request that is not streamed. ApiError where none comes."""
        section = self._section
        retrying = Retrying(section.retries, self._clock, self._draw, total_s=section.timeouts.total_s)
        asking = self._asking(run.prepared, request_id)
        while True:
            run.began = self._clock()
            try:
                await self._attempt(run, asking, fresh=retrying.retries > 0)
                return None if run.prepared.request.stream else await run.whole()
            except Failure as failure:
                run.drop()
                self._failed(request_id, run, failure)
                wait_s = retrying.wait_s(failure)
                if wait_s is None:
                    raise failure.told(self.id) from None
                self.standing.retried()
            await asyncio.sleep(wait_s)

    async def _attempt(self, run: _Run, asking: Asking, *, fresh: bool) -> None:
        """Ask once, or twice where the answer is slow to begin."""
        after_s = hedge_s(self._section.hedge, self._pace.quantile)
        run.exchange = self._exchange(run.prepared, asking, fresh=fresh)
        self._hedges.asked()
        if after_s is None:
            await run.exchange.begin()
        else:
            first = run.exchange
            run.exchange = None

            def second() -> Exchange | None:
                return self._exchange(run.prepared, asking, fresh=True) if self._hedges.take() else None

            run.exchange, lost = await race(first, second, after_s)
            if lost is not None:
                self.standing.hedged(won=run.exchange is not first)
                run.lost(lost)
        self._pace.began(run.exchange.first_s)
        if run.prepared.begun is not None:
            run.prepared.begun()

    def _asking(self, prepared: Prepared, request_id: str) -> Asking:
        body = body_of(
            prepared.request,
            self._section,
            max_tokens=prepared.sampling.max_tokens,
            logprobs=prepared.sampling.logprobs,
        )
        head = b"%bx-request-id: %b\r\n" % (self._heads[path_of(prepared.request)], request_id.encode())
        deadline = time.monotonic() + self._section.timeouts.total_s
        return Asking(head, body, self._section.timeouts, deadline)

    def _exchange(self, prepared: Prepared, asking: Asking, *, fresh: bool) -> Exchange:
        assert self._connections is not None, "who has none asks nothing"
        wanted = prepared.sampling.logprobs is not None
        reader = AnswerReader(prepared.request.n, logprobs=wanted, hide=self._hide)
        asking, span = note_attempt(asking, self._section, self._url)
        return Exchange(self._connections, asking, reader, fresh=fresh, span=span)

    def _failed(self, request_id: str, run: _Run, failure: Failure) -> None:
        note_failure(self.standing, self.id, request_id, failure, run.began, self._clock())

    def _learn(self, run: _Run) -> None:
        exchange = run.exchange
        self.standing.answered()
        if exchange is None or exchange.reader.usage is None:
            return
        usage = exchange.reader.usage
        request = run.prepared.request
        self._pace.counted(size_of(request), usage.prompt_tokens, attached_to(request))
        total_s = time.monotonic() - exchange.sent_at
        self._pace.answered(usage.prompt_tokens, usage.completion_tokens, exchange.first_s, total_s)


@lru_cache(maxsize=1024)
def _bounds(max_tokens: int | None, logprobs: int | None) -> SamplingParams:
    """What the gateway itself decides over of the sampling; the rest is sent as it came."""
    return SamplingParams(max_tokens=max_tokens, logprobs=logprobs)


class _Run:
    """One request at an upstream, over all attempts at it."""

    def __init__(self, prepared: Prepared) -> None:
        self.prepared = prepared
        self.exchange: Exchange | None = None
        self.ended = False
        """Whether its account is told."""
        self.began = 0.0
        """When the attempt that is made was begun, by the destination's clock."""
        self.beginning: asyncio.Timeout | None = None
        """Of the wait for the first that is passed on. It has no bound, unless the run is stopped."""
        self._asked_at = time.monotonic()
        self._lost_tokens = 0

    async def whole(self) -> list[Chunk]:
        """All of the answer that has begun: a piece for each choice, unless somebody weighs its pieces."""
        assert self.exchange is not None, "it has begun"
        chunks = list(self.exchange.first)
        while more := await self.exchange.more():
            chunks += more
        return chunks if self.prepared.sampling.logprobs is not None else joined(chunks)

    def lost(self, exchange: Exchange) -> None:
        """A second attempt came too late: what it is known to have said counts."""
        usage = exchange.reader.usage
        self._lost_tokens += exchange.reader.pieces if usage is None else usage.completion_tokens

    def drop(self) -> None:
        """The attempt has failed."""
        if self.exchange is not None:
            self.exchange.close()
            self.exchange = None

    def outcome(self) -> Outcome:
        """The account, as the server gives it, else as near as can be told."""
        exchange = self.exchange
        usage = None if exchange is None else exchange.reader.usage
        if usage is None:
            pieces = 0 if exchange is None else exchange.reader.pieces
            usage = Usage(self.prepared.estimated_tokens, pieces, 0)
        if self._lost_tokens:
            tokens = usage.completion_tokens + self._lost_tokens
            usage = msgspec.structs.replace(usage, completion_tokens=tokens, rejected_tokens=self._lost_tokens)
        waited_s = 0.0 if exchange is None else max(0.0, exchange.sent_at - self._asked_at)
        return Outcome(usage, waited_s, 0.0)

    def stop(self) -> None:
        """End it for who waits for it."""
        if self.beginning is not None:
            self.beginning.reschedule(asyncio.get_running_loop().time())
        elif self.exchange is not None:
            self.exchange.stop()

    def close(self) -> None:
        """Nothing more is wanted of it; where it did not come to its end, what was seen is accounted for."""
        begun = self.exchange is not None and self.exchange.reader.pieces > 0
        if not self.ended and begun and self.prepared.left is not None:
            self.prepared.left(self.outcome())
        self.drop()
