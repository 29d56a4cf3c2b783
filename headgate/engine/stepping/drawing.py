"""From logits to the tokens of sequences: what grammars and settings allow, and which proposed tokens hold."""

from __future__ import annotations

import math
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import islice

from torch import Tensor

from headgate.engine.kv.store import KVStore
from headgate.engine.request import TokenLogprob
from headgate.engine.sampling.grammar import GrammarError
from headgate.engine.sampling.sampler import NonFiniteLogits, Sampler, SamplingRow
from headgate.engine.scheduling.chunk import Chunk
from headgate.engine.sequence import Sequence
from headgate.engine.speculation.verifier import holding
from headgate.engine.stepping.found import Sampled
from headgate.engine.stepping.inputs import StepInputs

_Row = tuple[Sequence, int]
"""As in `StepInputs.sampling`."""


@dataclass(slots=True)
class _Drawn:
    """What a row of logits gave; -1 for nothing."""

    token: int
    logprob: TokenLogprob | None = None
    lost: str | None = None


class Drawing:
    """Of one model."""

    def __init__(self, sampler: Sampler, store: KVStore) -> None:
        """`store`: what keys and values are wiped from that broke the logits of proposed tokens."""
        self._sampler = sampler
        self._store = store

    def draw(self, logits: Tensor, inputs: StepInputs, chunks: Seq[Chunk]) -> list[Sampled]:
        """What holds of the tokens that follow the chunks' known and proposed ones; `logits` [sampling, vocabulary]."""
        if inputs.plain:
            return plain(inputs, self._sampler.likeliest(logits))
        rows = inputs.sampling
        for number, (sequence, ahead) in enumerate(rows):
            if sequence.restrained and not ahead:
                # Nobody else reads these logits: they can be written to.
                logits[number, list(sequence.request.sampling.begin_suppress_tokens)] = -math.inf
        drawn = iter(self._draw(logits, rows))
        return [self._settle(chunk, list(islice(drawn, 1 + len(chunk.drafted)))) for chunk in chunks if chunk.samples]

    def _settle(self, chunk: Chunk, drawn: Seq[_Drawn]) -> Sampled:
        sequence = chunk.sequence
        tokens = [one.token for one in drawn]
        count = holding(tokens, chunk.drafted, sequence.ends)
        if chunk.drafted:
            # What broke them would stay where it is if no token came in its place any more.
            broken = [len(sequence.tokens) - 1 + number for number, token in enumerate(tokens) if token < 0]
            self._store.clear_tokens(sequence.table.blocks, sequence.table.pages, broken)
        logprobs = [one.logprob for one in drawn[:count] if one.logprob is not None]
        return Sampled(sequence, tokens[:count], logprobs, drawn[0].lost)

    def _draw(self, logits: Tensor, rows: Seq[_Row]) -> list[_Drawn]:
        if all(sequence.plain for sequence, _ in rows):
            return [_Drawn(token) for token in self._sampler.likeliest(logits)]
        lost = _lost(rows)
        if not lost and all(sequence.request.sampling.plain for sequence, _ in rows):
            for row, (sequence, _) in zip(logits, rows, strict=True):
                if sequence.guide is not None:
                    row.masked_fill_(sequence.guide.forbidden().to(logits.device), -math.inf)
            return [_Drawn(token) for token in self._sampler.likeliest(logits)]
        failed = {number: _Drawn(-1, None, error) for number, error in lost.items()}
        if not failed:
            try:
                drawn = self._sampler.sample(logits, [_sampling_row(*row) for row in rows])
                return [_Drawn(token, told) for token, told in zip(drawn.token_ids, drawn.logprobs, strict=True)]
            except NonFiniteLogits as error:
                failed = dict.fromkeys(error.rows, _Drawn(-1))
        sound = [number for number in range(len(rows)) if number not in failed]
        others = iter(self._draw(logits[sound], [rows[number] for number in sound]))
        return [failed[number] if number in failed else next(others) for number in range(len(rows))]


def plain(inputs: StepInputs, chosen: Seq[int]) -> list[Sampled]:
    """The likeliest tokens, -1 for none, of sequences that get one each."""
    return [Sampled(s, (t,) if t >= 0 else ()) for (s, _), t in zip(inputs.sampling, chosen, strict=True)]


def _lost(rows: Seq[_Row]) -> dict[int, str]:
    """Rows of sequences whose grammars cannot be followed any further, and why. Waits for what may follow in others."""
    lost = {}
    for number, (sequence, _) in enumerate(rows):
        if sequence.guide is not None:
            try:
                sequence.guide.forbidden()
            except GrammarError as error:
                lost[number] = str(error)
    return lost


def _sampling_row(sequence: Sequence, ahead: int) -> SamplingRow:
    """The sequence's row, kept from step to step so that penalties count each token once; one of its own for a token
    behind proposed ones, which has no penalties.
    """
    params = sequence.request.sampling
    if ahead:
        position = len(sequence.tokens) + ahead
        return SamplingRow(params, sequence.request.prompt, (), sequence.choice, position, sequence.noise)
    row = sequence.row
    if row is None:
        row = SamplingRow(params, sequence.request.prompt, (), sequence.choice, 0, sequence.noise)
        sequence.row = row
    row.position = len(sequence.tokens)
    if params.changes_logits:
        row.output = sequence.output
    if sequence.guide is not None:
        row.forbidden = sequence.guide.forbidden()
    return row
