"""What changes logits before a token is drawn: bias and penalties, for just the rows and tokens concerned."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headgate.engine.sampling.params import SamplingParams
from headgate.engine.sampling.upload import upload


@dataclass(slots=True)
class TokenHistory:
    """Which tokens a sequence has seen, kept up to date by looking at new output only."""

    seen: set[int] | None = None
    """Tokens of prompt and output; made when a repetition penalty first asks."""
    counts: dict[int, int] = field(default_factory=dict)
    """How often each token was generated."""
    counted: int = 0
    """How much of the output `counts` covers."""

    def advance(self, output: Sequence[int]) -> None:
        """Take in what `output` has gained since the last call."""
        for token in output[self.counted :]:
            self.counts[token] = self.counts.get(token, 0) + 1
        self.counted = len(output)

    def tokens_with(self, prompt: Sequence[int]) -> set[int]:
        """Distinct tokens of `prompt` and of the output taken in so far."""
        if self.seen is None:
            self.seen = set(prompt)
        self.seen.update(self.counts)
        return self.seen


@dataclass(slots=True)
class SamplingRow:
    """One sequence's sampling state as the step sees it.

    A row may be made anew for each step, or kept and moved on with `position`: a kept row counts the tokens that
    penalties look at only once. `output` may only grow while a row is kept.

    Attributes:
        params: the request's settings.
        prompt: prompt tokens.
        output: tokens generated so far.
        choice: index of the choice within the request (n > 1).
        position: absolute position of the token to be drawn, len(prompt) + len(output).
        noise: a per-sequence random 64-bit integer, the seed when `params.seed` is None.
        forbidden: bool [vocabulary], on the CPU: tokens that a grammar rules out; None rules out none.
    """

    params: SamplingParams
    prompt: Sequence[int]
    output: Sequence[int]
    choice: int
    position: int
    noise: int
    forbidden: Tensor | None = None
    history: TokenHistory = field(default_factory=TokenHistory, repr=False, compare=False)
    _biases: tuple[NDArray[np.int64], NDArray[np.float64]] | None = field(default=None, repr=False, compare=False)

    def biases(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Tokens with a bias, each once, and what is added to their logits: [n] each. Worked out once."""
        if self._biases is None:
            addends = self.params.biases
            size = len(addends)
            self._biases = np.fromiter(addends, np.int64, size), np.fromiter(addends.values(), np.float64, size)
        return self._biases


class _Entries:
    """(row, token, value) triples to be applied to a logits matrix at once."""

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._lengths: list[int] = []
        self._tokens: list[NDArray[np.int64]] = []
        self._values: list[NDArray[np.float64]] = []

    def add(self, row: int, tokens: Collection[int], values: Iterable[float] | float) -> None:
        length = len(tokens)
        told = np.full(length, values) if isinstance(values, float) else np.fromiter(values, np.float64, length)
        self.put(row, np.fromiter(tokens, np.int64, length), told)

    def put(self, row: int, tokens: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        self._rows.append(row)
        self._lengths.append(len(tokens))
        self._tokens.append(tokens)
        self._values.append(values)

    def upload(self, device: torch.device) -> tuple[tuple[Tensor, Tensor], Tensor] | None:
        """Index pair (int64 [n] rows, int64 [n] tokens) and float32 [n] values; None when there is no entry."""
        if not sum(self._lengths):
            return None
        rows = upload(np.repeat(self._rows, self._lengths), torch.int64, device)
        tokens = upload(np.concatenate(self._tokens), torch.int64, device)
        return (rows, tokens), upload(np.concatenate(self._values), torch.float32, device)


def process(logits: Tensor, rows: Sequence[SamplingRow]) -> None:
    """Apply logit bias, then repetition, then presence and frequency penalties, then grammars, in place.

    Repetition penalty (Keskar et al. 2019, as in transformers): a logit of a token in prompt or output is divided by
    the penalty if positive and multiplied if negative. Presence and frequency (OpenAI): a token generated c > 0 times
    loses presence + c * frequency.

    Args:
        logits: float32 [rows, vocabulary].
        rows: as many, in the same order. Token ids must be inside the vocabulary.
    """
    bias, repetition, occurrence = _Entries(), _Entries(), _Entries()
    for index, row in enumerate(rows):
        params, history = row.params, row.history
        if params.logit_bias:
            bias.put(index, *row.biases())
        presence, frequency = params.presence_penalty, params.frequency_penalty
        penalised = presence != 0.0 or frequency != 0.0
        if penalised or params.repetition_penalty != 1.0:
            history.advance(row.output)
        if params.repetition_penalty != 1.0:
            tokens = history.tokens_with(row.prompt)
            repetition.add(index, tokens, float(params.repetition))
        if penalised:
            losses = (-(presence + frequency * count) for count in history.counts.values())
            occurrence.add(index, history.counts.keys(), losses)
    if entries := bias.upload(logits.device):
        where, change = entries
        logits.index_put_(where, logits[where] + change)
    if entries := repetition.upload(logits.device):
        where, penalty = entries
        before = logits[where]
        logits.index_put_(where, torch.where(before < 0, before * penalty, before / penalty))
    if entries := occurrence.upload(logits.device):
        where, change = entries
        logits.index_put_(where, logits[where] + change)
    for index, row in enumerate(rows):
        if row.forbidden is not None:
            logits[index].masked_fill_(row.forbidden.to(logits.device, non_blocking=True), -torch.inf)
