"""A local model as its users see it: prompts in, a stream of text out, on the caller's event loop.

Tokenising, detokenising and stop strings run here, off the step thread. What a step produced arrives in one call per
event loop; a consumer that falls behind finds several steps' tokens merged into one delta.
"""

from __future__ import annotations

import asyncio
import itertools
import weakref
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from copy import copy
from typing import Any

from headgate.engine.errors import ProbeFailed, ScoringFailed, UnknownModel
from headgate.engine.front.choice import ChoiceStream, TextDelta, merge, singly
from headgate.engine.front.judged import Probe, Score
from headgate.engine.front.mailbox import Mailbox
from headgate.engine.front.model_info import ModelInfo
from headgate.engine.lanes.sleeper import Sleeper
from headgate.engine.lanes.stats import ModelStats
from headgate.engine.lanes.tally import Tally
from headgate.engine.loop import StepLoop
from headgate.engine.request import Delta, Finish, Priority, Request, TokenLogprob
from headgate.engine.sampling.grammar import Grammar, Grammars
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.text.answer_readers import AnswerReaders
from headgate.engine.text.chat_template import ChatTemplate
from headgate.engine.text.picture_reader import PictureReader
from headgate.engine.text.pictures import Picture, Sight
from headgate.engine.text.prompt_reader import PromptReader
from headgate.engine.text.stream import ChoiceText, TextLogprob, described
from headgate.engine.text.tokenizer import Tokenizer


