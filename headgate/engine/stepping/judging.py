"""What a model thinks of text that it is given: scores of a continuation's tokens, and what it makes of a prompt."""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Sequence as Seq
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from headgate.engine.kv.store import KVStore
from headgate.engine.models.language_model import LanguageModel
from headgate.engine.request import LIKELIEST, TokenScore
from headgate.engine.sampling.logprobs import measure, read
from headgate.engine.scheduling.chunk import Chunk
from headgate.engine.sequence import Sequence
from headgate.engine.stepping.found import Probed, Scored
from headgate.engine.stepping.inputs import tensor

_SCORE_ROWS = 32
"""Rows whose logits are there at a time where tokens are scored: enough to keep the output layer's product efficient,
few enough to stay small beside a vocabulary of 150,000."""


class Judging:
    """Of one model."""

    def __init__(self, decoder: LanguageModel, store: KVStore) -> None:
        """`store`: its keys and values."""
        self._decoder = decoder
        self._store = store
        self.seconds = 0.0
        """In its output layer."""

    def probe(self, logits: Tensor, sequences: Seq[Sequence]) -> list[Probed]:
        """What the store holds of each prompt, and `logits` [sequences, vocabulary] say of its next token."""
        kernels = self._decoder.kernels
        tables, counts = [s.table.blocks for s in sequences], [s.prompt_length for s in sequences]
        outlines = kernels.outline(self._store.outlined, tables, counts, self._store.block_size)
        states = torch.cat([outlines, kernels.forecast(logits, LIKELIEST)], dim=-1).cpu().numpy()
        finite = np.isfinite(states).all(-1).tolist()
        # Copies, so that one state does not keep all of a step's alive.
        rows = zip(sequences, states, finite, strict=True)
        return [Probed(sequence, state.copy(), not sound) for sequence, state, sound in rows]

    def score(self, hidden: Tensor, chunks: Seq[Chunk]) -> list[Scored]:
        """Scores of the chunks' given tokens from `hidden` [rows, hidden], one row per token, chunk after chunk."""
        wanted = [
            chunk.sequence.request.score[p - chunk.sequence.prompt_length + 1] for chunk in chunks for p in chunk.scored
        ]
        tops = {chunk.sequence: chunk.sequence.request.sampling.logprobs or 0 for chunk in chunks}
        most, parts = max(tops.values()), list[Tensor]()
        for start in range(0, len(wanted), _SCORE_ROWS):
            started = time.perf_counter()
            logits = self._decoder.logits(hidden[start : start + _SCORE_ROWS])
            self.seconds += time.perf_counter() - started
            tokens = tensor(array("q", wanted[start : start + _SCORE_ROWS]), self._decoder.device)
            logprobs = measure(logits, tokens, most)
            parts.append(torch.cat([(logits.max(-1).indices == tokens).unsqueeze(-1), logprobs], dim=-1))
        rows = iter(zip(wanted, torch.cat(parts).tolist(), strict=True))
        scored: list[Scored] = []
        for chunk in chunks:
            top = tops[chunk.sequence]
            scores = tuple(_token_score(token, row, top) for token, row in islice(rows, len(chunk.scored)))
            scored.append(Scored(chunk.sequence, scores, any(math.isnan(s.logprob) for s in scores)))
        return scored


def _token_score(token: int, row: Seq[float], top: int) -> TokenScore:
    """One row: whether the token is the likeliest, then what `measure` says."""
    told = read(token, row[1:], top)
    return TokenScore(token, told.logprob, bool(row[0]), told.top)
