"""One forward step of one model on one device: from chunks to sampled tokens."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from headgate.engine.kernels.interface import AttentionBatch
from headgate.engine.kv.store import KVStore
from headgate.engine.models.decoder import Decoder
from headgate.engine.request import TokenLogprob
from headgate.engine.sampling.processors import changes_logits
from headgate.engine.sampling.sampler import NonFiniteLogits, Sampler, SamplingRow
from headgate.engine.scheduler import Chunk
from headgate.engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Sampled:
    """The token that follows a sequence's known ones; None where its logits were not finite."""

    sequence: Sequence
    token: int | None
    logprob: TokenLogprob | None


class Runner:
    """Builds the step's inputs, runs the decoder, samples."""

    def __init__(self, decoder: Decoder, store: KVStore, block_size: int) -> None:
        self._decoder = decoder
        self._store = store
        self._block_size = block_size
        self._sampler = Sampler(decoder.spec.vocab_size, decoder.device)

    def run(self, chunks: Seq[Chunk]) -> list[Sampled]:
        """Compute the chunks and sample for those that end at their sequence's last known token."""
        tokens: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        rows: list[int] = []
        sampling: list[Sequence] = []
        size = self._block_size
        for chunk in chunks:
            sequence, blocks = chunk.sequence, chunk.sequence.table.blocks
            span = range(chunk.start, chunk.start + chunk.count)
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
            logits = self._decoder.forward(
                self._tensor(tokens), self._tensor(positions), batch, self._store.layers, self._tensor(rows)
            )
            return self._sample(logits, sampling)

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
