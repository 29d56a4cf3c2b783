"""One forward step of one model on one device: from chunks to sampled tokens and scores of given ones."""

from __future__ import annotations

import logging
import math
import time
from array import array
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from headgate.engine.ahead import AheadDecoder, Decoded
from headgate.engine.chunk import Chunk
from headgate.engine.inputs import Interrupt, StepInputs, decode_batch, step_pages, step_states, tensor
from headgate.engine.kernels.interface import AttentionBatch, KVLayer
from headgate.engine.kv.records import BlockRecords, block_records
from headgate.engine.kv.store import KVStore
from headgate.engine.models.adapted import AdaptedDecoder, Tuning
from headgate.engine.models.language_model import LanguageModel
from headgate.engine.prompt_steps import PromptSteps
from headgate.engine.rehearsal import rehearse
from headgate.engine.request import LIKELIEST, PromptState, TokenLogprob, TokenScore
from headgate.engine.sampling.forms import GuidedForms
from headgate.engine.sampling.grammar import GrammarError, Guide
from headgate.engine.sampling.logprobs import measure, read
from headgate.engine.sampling.sampler import NonFiniteLogits, Sampler, SamplingRow
from headgate.engine.seeing import Seeing
from headgate.engine.sequence import Sequence
from headgate.engine.speculation.verifier import holding

logger = logging.getLogger(__name__)

_SCORE_ROWS = 32
"""Rows whose logits are there at a time where tokens are scored: enough to keep the output layer's product efficient,
few enough to stay small beside a vocabulary of 150,000."""


_Row = tuple[Sequence, int]
"""As in `StepInputs.sampling`."""


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


@dataclass(slots=True)
class _Drawn:
    """What a row of logits gave; -1 for nothing."""

    token: int
    logprob: TokenLogprob | None = None
    lost: str | None = None


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


