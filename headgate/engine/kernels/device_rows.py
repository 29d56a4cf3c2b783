"""Steps whose inputs lie on the device: what it holds of the sequences that decode, and what is done with that.

A sequence has a row for as long as it decodes. A step is given the rows it computes, in any order, and reads all else
from them: the token that the step before chose, its position, its blocks, its settings. So nothing of a step depends
on what the host knows, and a step can be captured once and launched again and again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

NUMBERS = 5
TOKEN, POSITION, STREAM, TOP_K, BIASED = range(NUMBERS)
"""Columns of `RowState.numbers`."""
CHOICES = 6
TEMPERATURE, TOP_P, MIN_P, REPETITION, PRESENCE, FREQUENCY = range(CHOICES)
"""Columns of `RowState.choices`."""
BIASES = 64
"""Most tokens of a row whose logits are biased."""
PROMPTED = 1 << 30
"""Added to the count of a token that the prompt has."""


@dataclass(frozen=True, slots=True)
class RowState:
    """A row per sequence, and a last one that fills steps up: it never moves on, and writes to a block of its own.

    Attributes:
        numbers: int64 [rows + 1, 5]: the token that is known and not computed, its position, the `stream_key` of its
            draws, top_k (0 is all), how many tokens have a bias.
        choices: float64 [rows + 1, 6]: temperature (0 is greedy), top_p, min_p, repetition, presence and frequency
            penalty.
        tables: int32 [rows + 1, blocks], the blocks of each sequence.
        counts: int32 [rows + 1, vocabulary], how often each token was generated, and PROMPTED. Kept for rows with
            penalties only.
        bias_tokens: int32 [rows + 1, BIASES], distinct ones at first.
        bias_values: float32, likewise.
        block_size: slots per block.
    """

    numbers: Tensor
    choices: Tensor
    tables: Tensor
    counts: Tensor
    bias_tokens: Tensor
    bias_values: Tensor
    block_size: int

    @classmethod
    def empty(
        cls, rows: int, blocks: int, vocab_size: int, block_size: int, spare_block: int, device: torch.device
    ) -> RowState:
        """For `rows` sequences of up to `blocks` blocks each; the last row's are all `spare_block`."""

        def zeros(width: int, dtype: torch.dtype) -> Tensor:
            return torch.zeros(rows + 1, width, dtype=dtype, device=device)

        tables = zeros(blocks, torch.int32)
        tables[rows] = spare_block
        return cls(
            zeros(NUMBERS, torch.int64),
            zeros(CHOICES, torch.float64),
            tables,
            zeros(vocab_size, torch.int32),
            zeros(BIASES, torch.int32),
            zeros(BIASES, torch.float32),
            block_size,
        )

    @staticmethod
    def nbytes(rows: int, blocks: int, vocab_size: int) -> int:
        """What `empty` takes."""
        return (rows + 1) * (8 * (NUMBERS + CHOICES) + 4 * blocks + 4 * vocab_size + 8 * BIASES)

    @property
    def rows(self) -> int:
        """How many sequences there is room for; the number of the last row."""
        return self.numbers.shape[0] - 1


@dataclass(frozen=True, slots=True)
class DeviceStep:
    """The inputs of a step, one token per row of it.

    Attributes:
        tokens: int64 [n] ids.
        positions: int64 [n].
        slots: int64 [n], where their keys and values go.
        keys: int32 [n, 2], `row_key` of the draw that follows each.
        plan: what `Kernels.paged_attention` takes.
    """

    tokens: Tensor
    positions: Tensor
    slots: Tensor
    keys: Tensor
    plan: Any


class RowKernels(Protocol):
    """What a step on rows does beside the decoder. `order` [n] int64 are the rows it computes, the last one any number
    of times. Nothing waits for the device, and what is launched depends on shapes alone.
    """

    def begin(self, state: RowState, order: Tensor) -> DeviceStep:
        """The inputs of the rows' next step."""
        ...

    def choose(self, logits: Tensor, state: RowState, order: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """As the sampler does it, penalties and bias included, from [n, vocabulary] logits.

        Returns:
            Tokens, int64 [n], -1 for a row that has no distribution; and their log-probabilities by the logits as they
            were given, float32 [n].
        """
        ...

    def advance(self, state: RowState, order: Tensor, chosen: Tensor, logprobs: Tensor, out: Tensor) -> None:
        """Each row but the last goes on by its token, 0 in the place of -1, which is counted where that matters.

        What was chosen goes to `out`, float64 [2, n]: tokens, and their log-probabilities.
        """
        ...


def penalised(choices: Sequence[float]) -> bool:
    """Whether a row with such choices needs its counts."""
    return choices[REPETITION] != 1.0 or choices[PRESENCE] != 0.0 or choices[FREQUENCY] != 0.0
