"""What a step finds of its sequences: tokens that follow, scores of given ones, what the model makes of a prompt."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from headgate.engine.request import PromptState, TokenLogprob, TokenScore
from headgate.engine.sequence import Sequence


@dataclass(slots=True)
class Sampled:
    """The tokens that follow a sequence's known ones, one per step, or the proposed ones that hold and one more; none
    where nothing could be chosen.

    Never changed; not frozen, as for `Delta`.
    """

    sequence: Sequence
    tokens: Seq[int]
    logprobs: Seq[TokenLogprob] = ()
    """Theirs, where they were asked for."""
    lost: str | None = None
    """Why its grammar cannot be followed any further, if there are none for that; else its logits were not finite."""

    @property
    def broken(self) -> bool:
        """Whether nothing could be chosen."""
        return not self.tokens


@dataclass(frozen=True, slots=True)
class Scored:
    """Scores of the next tokens of a sequence's given continuation. `broken`: its logits were not finite."""

    sequence: Sequence
    scores: tuple[TokenScore, ...]
    broken: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Probed:
    """What a model makes of a prompt. `broken`: it was not finite."""

    sequence: Sequence
    state: PromptState
    broken: bool = False


Found = Sampled | Scored | Probed
