"""How the next token is chosen, per request."""

from __future__ import annotations

from dataclasses import dataclass

_FARTHEST_PENALTY = 1e30
"""By which logits can still be multiplied in float32. One further from 1 leaves them in the same order, and as far
apart as makes a draw certain."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Sampling settings of one request. The engine trusts them: who takes a request in checks their ranges.

    Attributes:
        temperature: 0 is greedy.
        top_p: nucleus mass, in (0, 1].
        top_k: keep the k likeliest tokens; 0 keeps all.
        min_p: drop tokens below this share of the likeliest one's probability, in [0, 1).
        presence_penalty: subtracted once from the logits of tokens already generated, in [-2, 2].
        frequency_penalty: subtracted per earlier occurrence among generated tokens, in [-2, 2].
        repetition_penalty: divides positive and multiplies negative logits of tokens in prompt or output, > 0.
        logit_bias: (token id, addend) pairs.
        seed: with a seed the draw at a position depends on (seed, choice index, position) only.
        max_tokens: most tokens to generate; None means up to the context length.
        begin_suppress_tokens: what no output begins with, as in generation_config.json; it has no probability there.
        stop_token_ids: end the sequence besides the model's own end tokens; never shown.
        ignore_eos: go on past the model's end tokens (benchmarks).
        logprobs: None, or how many of the likeliest tokens to report beside the emitted one (0 to 20).
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int | None = None
    max_tokens: int | None = None
    begin_suppress_tokens: tuple[int, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is taken. So close to 0 a softmax over float32 logits is an argmax as well."""
        return self.temperature < 1e-5

    @property
    def repetition(self) -> float:
        """The `repetition_penalty` to compute with, which chooses the same."""
        return min(max(self.repetition_penalty, 1 / _FARTHEST_PENALTY), _FARTHEST_PENALTY)

    @property
    def biases(self) -> dict[int, float]:
        """What is added to logits, by token: the sum of what `logit_bias` says of it."""
        biases: dict[int, float] = {}
        for token, addend in self.logit_bias:
            biases[token] = biases.get(token, 0.0) + addend
        return biases

    @property
    def changes_logits(self) -> bool:
        """Whether bias or penalties change what is likely."""
        return bool(self.logit_bias) or self.looks_back

    @property
    def looks_back(self) -> bool:
        """Whether what is likely depends on the tokens before, other than by the model."""
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0

    @property
    def direct(self) -> bool:
        """Whether the model's own logits lead to a token at once: nothing changes them, nothing of them is reported."""
        return self.logprobs is None and not self.changes_logits

    @property
    def plain(self) -> bool:
        """Whether the likeliest token is all there is to know."""
        return self.greedy and self.direct
