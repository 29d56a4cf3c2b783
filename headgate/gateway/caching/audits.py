"""Audits of hits served by meaning: the model that would have answered answers too, in steps that nobody waits for.

A hit is drawn when it is served. What was drawn waits in a bounded queue; where that is full the audit is dropped and
counted, and the bounds allow for it. An audit is one pass over question and cached answer, which tells how likely the
answer is and whether the model would write exactly it, and, where it would not, a generation to compare with.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, runtime_checkable

from headgate.cache.audits.audit import Audit
from headgate.cache.audits.canonical import same_answer
from headgate.cache.audits.label_log import Source
from headgate.cache.audits.labels import Calibration, Label, LabelKind, label
from headgate.cache.audits.watch import Watch
from headgate.cache.embedding.sentence_model import Vector
from headgate.cache.verdict import Hit, Near
from headgate.engine.errors import EngineError
from headgate.engine.front.judged import Score
from headgate.gateway.configuration.cache import AuditSection
from headgate.gateway.road.destinations import Pieces, Prepared, Read, whole
from headgate.gateway.road.request import ChatRequest, Choice
from headgate.gateway.routing.backlog import Backlog
from headgate.gateway.routing.routes import Routes
from headgate.gateway.teams.keys import Principal
from headgate.gateway.wire.errors import ApiError

logger = logging.getLogger("headgate.gateway")

State = Literal["drawn", "done", "undecided", "dropped", "failed"]
_AT_ONCE = 4
"""Audits on their way at once: enough that one model's do not wait for another's users."""


@runtime_checkable
class Examiner(Protocol):
    """A destination that can be asked what it thinks of an answer, without getting in any user's way."""

    @property
    def id(self) -> str:
        """The destination's."""
        ...

    @property
    def idle(self) -> bool:
        """Whether no user's request is computed or waits there."""
        ...

    async def prepare(self, request: ChatRequest, read: Read | None = None) -> Prepared:
        """As of a destination."""
        ...

    async def encode(self, text: str) -> tuple[int, ...]:
        """Tokens of an answer's text."""
        ...

    async def score(
        self, prepared: Prepared, continuation: tuple[int, ...], request_id: str, principal: Principal
    ) -> Score:
        """How likely an answer is."""
        ...

    def generate(self, prepared: Prepared, request_id: str, principal: Principal) -> Pieces:
        """As of a destination."""
        ...


@dataclass(frozen=True, slots=True)
class _Ticket:
    """A hit that was drawn, and what is needed to answer its question again."""

    audit: Audit
    hit: Hit
    request: ChatRequest
    principal: Principal
    vector: Vector | None