class LocalModel:
    """One model of an engine."""

    def __init__(
        self,
        info: ModelInfo,
        tokenizer: Tokenizer,
        chat_template: ChatTemplate,
        loop: StepLoop,
        sleeper: Sleeper | None = None,
        pictures: PictureReader | None = None,
    ) -> None:
        """`sleeper`: of a model that is loaded. `pictures`: of one that sees."""
        self.info = info
        self.sleeper = sleeper
        self._tokenizer = tokenizer
        self.answers = AnswerReaders(tokenizer, info.thinks, info.tool_calls)
        """What makes readers of them."""
        self._chat_template = chat_template
        self._reader = PromptReader(tokenizer, chat_template, info.context_length, pictures)
        self._loop = loop
        self._revision = ""
        self._grammars = Grammars(self.answers.free, info.vocab_size)
        self._serial = itertools.count()
        self._mailboxes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Mailbox] = weakref.WeakKeyDictionary()

    def adapted(self, info: ModelInfo) -> LocalModel:
        """The same with an adapter: a model that the loop knows by another name, and by what is in its files."""
        other = copy(self)
        other.info = info
        other._revision = info.revision
        return other

    @property
    def _lane(self) -> str:
        """The model whose steps it shares, which is there as long as the engine is."""
        return self.info.adapter_of or self.info.name

    def stats(self) -> ModelStats:
        """Gauges and counters of the model's lane."""
        return self._loop.stats(self._lane)

    def tally(self) -> Tally:
        """Distributions of the model's lane."""
        return self._loop.tally(self._lane)

    def resident(self, prompt: tuple[int, ...], tenant: str, sights: tuple[Sight, ...] = ()) -> int:
        """Leading tokens of a prompt whose keys and values are cached for the tenant now. `sights`: its pictures."""
        return self._loop.resident(self.info.name, tenant, prompt, sights)

    @property
    def bos_id(self) -> int | None:
        """The token that the tokenizer puts before a text, if there is one."""
        return self._tokenizer.bos_id

    def reads(self, variable: str) -> bool:
        """Whether a variable of the chat template, such as `enable_thinking`, makes a difference."""
        return self._chat_template.reads(variable, with_tools=False)

    async def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        most: int | None = None,
        **extra: Any,
    ) -> tuple[int, ...]:
        """Prompt tokens of a conversation, by the checkpoint's chat template; `extra`: its further variables.

        Raises:
            TemplateError, NoChatTemplate: the template refuses the messages, or there is none.
            PromptTooLong: as `encode`.
        """
        return await self._reader.chat(messages, tools, most, extra)

    async def look(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        pictures: Sequence[Picture],
        *,
        most: int | None = None,
        **extra: Any,
    ) -> tuple[tuple[int, ...], tuple[Sight, ...]]:
        """As `render_chat`, of a conversation with pictures: a message's `content` may be a list of parts, of which
        those of type "image" stand for `pictures`, in their order.

        Returns:
            The prompt's tokens, in which a picture has as many as it costs, and where the pictures are among them.

        Raises:
            TemplateError, NoChatTemplate, PromptTooLong: as `render_chat`.
            ValueError: the model does not see, or what is wrong with a picture.
        """
        return await self._reader.look(messages, tools, pictures, most, extra)

    async def encode(self, text: str, *, special: bool = True, most: int | None = None) -> tuple[int, ...]:
        """Tokens of plain text; `special`: with those the tokenizer puts around a prompt.

        Raises:
            PromptTooLong: its length alone tells that it has more than `most` tokens. One that has them for all that is
                given back: the caller sees it.
        """
        return await self._reader.plain(text, special=special, most=most)

    async def grammar(self, text: str) -> Grammar:
        """A grammar for the model's vocabulary, compiled in a thread unless it is known.

        Raises:
            GrammarError: it cannot be followed.
        """
        kept = self._grammars.kept(text)
        return await asyncio.to_thread(self._grammars.compile, text) if kept is None else kept

    def decode(self, token_ids: Sequence[int], *, special: bool = False) -> str:
        """Text of tokens; special ones are left out unless `special`."""
        return self._tokenizer.decode(token_ids, skip_special=not special)

    def pieces(self, token_ids: Sequence[int]) -> list[str]:
        """The text of each token by itself, U+FFFD where it holds part of a character."""
        return [self._tokenizer.token_text(token) for token in token_ids]

    def described(self, entry: TokenLogprob) -> TextLogprob:
        """A token and the likeliest ones beside it with their texts, as `pieces` has them."""
        return described(entry, self._tokenizer)

    async def generate(
        self,
        request_id: str,
        prompt: tuple[int, ...],
        sampling: SamplingParams,
        *,
        n: int = 1,
        stop: tuple[str, ...] = (),
        tenant: str = "",
        weight: float = 1.0,
        priority: Priority = "foreground",
        left: Callable[[Sequence[Finish]], None] | None = None,
        marked: bool = False,
        grammar: Grammar | None = None,
        complete: Callable[[int], bool] | None = None,
        draft: tuple[int, ...] = (),
        sights: tuple[Sight, ...] = (),
    ) -> AsyncGenerator[TextDelta, bool | None]:
        """Stream `n` continuations of `prompt`. Closing the iterator cancels what still runs before the next step.

        `left` is told the accounts of the choices that ended that way, before the iterator is closed. `marked`: the
        text has the marks of function calls, where they are special tokens too. `grammar`: what form the continuations
        must have; one that is cut at its limit has it in part. `complete`, asked after each delta of a choice, says
        whether the choice is to end there, as at a stop string. `draft`: tokens that the continuations may consist of,
        all or some, which come sooner then. `sights`: the prompt's pictures, as `look` gave them.

        Sending True cancels it too, but the last deltas still come, with the account of what was computed.

        Raises:
            PromptTooLong, EngineStopped, ValueError: the request was not taken.
        """
        engine_id = self._engine_id(request_id)
        mailbox = self._mailbox()
        tokenizer = self.answers.marked if marked else self._tokenizer
        choices = [ChoiceStream(ChoiceText(tokenizer, stop, sampling.stop_token_ids)) for _ in range(n)]
        # Such an end is seen here only: what is handed over late would be computed, and counted, for nothing.
        mailbox.open(engine_id, eager=bool(stop) or complete is not None)
        submitted, taken = False, iter(list[Delta]())
        try:
            request = Request(
                engine_id, self.info.name, prompt, sampling, n, tenant, weight, priority, grammar=grammar, draft=draft,
                revision=self._revision, sights=sights,
            )  # fmt: skip
            self._loop.submit(request, mailbox.post)
            submitted, running = True, n
            while running:
                taken = iter(merge(await mailbox.take(engine_id)))
                if complete is not None:
                    taken = itertools.chain.from_iterable(map(singly, taken))
                for delta in taken:
                    choice = choices[delta.index]
                    text = choice.push(delta)
                    if delta.finish is not None:
                        running -= 1
                    if choice.overrun:
                        # Its last delta comes with the account, at the latest one step from now.
                        self._loop.cancel(engine_id, delta.index)
                    if text is None:
                        continue
                    if (yield text):
                        self._loop.cancel(engine_id)
                    if complete is not None and not choice.finished and complete(delta.index):
                        choice.end()
                        self._loop.cancel(engine_id, delta.index)
        finally:
            running = sum(not choice.finished for choice in choices)
            if running:
                self._loop.cancel(engine_id)
            try:
                if submitted and running and left is not None:
                    ended = [delta.finish for delta in taken if delta.finish is not None]
                    left(ended + await mailbox.ends(engine_id, running - len(ended)))
            finally:
                mailbox.close(engine_id)

    async def score(
        self,
        request_id: str,
        prompt: tuple[int, ...],
        continuation: tuple[int, ...],
        *,
        top: int = 0,
        tenant: str = "",
        priority: Priority = "foreground",
        sights: tuple[Sight, ...] = (),
    ) -> Score:
        """Log-probabilities of `continuation` after `prompt`: one pass over both, nothing is generated.

        `top`: how many of the likeliest tokens come beside each. `sights`: the prompt's pictures.

        Raises:
            PromptTooLong, EngineStopped, UnknownModel, ValueError: the request was not taken.
            ScoringFailed: the engine ended it with an error or on its way down.
        """
        if not continuation:
            raise ValueError("the continuation has no tokens; it must have at least one")
        deltas, finish = await self._run(
            Request(
                self._engine_id(request_id),
                self.info.name,
                prompt,
                SamplingParams(logprobs=top),
                tenant=tenant,
                priority=priority,
                score=continuation,
                revision=self._revision,
                sights=sights,
            )
        )
        if finish.cause == "gone":
            raise UnknownModel(finish.error)
        if finish.reason != "stop":
            raise ScoringFailed(finish.error or "the engine is stopping")
        return Score(tuple(score for delta in deltas for score in delta.scores), finish)

    async def probe(
        self,
        request_id: str,
        prompt: tuple[int, ...],
        *,
        tenant: str = "",
        weight: float = 1.0,
        priority: Priority = "foreground",
        sights: tuple[Sight, ...] = (),
    ) -> Probe:
        """What the model makes of `prompt` with its pictures `sights`, its end above all; nothing is generated.

        The prompt's blocks stay in the prefix cache: the first `generate` of the same prompt and tenant that follows
        computes only the last token.

        Raises:
            PromptTooLong, EngineStopped, ValueError: the request was not taken.
            ProbeFailed: the engine ended it with an error or on its way down.
        """
        engine_id = self._engine_id(request_id)
        request = Request(
            engine_id, self.info.name, prompt, tenant=tenant, weight=weight, priority=priority, probe=True,
            revision=self._revision, sights=sights,
        )  # fmt: skip
        deltas, finish = await self._run(request)
        state = deltas[-1].state
        if finish.reason != "stop" or state is None:
            raise ProbeFailed(finish.error or "the engine is stopping")
        return Probe(state, finish)

    async def pin(self, prompt: tuple[int, ...], tenant: str, sights: tuple[Sight, ...] = ()) -> str | None:
        """Have the full blocks of a prompt stay in the prefix cache, computed in steps that nobody else wants.

        `sights`: the prompt's pictures. Gives what `unpin` takes; None where no more blocks may be held.

        Raises:
            PromptTooLong, EngineStopped, ValueError: the request was not taken.
            ProbeFailed: the engine ended it with an error or on its way down.
        """
        engine_id = self._engine_id("pin")
        request = Request(
            engine_id, self.info.name, prompt, tenant=tenant, priority="background", probe=True, pin=True,
            revision=self._revision, sights=sights,
        )  # fmt: skip
        try:
            _, finish = await self._run(request)
        except BaseException:
            self.unpin(engine_id)
            raise
        if finish.reason not in ("stop", "length"):
            raise ProbeFailed(finish.error or "the engine is stopping")
        return engine_id if finish.reason == "stop" else None

    def unpin(self, pinned: str) -> None:
        """Let go of a prompt's blocks."""
        self._loop.unpin(self._lane, pinned)

    async def _run(self, request: Request) -> tuple[list[Delta], Finish]:
        """Everything the engine says of a request of one choice. Cancelling the call cancels the request."""
        mailbox = self._mailbox()
        mailbox.open(request.id)
        deltas: list[Delta] = []
        finish: Finish | None = None
        try:
            self._loop.submit(request, mailbox.post)
            while finish is None:
                deltas.extend(await mailbox.take(request.id))
                finish = deltas[-1].finish
        finally:
            mailbox.close(request.id)
            if finish is None:
                self._loop.cancel(request.id)
        return deltas, finish

    def _engine_id(self, request_id: str) -> str:
        """The caller's id may repeat, here and at the other models of the engine; the engine's must not."""
        return f"{request_id}#{self.info.name}#{next(self._serial)}"

    def _mailbox(self) -> Mailbox:
        loop = asyncio.get_running_loop()
        mailbox = self._mailboxes.get(loop)
        if mailbox is None:
            mailbox = self._mailboxes[loop] = Mailbox(loop)
        return mailbox
