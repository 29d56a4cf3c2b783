"""What a model thinks of text it was given, instead of writing on."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.engine.request import Finish, PromptState, TokenScore


@dataclass(frozen=True, slots=True)
class Score:
    """What a model thinks of a continuation: one score per token, and the account. Times are in seconds."""

    tokens: tuple[TokenScore, ...]
    finish: Finish

    @property
    def greedy(self) -> bool:
        """Whether plain greedy decoding writes exactly these tokens."""
        return all(token.likeliest for token in self.tokens)

    @property
    def mean(self) -> float:
        """Mean log-probability of a token."""
        return sum(token.logprob for token in self.tokens) / len(self.tokens)


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """What a model makes of a prompt before it answers, and the account. Times are in seconds."""

    state: PromptState
    finish: Finish
