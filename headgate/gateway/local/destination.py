"""A model of the engine in this process as a destination."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress

from headgate.engine.errors import EngineError, EngineStopped, ModelAsleep, PromptTooLong, UnknownModel
from headgate.engine.front.choice import TextDelta
from headgate.engine.front.judged import Score
from headgate.engine.front.local import LocalModel
from headgate.engine.front.model_info import ModelInfo
from headgate.engine.request import Finish
from headgate.gateway.configuration.models import SleepSection
from headgate.gateway.local.echo import Echo, echoed
from headgate.gateway.local.output_parser import OutputParser
from headgate.gateway.local.pictures import PictureDecoder
from headgate.gateway.local.prompts import Prompt, prompt_of
from headgate.gateway.local.sampling import check_vocabulary, sampling_params, temperature
from headgate.gateway.local.sleeping import Sleep
from headgate.gateway.local.start_rates import first_steps, start_rates
from headgate.gateway.local.structured import grammar_of
from headgate.gateway.road.destinations import Facts, Live, Outcome, Pieces, Prepared, Read
from headgate.gateway.road.inputs import lacking, refuse_inputs
from headgate.gateway.road.request import AnswerFinish, ChatRequest, Chunk, Draft, Sampling, Usage
from headgate.gateway.teams.keys import Principal
from headgate.gateway.wire.errors import (
    ApiError,
    adapter_gone,
    context_exceeded,
    invalid,
    overloaded,
    refuse_unknown,
    unsupported,
)
from headgate.routing.price import Load, Rates, StepRates, Work
from headgate.routing.types import Need, Vector

logger = logging.getLogger(__name__)

_LATELY_S = 0.1
"""Rates change slowly, and each request asks for them."""
_TOKEN_CHARS = 16
"""Tokens of texts have fewer characters, most of them."""
_TRY_S = 30.0
"""A step of one token comes sooner, whatever else is computed."""


class LocalDestination:
    """A model of the engine in this process."""

    def __init__(
        self,
        model: LocalModel,
        *,
        lacks: frozenset[Need] = frozenset(),
        sleep: SleepSection | None = None,
        pictures: PictureDecoder | None = None,
        device: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Serve a model.

        Args:
            model: of an engine.
            lacks: what it does not understand besides sound and files, which the engine does not, pictures, where it
                has no eyes, and tools, where its chat template has no place for them.
            sleep: when it sleeps, and who wakes it; None: the defaults.
            pictures: decodes them; None: it is shown none.
            device: tells apart the devices of several engines; those of one engine share one.
            clock: monotonic seconds.
        """
        self._model = model
        self._info: ModelInfo = model.info
        self.pictures = pictures
        sees = model.info.sees and pictures is not None
        # URLs lead wherever who asks wants: nothing is fetched for anybody.
        needs: set[Need] = {*lacks, *lacking(["image"] if sees else [], urls=False)}
        if model.info.tool_calls is None:
            needs.add("tools")
        self._lacks: frozenset[Need] = frozenset(needs)
        self._device = device
        self.sleep = Sleep(model, sleep, clock)
        self._rates = StepRates(start_rates(model.info), clock)
        self._clock = clock
        self._looked_at = -math.inf
        info = model.info
        counts, parent = (info.parameters, info.active_parameters), info.adapter_of or None
        self._facts = Facts(info.context_length, *counts, info.dtype, info.hand_over, parent)

    @property
    def id(self) -> str:
        """The configured id."""
        return self._info.name

    @property
    def revision(self) -> str:
        """The checkpoint's content and how it is computed, asked, and ended."""
        info = self._info
        read = f"{info.text_revision}:{info.tool_calls}:{info.context_length}:{info.defaults}"
        return f"{info.revision}:{info.dtype}:{info.weights}:{read}"

    @property
    def facts(self) -> Facts:
        """Taken from the checkpoint."""
        return self._facts

    @property
    def lacks(self) -> frozenset[Need]:
        """As configured, and what cannot be otherwise."""
        return self._lacks

    @property
    def down(self) -> bool:
        """Never: it is a part of this process."""
        return False

    def live(self) -> Live:
        """From the engine's memory; the rates by its own steps."""
        self._looked_at = self._clock()
        stats, info = self._model.stats(), self._info
        self._rates.report(Work(stats.steps, stats.prompt_tokens, stats.generated_tokens, stats.step_seconds))
        load = Load(stats.running, stats.waiting, stats.pending_tokens, info.max_running, info.max_step_tokens)
        ready, wake_s = not self.sleep.refuses, self.sleep.wake_s
        return Live(load, self._rates.rates, self._device, ready=ready, wake_s=wake_s, lane=info.adapter_of)

    @property
    def rates(self) -> Rates:
        """Those of `live`, by what was seen at most a tenth of a second ago."""
        if self._clock() - self._looked_at >= _LATELY_S:
            self.live()
        return self._rates.rates

    def resident(self, prepared: Prepared, principal: Principal) -> int:
        """Those of the team's blocks that the engine would find."""
        return self._model.resident(prepared.prompt, principal.team, prepared.sights(principal.team))

    async def probe(self, prepared: Prepared, principal: Principal) -> Vector | None:
        """Reads the prompt, as answering it would: the answer then begins where this ended. It wakes no model."""
        if not self.sleep.awake:
            return None
        weight, priority = principal.policy.scheduling.weight, prepared.request.priority
        try:
            probe = await self._model.probe(
                "probe",
                prepared.prompt,
                tenant=principal.team,
                weight=weight,
                priority=priority,
                sights=prepared.sights(principal.team),
            )
            return probe.state
        except EngineError as error:
            logger.warning("the model %s was not asked how sure it is: %s", self.id, error)
            return None

    def temperature(self, sampling: Sampling) -> float:
        """The request's own, else the checkpoint's."""
        return temperature(sampling, self._info)

    async def prepare(self, request: ChatRequest, read: Read | None = None) -> Prepared:
        """Tokenise and check against the model: context, vocabulary, chat template."""
        refuse_unknown(request)
        check_vocabulary(request, self._info)
        if request.callable_tools and "tools" in self._lacks:
            raise unsupported("tools", f"The model '{self.id}' cannot call functions. Leave 'tools' out.")
        if request.response_format.schema is not None and "json" in self._lacks:
            raise unsupported("response_format", f"The model '{self.id}' only answers with text.")
        whole = await self._whole(request, read)
        prompt = whole.tokens
        if not prompt:
            raise invalid("The prompt has no tokens; at least one is needed.", "prompt", "empty_prompt")
        room = self._info.context_length - len(prompt)
        if room < 1:
            raise context_exceeded(self._info.context_length, len(prompt), None, request.prompt_field)
        if request.max_tokens is not None and request.max_tokens > room:
            raise context_exceeded(self._info.context_length, len(prompt), request.max_tokens)
        grammar = await grammar_of(request, self._model, prompt)
        return Prepared(request, prompt, sampling_params(request, self._info), grammar=grammar, shown=whole.shown)

    async def measure(self) -> None:
        """Have the model take some steps, so that its rates are known before anybody asks it.

        EngineError where it cannot.
        """
        await first_steps(self._model, self.live)

    async def try_step(self) -> str:
        """What is wrong with a step that nobody asked for; empty where it is computed."""
        try:
            async with asyncio.timeout(_TRY_S):
                await self._model.probe("try", (0,), tenant="\0try")
        except EngineStopped:
            return ""  # the server ends
        except EngineError as error:
            return str(error)
        except TimeoutError:
            return f"a step was not computed in {_TRY_S:g} s"
        return ""

    @property
    def idle(self) -> bool:
        """Whether no user's request is computed or waits here."""
        stats = self._model.stats()
        return not stats.running and not stats.waiting

    async def encode(self, text: str) -> tuple[int, ...]:
        """Tokens of an answer's text."""
        return await self._model.encode(text, special=False)

    @property
    def model(self) -> LocalModel:
        """The engine's."""
        return self._model

    async def tokens(self, request: ChatRequest) -> tuple[int, ...]:
        """The prompt that it would read, however long; ApiError 400 where it cannot read or see what is in there."""
        refuse_inputs(request, self.id, self._lacks)
        return (await prompt_of(request, self._model, self.pictures)).tokens

    async def pin(self, prompt: tuple[int, ...], team: str) -> str | None:
        """Hold a prompt in the prefix cache for a team; what `unpin` takes, or None where there is no room.

        EngineError where it cannot be read now.
        """
        self._check_awake()
        return await self._model.pin(prompt, team)

    def unpin(self, pinned: str) -> None:
        """Let go of it."""
        self._model.unpin(pinned)

    async def score(
        self, prepared: Prepared, continuation: tuple[int, ...], request_id: str, principal: Principal
    ) -> Score:
        """How likely an answer is here, as work that nobody waits for. EngineError where it cannot be told."""
        self._check_awake()
        return await self._model.score(
            request_id,
            prepared.prompt,
            continuation,
            tenant=principal.team,
            priority="background",
            sights=prepared.sights(principal.team),
        )

    async def generate(self, prepared: Prepared, request_id: str, principal: Principal) -> Pieces:
        """Run it. ApiError 500 where a step failed, 503 where the model does not wake or the engine is stopping."""
        await self.sleep.rouse()
        request = prepared.request
        finishes: list[Finish] = []
        parser = OutputParser(request, self._model, prepared.prompt)
        echo: Echo | None = None
        if request.echo:
            try:
                echo = await echoed(request, self._model, prepared.prompt, request_id, principal.team)
            except UnknownModel:
                raise adapter_gone(self.id) from None
            ended: AnswerFinish | None = "length" if request.max_tokens == 0 else None
            for index in range(request.n):
                yield Chunk(index, echo.text, echo.logprobs, ended)
            if ended is not None:
                yield Outcome(echo.usage, 0.0, echo.device_s)
                return

        def account(outcome: Outcome) -> Outcome:
            return outcome if echo is None else echo.with_rest(outcome)

        def left(rest: Sequence[Finish]) -> None:
            if prepared.left is not None and (finishes or rest):
                prepared.left(account(_outcome([*finishes, *rest], prepared.image_tokens)))

        try:
            stream = self._model.generate(
                request_id,
                prepared.prompt,
                prepared.sampling,
                n=request.n,
                stop=parser.stop,
                tenant=principal.team,
                weight=principal.policy.scheduling.weight,
                priority=request.priority,
                marked=parser.marked,
                grammar=prepared.grammar,
                left=left,
                complete=parser.complete if parser.bounded else None,
                draft=await self._draft(request.draft),
                sights=prepared.sights(principal.team),
            )
            try:
                async for delta in stream:
                    if delta.finish is not None:
                        finishes.append(delta.finish)
                    ended_early = False
                    for chunk in parser.chunks(delta):
                        ended_early = bool((yield chunk)) or ended_early
                    if ended_early:
                        finishes.extend(await _ended(stream))
                        break
            finally:
                await stream.aclose()
        except PromptTooLong as error:
            raise _too_long(error, request) from None
        except EngineStopped:
            raise overloaded("The server is shutting down.") from None
        except UnknownModel:
            raise adapter_gone(self.id) from None
        yield account(_outcome(finishes, prepared.image_tokens, parser.reasoning_tokens))

    async def _whole(self, request: ChatRequest, read: Read | None) -> Prompt:
        """The prompt, from those that were read where it is among them. ApiError 400 where there can be none."""
        refuse_inputs(request, self.id, self._lacks)
        info = self._info
        # What pictures are to a model is for itself to say, and its adapters.
        by = f"{info.text_revision}:{info.adapter_of or info.name}" if request.attachments else info.text_revision
        if read is not None and by in read:
            return read[by]
        try:
            prompt = await prompt_of(request, self._model, self.pictures, info.context_length)
        except PromptTooLong as error:
            raise _too_long(error, request) from None
        if read is not None:
            read[by] = prompt
        return prompt

    def _check_awake(self) -> None:
        if not self.sleep.awake:
            raise ModelAsleep(f"the model '{self.id}' is asleep, and what nobody waits for does not wake it")

    async def _draft(self, draft: Draft | None) -> tuple[int, ...]:
        """Its tokens here: those that it was written with, if that was done here."""
        if draft is None:
            return ()
        if draft.token_ids and draft.model == self.id and max(draft.token_ids) < self._info.vocab_size:
            tokens = draft.token_ids
        else:
            # A hint may end early, and megabytes take seconds to encode.
            tokens = await self.encode(draft.text[: _TOKEN_CHARS * self._info.context_length])
        return tokens[: self._info.context_length]


