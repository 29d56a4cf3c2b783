"""Where an answer can be generated: what is asked of such a place, and what it says."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Protocol

import msgspec

from headgate.engine.sampling.grammar import Grammar
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.text.pictures import Sight
from headgate.gateway.local.pictures import Shown
from headgate.gateway.local.prompts import Prompt
from headgate.gateway.road.request import ChatRequest, Choice, Chunk, Joiner, Sampling, Usage
from headgate.gateway.teams.keys import Principal
from headgate.routing.price import Load, Rates
from headgate.routing.types import Need, Vector


class Prepared(msgspec.Struct, frozen=True):
    """A request as one destination will run it."""

    request: ChatRequest
    prompt: tuple[int, ...]
    sampling: SamplingParams
    left: Callable[[Outcome], None] | None = None
    """Told the account of what was computed where the work is ended before its end."""
    grammar: Grammar | None = None
    """What form the answer must have."""
    estimated_tokens: int = 0
    """About how many tokens the prompt has where it is read elsewhere, and `prompt` is empty."""
    begun: Callable[[], None] | None = None
    """Told that the answer has begun where that is known before its first piece is."""
    begins_s: float = 0.0
    """Seconds within which the destination begins to answer or fails; 0: it may take what it takes."""
    shown: Shown | None = None
    """The pictures that tokens of the prompt stand for."""

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt, as far as they are known."""
        return len(self.prompt) or self.estimated_tokens

    @property
    def image_tokens(self) -> int:
        """Tokens of the prompt that stand for pictures."""
        return 0 if self.shown is None else sum(sight.tokens for sight in self.shown.sights)

    def sights(self, team: str) -> tuple[Sight, ...]:
        """The pictures as the model takes them, under digests of the team's own: how soon one is seen must not tell
        what other teams have shown.
        """
        if self.shown is None:
            return ()
        return tuple([replace(s, digest=sha256(team.encode() + b"\0" + s.digest).digest()) for s in self.shown.sights])


class Outcome(msgspec.Struct, frozen=True):
    """The account of a finished generation, all choices together. Times are seconds."""

    usage: Usage
    queue_s: float
    device_s: float


Pieces = AsyncGenerator[Chunk | Outcome, bool | None]
Read = dict[str, Prompt]
"""A request's prompt by the revision of tokenizer and template that made it, and whose eyes, where it has pictures."""


async def whole(pieces: Pieces) -> tuple[tuple[Choice, ...], Outcome]:
    """An answer that nobody reads while it is made, and its account."""
    joiner, outcome = Joiner(), None
    async with aclosing(pieces):
        async for piece in pieces:
            if isinstance(piece, Outcome):
                outcome = piece
            else:
                joiner.add(piece)
    assert outcome is not None, "an answer ends with its account"
    return joiner.choices(), outcome


class Live(msgspec.Struct, frozen=True):
    """How a destination stands."""

    load: Load
    rates: Rates
    device: str
    """Destinations of one device take turns on it."""
    ready: bool = True
    """Whether it answers requests, at once or later."""
    wake_s: float = 0.0
    """Seconds until it begins to, where it is asleep."""
    lane: str = ""
    """The destination whose queue and steps it shares, and whose load this is; empty: its own."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What clients are told of a model. Counts that nobody knows are None."""

    context_length: int
    """Tokens of prompt and answer together."""
    parameters: int | None = None
    active_parameters: int | None = None
    dtype: str | None = None
    hand_over: str = ""
    """How an answer of it begins that leaves the request to a larger model."""
    parent: str | None = None
    """The model that an adapter is of."""
    remote: bool = False
    """Whether it is another server: while that is down nobody waits to learn so again, and its device is paid for
    there."""


class Destination(Protocol):
    """Something that generates answers."""

    @property
    def id(self) -> str:
        """The name clients may ask for and replies carry."""
        ...

    @property
    def revision(self) -> str:
        """Changes whenever the same request could be answered differently."""
        ...

    @property
    def facts(self) -> Facts:
        """What is known of it."""
        ...

    @property
    def lacks(self) -> frozenset[Need]:
        """What it does not understand."""
        ...

    @property
    def down(self) -> bool:
        """Whether it is known not to answer."""
        ...

    def live(self) -> Live | None:
        """How it stands now, where that can be known."""
        ...

    @property
    def rates(self) -> Rates | None:
        """How fast it was lately, where that can be known."""
        ...

    def resident(self, prepared: Prepared, principal: Principal) -> int:
        """Tokens of the prompt that it would not have to compute now."""
        ...

    async def probe(self, prepared: Prepared, principal: Principal) -> Vector | None:
        """The model's state `[dim]` at the end of a prompt, which stays in its cache; None where it gives none."""
        ...

    def temperature(self, sampling: Sampling) -> float:
        """The temperature a request would run at here."""
        ...

    async def prepare(self, request: ChatRequest, read: Read | None = None) -> Prepared:
        """Everything that can be refused before work begins; ApiError 400 where it is.

        `read` holds, and takes, what those who read texts in the same way have made of this request.
        """
        ...

    def generate(self, prepared: Prepared, request_id: str, principal: Principal) -> Pieces:
        """The answer's chunks as they come, then its account. Closing the generator ends the work.

        Sending True asks it to end the work and to come to its account.
        """
        ...
