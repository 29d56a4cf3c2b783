"""One forward step of one model on one device: from chunks to sampled tokens and scores of given ones."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from headgate.engine.kernels.interface import AttentionBatch
from headgate.engine.kv.store import KVStore
from headgate.engine.models.decoder import Decoder
from headgate.engine.request import TokenLogprob, TokenScore
from headgate.engine.sampling.logprobs import measure
from headgate.engine.sampling.processors import changes_logits
from headgate.engine.sampling.sampler import NonFiniteLogits, Sampler, SamplingRow
from headgate.engine.scheduler import Chunk
from headgate.engine.sequence import Sequence

_SCORE_ROWS = 32
"""Rows whose logits are there at a time where tokens are scored: enough to keep the output layer's product efficient,
few enough to stay small beside a vocabulary of 150,000."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """The token that follows a sequence's known ones; None where its logits were not finite."""

    sequence: Sequence
    token: int | None
    logprob: TokenLogprob | None

    @property
    def broken(self) -> bool:
        """Whether the logits were not finite."""
        return self.token is None


@dataclass(frozen=True, slots=True)
class Scored:
    """Scores of the next tokens of a sequence's given continuation. `broken`: its logits were not finite."""

    sequence: Sequence
    scores: tuple[TokenScore, ...]
    broken: bool = False


class Runner:
    """Builds the step's inputs, runs the decoder, samples."""

    def __init__(self, decoder: Decoder, store: KVStore, block_size: int) -> None:
        self._decoder = decoder
        self._store = store
        self._block_size = block_size
        self._sampler = Sampler(decoder.spec.vocab_size, decoder.device)
        self._forward_seconds = 0.0

    @property
    def forward_seconds(self) -> float:
        """Seconds in the decoder and its output layer so far. On an accelerator: until their work was queued."""
        return self._forward_seconds

    def run(self, chunks: Seq[Chunk]) -> list[Sampled | Scored]:
        """Compute the chunks, sample for those that end at their sequence's last known token, score what is to be."""
        tokens: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        rows: list[int] = []
        sampling: list[Sequence] = []
        score_rows: list[int] = []
        scoring: list[Chunk] = []
        size = self._block_size
        for chunk in chunks:
            sequence, blocks = chunk.sequence, chunk.sequence.table.blocks
            span = range(chunk.start, chunk.start + chunk.count)
            if chunk.scored:
                score_rows.extend(len(tokens) + p - chunk.start for p in chunk.scored)
                scoring.append(chunk)
            tokens.extend(sequence.tokens[span.start : span.stop])
            positions.extend(span)
            slots.extend(blocks[p // size] * size + p % size for p in span)
            if chunk.samples:
                rows.append(len(tokens) - 1)
                sampling.append(sequence)
        batch = AttentionBatch(
            counts=[chunk.count for chunk in chunks],
            contexts=[chunk.start + chunk.count for chunk in chunks],
            tables=[chunk.sequence.table.blocks for chunk in chunks],
            slots=self._tensor(slots),
            block_size=size,
        )
        with torch.inference_mode():
            inputs = self._tensor(tokens), self._tensor(positions)
            wanted = self._tensor(rows + score_rows)
            started = time.perf_counter()
            hidden = self._decoder.hidden(*inputs, batch, self._store.layers, wanted)
            logits = self._decoder.logits(hidden[: len(rows)]) if rows else None
            self._forward_seconds += time.perf_counter() - started
            sampled = self._sample(logits, sampling) if logits is not None else []
            return [*sampled, *self._score(hidden[len(rows) :], scoring)]

    def discard(self, blocks: Seq[int]) -> None:
        """Wipe blocks whose contents may be broken."""
        self._store.clear(blocks)

    def _sample(self, logits: Tensor, sequences: list[Sequence]) -> list[Sampled]:
        try:
            drawn = self._sampler.sample(logits, [_row(s) for s in sequences])
        except NonFiniteLogits as error:
            broken = frozenset(error.rows)
            sound = [i for i in range(len(sequences)) if i not in broken]
            failed = [Sampled(sequences[i], None, None) for i in sorted(broken)]
            return failed + self._sample(logits[sound], [sequences[i] for i in sound])
        return [Sampled(*drawing) for drawing in zip(sequences, drawn.token_ids, drawn.logprobs, strict=True)]

    def _score(self, hidden: Tensor, chunks: Seq[Chunk]) -> list[Scored]:
        """Scores of the chunks' given tokens from `hidden` [rows, hidden], one row per token, chunk after chunk."""
        if not chunks:
            return []
        wanted = [
            chunk.sequence.request.score[p - chunk.sequence.prompt_length + 1] for chunk in chunks for p in chunk.scored
        ]
        parts: list[Tensor] = []
        for start in range(0, len(wanted), _SCORE_ROWS):
            started = time.perf_counter()
            logits = self._decoder.logits(hidden[start : start + _SCORE_ROWS])
            self._forward_seconds += time.perf_counter() - started
            tokens = self._tensor(wanted[start : start + _SCORE_ROWS])
            logprobs = measure(logits, tokens, 0)
            parts.append(torch.cat([logprobs, (logits.max(-1).indices == tokens).unsqueeze(-1)], dim=-1))
        rows = iter(zip(wanted, torch.cat(parts).tolist(), strict=True))
        scored: list[Scored] = []
        for chunk in chunks:
            scores = tuple(TokenScore(token, row[0], bool(row[1])) for token, row in islice(rows, len(chunk.scored)))
            scored.append(Scored(chunk.sequence, scores, any(math.isnan(s.logprob) for s in scores)))
        return scored

    def _tensor(self, values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64).to(self._decoder.device, non_blocking=True)


def _row(sequence: Sequence) -> SamplingRow:
    params = sequence.request.sampling
    # The history is copied only where a penalty looks at it.
    history = changes_logits(params)
    return SamplingRow(
        params=params,
        prompt=sequence.request.prompt if history else (),
        output=sequence.output if history else (),
        choice=sequence.choice,
        position=len(sequence.tokens),
        noise=sequence.noise,
    )