class Runner:
    """Builds the step's inputs, runs the decoder, samples."""

    def __init__(
        self,
        decoder: LanguageModel,
        store: KVStore,
        block_size: int,
        decoding: AheadDecoder | None = None,
        prompts: PromptSteps | None = None,
    ) -> None:
        """`decoding`: for steps of one token per sequence, where they can be begun before the last one was read.

        `prompts`: for others, where they are recorded.
        """
        self._decoder = decoder
        self._adapted = decoder if isinstance(decoder, AdaptedDecoder) else None
        self._store = store
        self._block_size = block_size
        self._ahead, self._prompts = decoding, prompts
        self._rehearsed = False
        self.seeing = None if decoder.eyes is None else Seeing(decoder.eyes)
        """What was seen of pictures, where it sees any."""
        self._sampler = Sampler(decoder.spec.vocab_size, decoder.device, decoder.kernels)
        # Kept: to make one lets another thread into the interpreter, and this one waits until it is out again.
        self._nothing = torch.empty(0, dtype=torch.int64)
        self._forward_seconds = 0.0

    @property
    def forward_seconds(self) -> float:
        """Seconds in the decoder, its output layer and what it sees with so far.

        On an accelerator: until their work was queued, or, a step ahead, until what they gave was there.
        """
        ahead = 0.0 if self._ahead is None else self._ahead.seconds
        return self._forward_seconds + ahead + (0.0 if self.seeing is None else self.seeing.seconds)

    @property
    def kv_bytes(self) -> int:
        """Bytes that keys and values take."""
        return self._store.nbytes

    @property
    def adapted(self) -> AdaptedDecoder | None:
        """Its decoder, where that takes adapters for rows."""
        return self._adapted

    def tune(self, tuning: Tuning | None) -> None:
        """Have rows other adapters from the next step on."""
        assert self._adapted is not None, "only such a decoder has given them"
        self._adapted.tune(tuning)
        if self._ahead is not None:
            self._ahead.tune()

    def records(self) -> BlockRecords:
        """What copies blocks of keys and values to other memory and back."""
        return block_records(self._store, self._decoder.device)

    def release(self) -> None:
        """Give up keys, values and what was recorded. Nothing can be run after that."""
        self._store.release()
        if self._ahead is not None:
            self._ahead.release()
        if self._prompts is not None:
            self._prompts.release()

    def ahead(self, chunks: Seq[Chunk]) -> int:
        """Of the steps in a row that `run` begins of these, how many it leaves for the next run to read."""
        return 0 if self._ahead is None else self._ahead.left(len(chunks))

    def repeats(self, chunks: Seq[Chunk]) -> bool:
        """Whether `run` computes several steps in a row of these."""
        if self._ahead is not None:
            return self._ahead.takes(chunks)
        # Prompts are the last ones.
        return self._decoder.decodes and all(
            c.count == 1 and c.sequence.direct and c.samples and not c.sequence.restrained for c in reversed(chunks)
        )

    @property
    def unrecorded(self) -> int:
        """Steps that are still to be recorded; may be asked from another thread."""
        return sum(steps.unrecorded for steps in (self._ahead, self._prompts) if steps is not None)

    def prepare(self, *, idle: bool) -> bool:
        """Do a piece of work that makes later steps faster; False if there is none to be done now."""
        if not self.unrecorded:
            return False
        if not self._rehearsed and idle:
            self._rehearsed = True
            try:
                rehearse(self._decoder, self._store, self._sampler)
            except Exception:
                logger.exception("a step that nobody asked for failed; so may those of the first requests")
            return True
        return any(steps.record_one(idle=idle) for steps in (self._ahead, self._prompts) if steps is not None)

    def run(self, chunks: Seq[Chunk], most: int, interrupt: Interrupt, *, repeats: bool) -> list[Found]:
        """Compute the chunks, sample for those that end at their sequence's last known token, probe or score others.

        `repeats`: what that said of them. Where it holds, up to `most` steps follow each other, of which `ahead` are
        left to be read; all sequences get equally many tokens. See `LanguageModel.decode` for what ends them early.

        Call it in torch's inference mode.
        """
        self._store.use(chunk.sequence.table.blocks[-1] for chunk in chunks)
        if repeats and self._ahead is not None:
            found = self._ahead.run(chunks, most, interrupt)
            return [_sampled(chunk.sequence, decoded) for chunk, decoded in zip(chunks, found, strict=True)]
        if repeats:
            return self._decode(chunks, most, interrupt)
        decoder, tuning = self._decoder, None if self._adapted is None else self._adapted.tuning
        if tuning is not None and any(chunk.sequence.adapter for chunk in chunks):
            decoder = tuning.decoder
            # Rows of one adapter beside each other need not be gathered.
            chunks = sorted(chunks, key=lambda chunk: (chunk.count > 1, chunk.sequence.adapter))
        given = None if self.seeing is None else self.seeing.given(chunks)
        inputs = StepInputs.of(chunks, self._block_size, placed=not decoder.decodes or given is not None)
        if tuning is not None and decoder is tuning.decoder:
            tuning.rows.place([chunk.sequence.adapter for chunk in chunks], inputs.counts, inputs.rows)
        for sequence, _ in inputs.sampling:
            if sequence.guide is not None:
                sequence.guide.begin(sequence.tokens)
        sampling, told = len(inputs.sampling), len(inputs.sampling) + len(inputs.probing)
        recorded = self._prompts if decoder is self._decoder and given is None else None
        started = time.perf_counter()
        hidden = None if recorded is None else recorded.hidden(inputs)
        if hidden is None:
            step = self._step(decoder, inputs, chunks)
            started = time.perf_counter()
            if given is not None:
                hidden = decoder.hidden(*step, given)
        if hidden is None and sampling and inputs.plain and not inputs.probing and not inputs.scoring:
            # Most steps, of which a small model's takes hardly longer than what surrounds it.
            chosen = decoder.likeliest(*step)
            self._forward_seconds += time.perf_counter() - started
            return [*_plain(inputs, chosen)]
        if hidden is None and told and not inputs.scoring:
            logits = decoder.forward(*step)
        else:
            hidden = decoder.hidden(*step) if hidden is None else hidden
            logits = decoder.logits(hidden[:told]) if told else hidden
        self._forward_seconds += time.perf_counter() - started
        return [
            *(self._sample(logits[:sampling], inputs, chunks) if sampling else ()),
            *(self._probe(logits[sampling:], inputs.probing) if inputs.probing else ()),
            *(() if hidden is None else self._score(hidden[told:], inputs.scoring)),
        ]

    def _step(
        self, decoder: LanguageModel, inputs: StepInputs, chunks: Seq[Chunk]
    ) -> tuple[Tensor, Tensor, AttentionBatch, Seq[KVLayer], Tensor]:
        """What the decoder takes of the inputs."""
        # A step with pictures in it goes operator by operator, which reads where tokens are.
        device, placed = decoder.device, bool(inputs.positions)
        tokens, rows = tensor(inputs.tokens, device), tensor(inputs.rows, device)
        positions = slots = self._nothing
        if placed:
            positions, slots = tensor(inputs.positions, device), tensor(inputs.slots, device)
        states = step_states(chunks, self._store.states)
        size = self._block_size
        pages = step_pages(chunks, size, device, placed=placed) if self._store.paged else None
        batch = AttentionBatch(inputs.counts, inputs.contexts, inputs.tables, slots, size, states, pages)
        return tokens, positions, batch, self._store.layers, rows

    def discard(self, blocks: Seq[int], pages: Seq[int]) -> None:
        """Wipe what may hold what is broken; a device that cannot fails its next step, and says so there."""
        try:
            self._store.clear(blocks, pages)
        except Exception:
            # After an illegal access all that CUDA is asked fails. Who must end because of a step still ends.
            logger.exception("%d blocks of a step that failed cannot be wiped", len(blocks))

    def _decode(self, chunks: Seq[Chunk], most: int, interrupt: Interrupt) -> list[Found]:
        guides: dict[int, tuple[Guide, bool]] = {}
        for row, chunk in enumerate(chunks):
            guide = chunk.sequence.guide
            if guide is not None:
                guide.follow(chunk.sequence.tokens)
                guides[row] = guide, chunk.sequence.request.sampling.greedy
        forms = GuidedForms(guides, len(chunks), self._decoder.spec.vocab_size) if guides else None
        decoding = decode_batch(chunks, self._block_size, forms, paged=self._store.paged)
        found, seconds = self._decoder.decode(decoding, self._store.layers, most, interrupt.flag)
        self._forward_seconds += seconds
        sampled = [Sampled(c.sequence, t if t[-1] >= 0 else ()) for c, t in zip(chunks, found, strict=True)]
        if forms is not None:
            forms.end()
            for row, error in forms.errors.items():
                sampled[row].lost = error
        return [*sampled]

    def _sample(self, logits: Tensor, inputs: StepInputs, chunks: Seq[Chunk]) -> list[Sampled]:
        """What holds of the tokens that follow the chunks' known and proposed ones; `logits` [sampling, vocabulary]."""
        if inputs.plain:
            return _plain(inputs, self._sampler.likeliest(logits))
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

    def _probe(self, logits: Tensor, sequences: Seq[Sequence]) -> list[Probed]:
        """What the store holds of each prompt, and `logits` [sequences, vocabulary] say of its next token."""
        kernels = self._decoder.kernels
        tables, counts = [s.table.blocks for s in sequences], [s.prompt_length for s in sequences]
        outlines = kernels.outline(self._store.outlined, tables, counts, self._block_size)
        states = torch.cat([outlines, kernels.forecast(logits, LIKELIEST)], dim=-1).cpu().numpy()
        finite = np.isfinite(states).all(-1).tolist()
        # Copies, so that one state does not keep all of a step's alive.
        rows = zip(sequences, states, finite, strict=True)
        return [Probed(sequence, state.copy(), not sound) for sequence, state, sound in rows]

    def _score(self, hidden: Tensor, chunks: Seq[Chunk]) -> list[Scored]:
        """Scores of the chunks' given tokens from `hidden` [rows, hidden], one row per token, chunk after chunk."""
        if not chunks:
            return []
        wanted = [
            chunk.sequence.request.score[p - chunk.sequence.prompt_length + 1] for chunk in chunks for p in chunk.scored
        ]
        tops = {chunk.sequence: chunk.sequence.request.sampling.logprobs or 0 for chunk in chunks}
        most, parts = max(tops.values()), list[Tensor]()
        for start in range(0, len(wanted), _SCORE_ROWS):
            started = time.perf_counter()
            logits = self._decoder.logits(hidden[start : start + _SCORE_ROWS])
            self._forward_seconds += time.perf_counter() - started
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


def _sampled(sequence: Sequence, decoded: Decoded) -> Sampled:
    if decoded.tokens[-1] < 0:
        return Sampled(sequence, ())
    if sequence.request.sampling.logprobs is None:
        return Sampled(sequence, decoded.tokens)
    told = [TokenLogprob(*one) for one in zip(decoded.tokens, decoded.logprobs, strict=True)]
    return Sampled(sequence, decoded.tokens, told)


def _plain(inputs: StepInputs, chosen: Seq[int]) -> list[Sampled]:
    """The likeliest tokens, -1 for none, of sequences that get one each."""
    return [Sampled(s, (t,) if t >= 0 else ()) for (s, _), t in zip(inputs.sampling, chosen, strict=True)]


def _token_score(token: int, row: Seq[float], top: int) -> TokenScore:
    """One row of `Runner._score`: whether the token is the likeliest, then what `measure` says."""
    told = read(token, row[1:], top)
    return TokenScore(token, told.logprob, bool(row[0]), told.top)


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
