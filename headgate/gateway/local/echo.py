"""The prompt before its continuation: what plain completions with `echo` answer with."""

from __future__ import annotations

import math
from dataclasses import dataclass

from msgspec.structs import replace

from headgate.engine.errors import ScoringFailed
from headgate.engine.front.local import LocalModel
from headgate.engine.request import TokenLogprob
from headgate.engine.text.stream import TextLogprob
from headgate.gateway.road.destinations import Outcome
from headgate.gateway.road.request import ChatRequest, Usage
from headgate.gateway.wire.errors import server_error


@dataclass(frozen=True, slots=True)
class Echo:
    """A prompt's text, and where they are asked for the log-probabilities of its tokens.

    The first token has none, which is NaN here and null on the wire. `usage` is of reading the prompt alone.
    """

    text: str
    logprobs: tuple[TextLogprob, ...]
    usage: Usage
    device_s: float

    def with_rest(self, continuation: Outcome) -> Outcome:
        """The account of a continuation with that of reading the prompt, which left it in the prefix cache."""
        if not self.logprobs:
            return continuation
        usage = replace(continuation.usage, cached_tokens=self.usage.cached_tokens)
        return replace(continuation, usage=usage, device_s=continuation.device_s + self.device_s)


async def echoed(
    request: ChatRequest, model: LocalModel, prompt: tuple[int, ...], request_id: str, tenant: str
) -> Echo:
    """What stands before the continuation. ApiError 500 where a step failed."""
    text = request.prompt if isinstance(request.prompt, str) else model.decode(prompt, special=True)
    if request.logprobs is None:
        return Echo(text, (), Usage(len(prompt), 0, 0), 0.0)
    told, cached, device_s = [TokenLogprob(prompt[0], math.nan)], 0, 0.0
    if len(prompt) > 1:
        try:
            score = await model.score(
                request_id, prompt[:1], prompt[1:], top=request.logprobs, tenant=tenant, priority=request.priority
            )
        except ScoringFailed:
            raise server_error("The model failed while reading the prompt; the request was not completed.") from None
        told += [TokenLogprob(token.token_id, token.logprob, token.top) for token in score.tokens]
        cached, device_s = score.finish.cached_tokens, score.finish.device_s
    entries = [model.described(token) for token in told]
    # A mark that the tokenizer puts before a text is no part of it.
    if isinstance(request.prompt, str) and prompt[0] == model.bos_id and not text.startswith(entries[0].token):
        entries = entries[1:]
    return Echo(text, tuple(entries), Usage(len(prompt), 0, cached), device_s)
