"""One forward step of one model on one device: from chunks to sampled tokens and scores of given ones."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from headgate.engine.device_steps.ahead import AheadDecoder, Decoded
from headgate.engine.device_steps.prompt_steps import PromptSteps
from headgate.engine.device_steps.rehearsal import rehearse
from headgate.engine.kernels.interface import AttentionBatch, KVLayer
from headgate.engine.kv.records import BlockRecords, block_records
from headgate.engine.kv.store import KVStore
from headgate.engine.models.adapters.decoder import AdaptedDecoder, Tuning
from headgate.engine.models.language_model import LanguageModel
from headgate.engine.request import TokenLogprob
from headgate.engine.sampling.forms import GuidedForms
from headgate.engine.sampling.grammar import Guide
from headgate.engine.sampling.sampler import Sampler
from headgate.engine.scheduling.chunk import Chunk
from headgate.engine.sequence import Sequence
from headgate.engine.stepping.drawing import Drawing, plain
from headgate.engine.stepping.found import Found, Sampled
from headgate.engine.stepping.inputs import Interrupt, StepInputs, decode_batch, step_pages, step_states, tensor
from headgate.engine.stepping.judging import Judging
from headgate.engine.stepping.seeing import Seeing

logger = logging.getLogger(__name__)

_Step = tuple[Tensor, Tensor, AttentionBatch, Seq[KVLayer], Tensor]
"""What a decoder takes."""


class Runner:
    """Builds the step's inputs, runs the decoder, samples."""

    def __init__(
        self,
        decoder: LanguageModel,
        store: KVStore,
        decoding: AheadDecoder | None = None,
        prompts: PromptSteps | None = None,
    ) -> None:
        """`decoding`: for steps of one token per sequence, where they can be begun before the last one was read.

        `prompts`: for others, where they are recorded.
        """
        self._decoder = decoder
        self._adapted = decoder if isinstance(decoder, AdaptedDecoder) else None
        self._store = store
        self._ahead, self._prompts = decoding, prompts
        self._rehearsed = False
        self.seeing = None if decoder.eyes is None else Seeing(decoder.eyes)
        """What was seen of pictures, where it sees any."""
        self._sampler = Sampler(decoder.spec.vocab_size, decoder.device, decoder.kernels)
        self._drawing, self._judging = Drawing(self._sampler, store), Judging(decoder, store)
        # Kept: to make one lets another thread into the interpreter, and this one waits until it is out again.
        self._nothing = torch.empty(0, dtype=torch.int64)
        self._forward_seconds = 0.0

    @property
    def forward_seconds(self) -> float:
        """Seconds in the decoder, its output layer and what it sees with so far.

        On an accelerator: until their work was queued, or, a step ahead, until what they gave was there.
        """
        others = (self._judging, self._ahead, self.seeing)
        return self._forward_seconds + sum(each.seconds for each in others if each is not None)

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
        if not repeats:
            return self._compute(chunks)
        if self._ahead is None:
            return self._decode(chunks, most, interrupt)
        found = self._ahead.run(chunks, most, interrupt)
        return [_sampled(chunk.sequence, decoded) for chunk, decoded in zip(chunks, found, strict=True)]

    def _compute(self, chunks: Seq[Chunk]) -> list[Found]:
        """One step of any chunks."""
        tuning = self._tuning(chunks)
        decoder = self._decoder if tuning is None else tuning.decoder
        if tuning is not None:
            # Rows of one adapter beside each other need not be gathered.
            chunks = sorted(chunks, key=lambda chunk: (chunk.count > 1, chunk.sequence.adapter))
        given = None if self.seeing is None else self.seeing.given(chunks)
        inputs = StepInputs.of(chunks, self._store.block_size, placed=not decoder.decodes or given is not None)
        if tuning is not None:
            tuning.rows.place([chunk.sequence.adapter for chunk in chunks], inputs.counts, inputs.rows)
        for sequence, _ in inputs.sampling:
            if sequence.guide is not None:
                sequence.guide.begin(sequence.tokens)
        sampling, told = len(inputs.sampling), len(inputs.sampling) + len(inputs.probing)
        recorded = self._prompts if tuning is None and given is None else None
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
            return [*plain(inputs, chosen)]
        if hidden is None and told and not inputs.scoring:
            logits = decoder.forward(*step)
        else:
            hidden = decoder.hidden(*step) if hidden is None else hidden
            logits = decoder.logits(hidden[:told]) if told else hidden
        self._forward_seconds += time.perf_counter() - started
        return [
            *(self._drawing.draw(logits[:sampling], inputs, chunks) if sampling else ()),
            *(self._judging.probe(logits[sampling:], inputs.probing) if inputs.probing else ()),
            *(self._judging.score(hidden[told:], inputs.scoring) if inputs.scoring and hidden is not None else ()),
        ]

    def _tuning(self, chunks: Seq[Chunk]) -> Tuning | None:
        """What some of these have adapters by; None where none has one."""
        tuning = None if self._adapted is None else self._adapted.tuning
        return tuning if tuning is not None and any(chunk.sequence.adapter for chunk in chunks) else None

    def _step(self, decoder: LanguageModel, inputs: StepInputs, chunks: Seq[Chunk]) -> _Step:
        """What the decoder takes of the inputs."""
        # A step with pictures in it goes operator by operator, which reads where tokens are.
        device, size, placed = decoder.device, self._store.block_size, bool(inputs.positions)
        tokens, rows = tensor(inputs.tokens, device), tensor(inputs.rows, device)
        positions = slots = self._nothing
        if placed:
            positions, slots = tensor(inputs.positions, device), tensor(inputs.slots, device)
        states = step_states(chunks, self._store.states)
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
        decoding = decode_batch(chunks, self._store.block_size, forms, paged=self._store.paged)
        found, seconds = self._decoder.decode(decoding, self._store.layers, most, interrupt.flag)
        self._forward_seconds += seconds
        sampled = [Sampled(c.sequence, t if t[-1] >= 0 else ()) for c, t in zip(chunks, found, strict=True)]
        if forms is not None:
            forms.end()
            for row, error in forms.errors.items():
                sampled[row].lost = error
        return [*sampled]


def _sampled(sequence: Sequence, decoded: Decoded) -> Sampled:
    if decoded.tokens[-1] < 0:
        return Sampled(sequence, ())
    if sequence.request.sampling.logprobs is None:
        return Sampled(sequence, decoded.tokens)
    told = [TokenLogprob(*one) for one in zip(decoded.tokens, decoded.logprobs, strict=True)]
    return Sampled(sequence, decoded.tokens, told)