async def _ended(stream: AsyncGenerator[TextDelta, bool | None]) -> list[Finish]:
    """End a stream before its end; the accounts of the choices that had not ended."""
    finishes = []
    with suppress(StopAsyncIteration):
        delta = await stream.asend(True)
        while True:
            if delta.finish is not None:
                finishes.append(delta.finish)
            delta = await anext(stream)
    return finishes


def _too_long(error: PromptTooLong, request: ChatRequest) -> ApiError:
    return context_exceeded(error.limit, error.prompt_tokens, None, request.prompt_field, at_least=error.at_least)


def _outcome(finishes: list[Finish], image_tokens: int, reasoning_tokens: int = 0) -> Outcome:
    if not finishes:
        raise ApiError(500, "The engine ended without an answer.", type="server_error", code="internal_error")
    # Choices share one prompt: it counts once, and what the first of them had to compute was not cached.
    usage = Usage(
        prompt_tokens=finishes[0].prompt_tokens,
        completion_tokens=sum(f.completion_tokens for f in finishes),
        cached_tokens=min(f.cached_tokens for f in finishes),
        reasoning_tokens=reasoning_tokens,
        drafted_tokens=sum(f.accepted for f in finishes),
        misdrafted_tokens=sum(f.rejected for f in finishes),
        image_tokens=image_tokens,
    )
    return Outcome(usage, min(f.queue_s for f in finishes), sum(f.device_s for f in finishes))
