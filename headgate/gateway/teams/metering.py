"""A generation that is paid for: reserved before it begins, settled when it has ended, however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from functools import partial
from types import TracebackType

import msgspec

from headgate.gateway.road.destinations import Destination, Outcome, Prepared
from headgate.gateway.road.request import Chunk, Usage
from headgate.gateway.teams.admission import Charge, Ticket
from headgate.gateway.teams.keys import Principal
from headgate.gateway.teams.ledger_file import Cause
from headgate.gateway.teams.queues import Place
from headgate.gateway.wire.errors import ApiError

Piece = Chunk | Outcome
Cut = Callable[[str, Usage], None]
"""Is told of a generation that ended before its end: the model, and what was computed."""


async def metered(
    destination: Destination, prepared: Prepared, request_id: str, principal: Principal, ticket: Ticket, cut: Cut
) -> Metered:
    """Have a destination answer.

    `cut` is told where its answer is left before its end. What is whole tells its account by itself.

    ApiError 429 where what it may use is more than is left, 503 where too many wait for it.
    """
    prompt, asked = prepared.prompt_tokens, prepared.request.max_tokens
    room = ticket.room(destination.facts.context_length, prompt)
    most = room * prepared.request.n
    wanted_s = principal.policy.scheduling.max_queue_s
    priority, left_s = prepared.request.priority, ticket.left_s()
    place = ticket.queues.enter(destination.id, priority, destination.live, prompt, wanted_s, left_s)
    try:
        charge = await ticket.reserve(destination.id, prompt, most, _device_s(destination, prompt, most))
    except BaseException:
        place.leave()
        raise
    sampling = prepared.sampling
    if asked is None and room < destination.facts.context_length - prompt:
        sampling = replace(sampling, max_tokens=room)
    account = Account(charge, place, partial(cut, destination.id))
    prepared = msgspec.structs.replace(prepared, sampling=sampling, left=account.left, begun=account.begin)
    return Metered(destination.generate(prepared, request_id, principal), account)


def _device_s(destination: Destination, prompt_tokens: int, most_tokens: int) -> float:
    """What our device takes for the longest answer if it computes nothing else, as far as it is known."""
    rates = None if destination.facts.remote else destination.rates
    if rates is None:
        return 0.0
    return rates.prompt_s * prompt_tokens + rates.round_s(1) * (1 + most_tokens)


class Account:
    """What a generation used, as far as it is known."""

    def __init__(self, charge: Charge, place: Place, cut: Callable[[Usage], None]) -> None:
        """`cut` is told what was computed where it ends before its end."""
        self.place = place
        self._cut = cut
        self._charge = charge
        self._tokens = 0
        self.begun = False
        """Whether anything came."""
        self.limit: asyncio.Timeout | None = None
        """Within which it has to begin, while that is waited for."""
        self._cause: Cause = "cancelled"

    def begin(self) -> None:
        """It has begun, but nothing of it comes yet: it waits no more."""
        self.begun = True
        self.place.leave()
        if self.limit is not None:
            self.limit.reschedule(None)

    def reject(self) -> None:
        """It is not given to the client, and asked to come to its end."""
        self._cause = "rejected"

    async def see(self, piece: Piece) -> None:
        """The next piece came."""
        self.place.leave()
        if isinstance(piece, Outcome):
            cause: Cause = "rejected" if self._cause == "rejected" else "generated"
            self.place.answered(piece.usage.completion_tokens)
            await self._charge.settled(piece.usage, piece.device_s, cause)
        else:
            self.begun = True
            self._tokens += len(piece.token_ids)

    def left(self, outcome: Outcome) -> None:
        """The account of a generation that was ended before its end: it counts what was computed."""
        computed = outcome.device_s > 0 or outcome.usage.completion_tokens > 0
        if computed:
            self._settle(outcome.usage, outcome.device_s)
        else:
            self._charge.drop()

    def fail(self) -> None:
        """The destination failed."""
        self.place.leave()
        self._charge.drop()

    def close(self) -> None:
        """Nothing more will come: without an account, what was seen counts, and the prompt of what had begun."""
        self.place.leave()
        if self.begun:
            self._settle(Usage(self._charge.prompt_tokens, self._tokens, 0), 0.0)
        else:
            self._charge.drop()

    def _settle(self, usage: Usage, device_s: float) -> None:
        if self._charge.settle(usage, device_s, self._cause):
            self._cut(usage)


class Metered(AsyncGenerator[Piece, bool | None]):
    """The pieces of a generation. Closing it settles it, even if it was never begun."""

    def __init__(self, pieces: AsyncGenerator[Piece, bool | None], account: Account) -> None:
        self._pieces = pieces
        self._account = account

    async def __anext__(self) -> Piece:
        return await self._seen(self._pieces.__anext__())

    async def asend(self, value: bool | None) -> Piece:
        """As of the pieces."""
        if value:
            self._account.reject()
        return await self._seen(self._pieces.asend(value))

    async def athrow(
        self,
        kind: type[BaseException] | BaseException,
        value: BaseException | object = None,
        trace: TracebackType | None = None,
    ) -> Piece:
        """As of the pieces."""
        raised = kind if isinstance(kind, BaseException) else kind(*(() if value is None else (value,)))
        return await self._seen(self._pieces.athrow(raised.with_traceback(trace)))

    async def aclose(self) -> None:
        """End the work and settle it."""
        try:
            await self._pieces.aclose()
        finally:
            self._account.close()

    async def _seen(self, coming: Awaitable[Piece]) -> Piece:
        try:
            deadline_s = None if self._account.begun else self._account.place.deadline_s
            if deadline_s is None:
                piece = await coming
            else:
                try:
                    async with asyncio.timeout(deadline_s) as self._account.limit:
                        piece = await coming
                except TimeoutError:
                    raise self._account.place.late() from None
        except ApiError:
            self._account.fail()
            raise
        except BaseException:
            # Whatever it raised, it has ended.
            self._account.close()
            raise
        await self._account.see(piece)
        return piece
