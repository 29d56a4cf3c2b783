"""A generation that is paid for: reserved before it begins, settled when it has ended, however it ends."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable
from dataclasses import replace
from types import TracebackType

from headgate.gateway.destinations import Destination, Outcome, Prepared
from headgate.gateway.request import Chunk, Usage
from headgate.gateway.teams.admission import Charge, Ticket
from headgate.gateway.teams.keys import Principal

Piece = Chunk | Outcome


async def metered(
    destination: Destination, prepared: Prepared, request_id: str, principal: Principal, ticket: Ticket
) -> Metered:
    """Have a destination answer; ApiError 429 where what it may use is more than is left."""
    prompt, asked = len(prepared.prompt), prepared.request.max_tokens
    room = ticket.room(destination.facts.context_length, prompt)
    charge = await ticket.reserve(destination.id, prompt, room * prepared.request.n)
    if asked is None and room < destination.facts.context_length - prompt:
        prepared = replace(prepared, sampling=replace(prepared.sampling, max_tokens=room))
    account = Account(charge)
    prepared = replace(prepared, left=account.left)
    return Metered(destination.generate(prepared, request_id, principal), account)


class Account:
    """What a generation used, as far as it is known."""

    def __init__(self, charge: Charge) -> None:
        self._charge = charge
        self._tokens = 0
        self._begun = False

    def see(self, piece: Piece) -> None:
        """The next piece came."""
        if isinstance(piece, Outcome):
            self._charge.settle(piece.usage)
        else:
            self._begun = True
            self._tokens += len(piece.token_ids)

    def left(self, outcome: Outcome) -> None:
        """The account of a generation that was ended before its end: it counts what was computed."""
        computed = outcome.device_s > 0 or outcome.usage.completion_tokens > 0
        self._charge.settle(outcome.usage if computed else Usage(0, 0, 0))

    def close(self) -> None:
        """Nothing more will come: without an account, what was seen counts, and the prompt of what had begun."""
        self._charge.settle(Usage(self._charge.prompt_tokens if self._begun else 0, self._tokens, 0))


class Metered(AsyncGenerator[Piece, bool | None]):
    """The pieces of a generation. Closing it settles it, even if it was never begun."""

    def __init__(self, pieces: AsyncGenerator[Piece, bool | None], account: Account) -> None:
        self._pieces = pieces
        self._account = account

    async def __anext__(self) -> Piece:
        return await self._seen(self._pieces.__anext__())

    async def asend(self, value: bool | None) -> Piece:
        """As of the pieces."""
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
            piece = await coming
        except BaseException:
            # Whatever it raised, it has ended.
            self._account.close()
            raise
        self._account.see(piece)
        return piece