class Audits(Backlog[_Ticket]):
    """Draws hits, has them examined, and tells the watch. All calls come from one event loop."""

    def __init__(self, watch: Watch, calibration: Calibration, routes: Routes, section: AuditSection) -> None:
        """Audits that begin with `start`.

        Args:
            watch: whom the labels are for.
            calibration: how far labels are to be trusted, and where likelihood decides.
            routes: which model would have answered.
            section: how much is audited.
        """
        super().__init__("audits", section.queue, _AT_ONCE)
        self.watch = watch
        self._calibration = calibration
        self._routes = routes
        self._section = section
        self._states: Counter[State] = Counter()
        self._labels: Counter[tuple[Source, LabelKind, bool]] = Counter()
        self._device_s = 0.0
        self._noting: set[asyncio.Task[None]] = set()

    @property
    def states(self) -> Mapping[State, int]:
        """Audits by what became of them, since the start."""
        return self._states

    @property
    def labels(self) -> Mapping[tuple[Source, LabelKind, bool], int]:
        """Labels by where they come from, who gave them and whether they said right."""
        return self._labels

    @property
    def device_s(self) -> float:
        """Device seconds that audits have taken."""
        return self._device_s

    async def close(self) -> None:
        """Drop what waits and end what runs."""
        for task in self._noting:
            task.cancel()
        await asyncio.gather(super().close(), *self._noting, return_exceptions=True)

    async def drained(self) -> None:
        """Wait until every audit drawn by now has been made, and every label taken."""
        await super().drained()
        await asyncio.gather(*self._noting)

    def served(self, hit: Hit, request: ChatRequest, principal: Principal, vector: Vector | None) -> None:
        """A hit by meaning was served: count it, and queue its audit if it was drawn. Never waits."""
        if not self._section.enabled:
            return
        # Not the client's request id: that may repeat, and whoever chooses it must not choose what is audited.
        share = self._section.idle_share if self._idle() else None
        audit = self.watch.draw(hit.entry.key, secrets.token_hex(16), share)
        if not audit.audited:
            return
        self._states["drawn"] += 1
        if not self._put(_Ticket(audit, hit, request, principal, vector), request.size):
            self._states["dropped"] += 1

    def answered(self, near: Near, question: str, model: str, choices: Sequence[Choice]) -> None:
        """A question whose neighbour was near has been answered in full: a label of the neighbour that cost nothing."""
        cached = near.entry.choices
        if not cached or not choices or choices[0].finish_reason != "stop":
            return
        same_tokens = near.entry.model == model and cached[0].token_ids == choices[0].token_ids != ()
        if same_tokens:
            found = Label("identical", True)
        elif (same := same_answer(cached[0].text, choices[0].text, question=question)) is not None:
            found = Label("canonical", same)
        else:
            return
        self._labels["near", found.kind, found.right] += 1
        # The answer is on its way: it does not wait for the store to hear of the label.
        task = asyncio.create_task(self.watch.answered(near, found), name="label")
        self._noting.add(task)
        task.add_done_callback(self._noting.discard)

    def _idle(self) -> bool:
        # Models share the device: one model's users are in the way of every audit.
        return all(d.idle for d in self._routes.destinations.values() if isinstance(d, Examiner))

    async def _do(self, item: _Ticket) -> None:
        try:
            await self._audit(item)
        except (ApiError, EngineError, OSError) as error:
            self._states["failed"] += 1
            logger.info("an audit could not be made: %s", error)
        except Exception:
            self._states["failed"] += 1
            logger.exception("an audit failed")

    async def _audit(self, ticket: _Ticket) -> None:
        found = await self._examine(ticket)
        if found is None:
            self._states["undecided"] += 1
            return
        self._states["done"] += 1
        self._labels["audit", found.kind, found.right] += 1
        await self.watch.audited(ticket.audit, ticket.hit, found)

    async def _examine(self, ticket: _Ticket) -> Label | None:
        """What the model that would have answered says of the answer that was served."""
        request, entry, principal = ticket.request, ticket.hit.entry, ticket.principal
        plan = await self._routes.plan(request, ticket.vector, principal)
        model = self._routes.destination(plan.route.model)
        if not isinstance(model, Examiner) or not entry.choices:
            return None
        prepared, cached = await model.prepare(replace(request, n=1, priority="background")), entry.choices[0]
        own = entry.model == model.id and bool(cached.token_ids)
        tokens = cached.token_ids if own else await model.encode(cached.text)
        if not tokens:
            return None
        request_id = f"audit-{ticket.audit.request_id}"
        score = await model.score(prepared, tokens, request_id, principal)
        self._device_s += score.finish.device_s
        # Another model's tokens lack the end token, and penalties would change what is likeliest.
        if own and score.greedy and not prepared.sampling.changes_logits:
            return Label("identical", True)
        (generated, *_), outcome = await whole(model.generate(prepared, request_id, principal))
        self._device_s += outcome.device_s
        return label(
            self._calibration,
            identical=own and generated.token_ids == tokens,
            cached=cached.text,
            generated=generated.text,
            question=request.last_user_text or "",
            mean_logprob=score.mean,
        )
