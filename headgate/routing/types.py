"""What routing decides over, and what it decides: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
Tier = Literal["small", "large"]
AnswerFormat = Literal["text", "json_object", "json_schema"]


@dataclass(frozen=True, slots=True)
class RouteFeatures:
    """What a request looks like to the router."""

    text: str
    """The last user text."""
    vector: Vector | None = None
    """Its embedding `[dim]`, unit norm, where somebody computed it already."""
    prompt_chars: int = 0
    """Characters of the whole prompt: system text, every turn and the tools."""
    max_tokens: int = 0
    """Tokens the answer may take; 0 where the request sets no limit."""
    has_tools: bool = False
    turns: int = 1
    """Messages of the conversation."""
    system: str = ""
    """The system text."""
    format: AnswerFormat = "text"
    """What form the answer must have."""
    state: Vector | None = None
    """The small model's hidden state `[dim]` at the last token of the prompt, where it was computed."""
    cores: Vector | None = None
    """Embeddings `[cores, dim]` of what `headgate.routing.core.cores` finds in the text, in that order; None where
    they are not judged."""


@dataclass(frozen=True, slots=True)
class Quality:
    """How likely each tier is to answer a request well enough, 0 to 1, and from what that was told."""

    small: float
    """Where the large one does."""
    large: float
    source: str
    """`embedding`, `cores`, `probe` or `task`."""
    readings: tuple[float, ...] = ()
    """`enough` of the whole text and of each of its cores, where these were judged: the highest is believed."""
    kept: float = 0.0
    """`enough` for a request that the small tier would hand over, where it has to answer it itself; 0 where nobody
    knows."""

    @property
    def enough(self) -> float:
        """How likely the small tier's answer is as good as the large one's, 0 to 1."""
        return enough(self.small, self.large)


N = TypeVar("N", float, NDArray[np.float64])


def enough(small: N, large: N) -> N:
    """How likely the small model loses nothing: that not the large one alone is right.

    What both have wrong, or both right, is no reason to pay for the large one.

    Args:
        small: probability that the small model is right where the large one is, 0 to 1, or many.
        large: that the large one is right.
    """
    return 1.0 - large * (1.0 - small)


class QualityModel(Protocol):
    """Tells how well each tier would answer."""

    def estimate(self, features: RouteFeatures, task: str) -> Quality:
        """The estimate for a request of a task class; under a millisecond."""
        ...

    @property
    def wants_state(self) -> bool:
        """Whether an estimate is better with the small model's state."""
        ...


Skill = Literal["tools", "vision", "json"]
"""What an operator may say that a model does not understand."""
Need = Literal[Skill, "audio", "files", "vision_urls"]
"""What a request needs a destination to understand besides text; `vision_urls`: pictures that it has to fetch."""


@dataclass(frozen=True, slots=True)
class Price:
    """What a request is expected to cost at a destination. Times are seconds."""

    queue_s: float
    """Until its turn."""
    prefill_s: float
    """Its prompt, as far as it has to be read."""
    decode_s: float
    """Its answer, at the batch after admission."""
    device_s: float = 0.0
    """The device's time that would not be spent without it."""
    others_s: float = 0.0
    """How much longer all others wait because of that, together."""
    usd: float = 0.0
    score: float = 0.0
    """All of it as one figure in seconds: the least is chosen."""
    computed_tokens: int = 0
    """Prompt tokens that have to be read."""
    output_tokens: float = 0.0
    """Expected of the answer."""

    @property
    def seconds(self) -> float:
        """From now to the last token."""
        return self.queue_s + self.prefill_s + self.decode_s


@dataclass(frozen=True, slots=True)
class Destination:
    """One model as it stands now, for one request."""

    name: str
    tier: Tier
    estimated: bool = True
    """Whether estimates of quality are of this model: of the others of its tier they say nothing."""
    ready: bool = True
    down: bool = False
    """It failed lately and is left alone."""
    queue_depth: int = 0
    """Requests that wait for it."""
    refusal: str = ""
    """Why it would refuse the request: `context` where that is too small, else `refused`; empty where it takes it."""
    context_length: int = 0
    """Tokens of prompt and answer together."""
    lacks: frozenset[Need] = frozenset()
    price: Price | None = None
    """What the request would cost there, where that is known."""


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request goes and why."""

    model: str
    reason: str
    """A stable token: `requested`, `tier:small`, `task:code`, `quality:small`, `price`, `fallback:down`, … (see
    docs/routing.md)."""
    confidence: float
    """Of the task, 0 to 1; 1 where no task had to be guessed."""
    task: str
    """The task class, `unknown`, or empty where the request named its model."""
    fallbacks: tuple[str, ...] = ()
    """Models to try next, in order. Empty where the request asked for one model by its id."""


class NoRoute(Exception):
    """No destination can be named for the request; the message says what is configured."""


class NoneReady(NoRoute):
    """The destinations exist but none of them is ready."""
