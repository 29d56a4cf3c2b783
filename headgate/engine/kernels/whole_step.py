"""A decoder's step in one call, and several in a row: what kernels take that leave nothing between operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from headgate.engine.kernels.interface import AttentionBatch, KVLayer

FREE, HELD, AGAIN, LOST = range(4)
"""How the next token of a sequence with a form is chosen: freely, and the form is asked about it afterwards; from its
allowed tokens; once more, now from these, because the first choice was not one of them; not at all."""


class Forms(Protocol):
    """What sequences of a batch are held to, for steps that follow each other in one call.

    Attributes:
        of: int64 [sequences], the number of each one's form, -1 for one that has none.
        allowed: int32 [forms, words], a bit per token from the lowest on; those beyond the last bit are forbidden.
        told: int64 [forms, 3]: the token that was chosen; how one is chosen; whether the likeliest was refused. Kernels
            write the first and the last, forms the second.
    """

    of: Tensor
    allowed: Tensor
    told: Tensor

    def prepare(self) -> None:
        """A step was begun: say how its tokens are chosen. Kernels call it while they compute the logits."""
        ...

    def settle(self) -> None:
        """The step's tokens are chosen, some of them freely: say which must be chosen AGAIN."""
        ...


@dataclass(frozen=True, slots=True)
class DecodeBatch:
    """Sequences that each lack one token, and how their next ones are chosen.

    Attributes:
        rows: int64, seven numbers per sequence: the token that is known and not computed, its position, where the
            sequence's blocks begin in `tables`, where the tokens that end it begin in `ends` and how many they are, the
            `stream_key` of its draws, top_k (0 is all).
        choices: float64, three per sequence: temperature (0 is greedy), top_p, min_p.
        tables: int32, the blocks of one sequence after the other. Where layers are `paged`, as many pages follow.
        ends: int64.
        block_size: slots per block.
        context: tokens of the longest sequence.
        forms: of the sequences that are held to one.
    """

    rows: Tensor
    choices: Tensor
    tables: Tensor
    ends: Tensor
    block_size: int
    context: int
    forms: Forms | None = None


class WholeStep(Protocol):
    """A decoder's step in one call, for one thread at a time."""

    def __call__(
        self,
        tokens: Tensor,
        positions: Tensor,
        batch: AttentionBatch,
        cache: Sequence[KVLayer],
        angles: Sequence[tuple[Tensor, Tensor]],
        rows: Tensor,
        *,
        logits: bool,
    ) -> Tensor:
        """What `LanguageModel.forward` returns, or without `logits` what `LanguageModel.hidden` does.

        `angles`: of each rotation of the specification cos and sin by position, fp32 [positions, head_dim / 2]. Where
        `positions` and the batch's slots are both empty, they are those that follow from the rest of it.
        """
        ...

    def choose(
        self,
        tokens: Tensor,
        positions: Tensor,
        batch: AttentionBatch,
        cache: Sequence[KVLayer],
        angles: Sequence[tuple[Tensor, Tensor]],
        rows: Tensor,
    ) -> list[int]:
        """What `LanguageModel.likeliest` returns; the rest as above."""
        ...

    def decode(
        self,
        batch: DecodeBatch,
        cache: Sequence[KVLayer],
        angles: Sequence[tuple[Tensor, Tensor]],
        most: int,
        interrupt: Tensor,
    ) -> tuple[list[list[int]], float]:
        """What `LanguageModel.decode` returns; `angles` as above."""
        ...
