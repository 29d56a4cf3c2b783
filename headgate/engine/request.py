"""What goes into the engine and what comes out of it: tokens in, tokens out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from headgate.engine.errors import PromptTooLong
from headgate.engine.sampling.grammar import Grammar
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.text.pictures import Sight, check_sights

FinishReason = Literal["stop", "length", "cancelled", "error"]
ErrorCause = Literal["fault", "memory", "asleep", "grammar", "gone"]
"""Something is wrong; not even a step of a single token fitted the device's memory, which it may later; the model was
asleep and could not be woken; the request's grammar cannot be followed, which is no fault of the model; or the adapter
was taken away while the request was on its way to it."""
Priority = Literal["interactive", "foreground", "background"]
"""Whose tokens a step computes first; background work gets what the others leave."""
PromptState = NDArray[np.float32]
"""`[2 * kv_heads * head_dim + FORECAST]`: the middle layer's values for a prompt, those of its last token and the mean
of all; then what the last layer says of the next token: natural-log probabilities of the five likeliest, and the
entropy in nats."""
LIKELIEST = 5
FORECAST = LIKELIEST + 1


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt for one model, to be continued `n` times.

    `tenant` is opaque to the engine: it salts the prefix cache, so that tenants never share blocks, and it is the unit
    of fair sharing; `weight` is the tenant's share relative to others. Prompts of `priority` interactive are read
    before those of the foreground; work of the background gets what both leave.

    With `score` nothing is generated: these tokens are taken as the continuation, and each of them comes back with its
    log-probability. `n` is 1 then, and of `sampling` only `logprobs` counts.

    With `probe` nothing is generated either: what comes back is the state at the prompt's last token. The prompt's
    blocks stay in the prefix cache for the request that continues it. `n` is 1, and `score` is empty. With `pin` too
    its full blocks are held there, whatever comes, until they are unpinned by the request's id.
    """

    id: str
    model: str
    prompt: tuple[int, ...]
    sampling: SamplingParams = field(default_factory=SamplingParams)
    n: int = 1
    tenant: str = ""
    weight: float = 1.0
    priority: Priority = "foreground"
    score: tuple[int, ...] = ()
    probe: bool = False
    pin: bool = False
    grammar: Grammar | None = None
    """What form the continuations must have."""
    draft: tuple[int, ...] = ()
    """What the continuations may be like. It decides how soon they are there, never what they say."""
    revision: str = ""
    """Of the adapter that is meant, where the model is one: others may come to have its name. Empty: whichever has."""
    sights: tuple[Sight, ...] = ()
    """The pictures of the prompt, in its order: only for a model that sees."""

    def check(self, context_length: int) -> None:
        """Raise PromptTooLong or ValueError if a model of this many tokens a sequence cannot serve it."""
        if not self.prompt:
            raise ValueError("the prompt has no tokens; it must have at least one")
        check_sights(self.prompt, self.sights)
        if self.probe and (self.n != 1 or self.score):
            raise ValueError(f"a probe has n {self.n} and {len(self.score)} tokens to score; 1 and 0 are accepted")
        if self.pin and not self.probe:
            raise ValueError("pin is set without probe; a prompt is pinned by a probe")
        if self.score:
            if self.n != 1:
                raise ValueError(f"n is {self.n} with a continuation to score; 1 is accepted")
            if len(self.prompt) + len(self.score) > context_length:
                raise PromptTooLong(len(self.prompt) + len(self.score), context_length)
        if len(self.prompt) >= context_length:
            raise PromptTooLong(len(self.prompt), context_length)


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Natural-log probability of an emitted token and of the likeliest tokens at its position.

    The distribution is the model's own: before temperature, penalties, bias and truncation.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class TokenScore:
    """What the model thinks of a token it was given, from its own distribution: before temperature, penalties, bias."""

    token_id: int
    logprob: float
    """Natural logarithm of its probability."""
    likeliest: bool
    """Whether plain greedy decoding would have chosen it."""
    top: tuple[tuple[int, float], ...] = ()
    """The likeliest tokens at its position, as many as the request's `sampling.logprobs`."""


@dataclass(frozen=True, slots=True)
class Finish:
    """Why and with what account one choice ended. Times are in seconds."""

    reason: FinishReason
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    """Prompt tokens whose keys and values came from the prefix cache."""
    queue_s: float = 0.0
    """From submission to the first step that computed something."""
    prefill_s: float = 0.0
    """From there to the first emitted token."""
    decode_s: float = 0.0
    """From the first emitted token to the last."""
    device_s: float = 0.0
    """Share of step time, by tokens computed."""
    accepted: int = 0
    """Of `completion_tokens`, those that were proposed by the request's draft."""
    rejected: int = 0
    """Tokens of the draft that were computed in vain."""
    error: str | None = None
    cause: ErrorCause | None = None
    """Of the error."""


@dataclass(slots=True)
class Delta:
    """What one step added to one choice of one request.

    Never changed once made; not frozen, because one is made per token and freezing makes that several times slower.
    """

    request_id: str
    index: int
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    scores: tuple[TokenScore, ...] = ()
    """Of the next tokens of the request's `score`."""
    queue_s: float = 0.0
    """As in Finish; known from the first token on."""
    finish: Finish | None = None
    state: PromptState | None = None
    """Of a request with `probe`, in its last delta."""
