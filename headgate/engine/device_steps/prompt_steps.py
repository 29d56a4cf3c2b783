"""Steps with prompts in them, recorded: up to some hundred tokens the host takes longer to launch them than the device.

A recording has room for so many tokens of so many sequences, and a step that has fewer is filled up. It is used once it
has given, for steps that are made up, what these give kernel by kernel.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from headgate.engine.device_steps.graphs import DEMAND, Recorder
from headgate.engine.device_steps.made_up import blocks_taken, made_up
from headgate.engine.kernels.interface import AttentionBatch
from headgate.engine.kernels.standing import StandingStep, StepBound
from headgate.engine.kv.store import KVStore
from headgate.engine.models.decoder import Decoder
from headgate.engine.models.language_model import LanguageModel
from headgate.engine.stepping.inputs import StepInputs, tensor

logger = logging.getLogger(__name__)

_TOKENS = 16, 32, 64, 128, 256, 512
"""Of the recordings. Beyond the last the device takes longer than the host."""
_FEW = 8
"""Sequences of those recordings that share the keys of each out among many programs."""
_FAR = 8192
"""Tokens that a sequence may have in the others, where one program reads all of them."""
_TABLE_BLOCKS = 1 << 17
"""Most blocks that the sequences of a recorded step have together."""
_PART = 8
"""Blocks of the cache for each one that recordings are tried on, at least."""


@dataclass(slots=True, eq=False)
class _Size:
    bound: StepBound
    least: int
    """Tokens of the smallest step that comes here."""
    tried: bool = False
    misses: int = 0
    ready: tuple[StandingStep, Callable[[], None]] | None = None


def recorded_sizes(decoder: LanguageModel, blocks: int, block_size: int, most_tokens: int) -> list[int]:
    """Tokens of the steps that can be recorded of a model, in steps of up to `most_tokens`; none of most models.

    `blocks`: of the cache, beside which those of `spare_blocks` should be few.
    """
    if not isinstance(decoder, Decoder) or not decoder.steps_on_device:
        return []
    if decoder.kernels.standing_step(StepBound(1, 1, 1, 1, block_size, 0), decoder.device) is None:
        return []
    most = min(most_tokens, _TOKENS[-1])
    sizes = [*(tokens for tokens in _TOKENS if tokens < most), most]
    return [tokens for tokens in sizes if blocks >= _PART * blocks_taken(tokens, block_size)]


def spare_blocks(sizes: Sequence[int], block_size: int) -> int:
    """What the store needs behind the sequences' blocks, beside its last one, for such recordings to be tried on."""
    return blocks_taken(sizes[-1], block_size) if sizes else 0


class PromptSteps:
    """The recordings of one model. One thread at a time."""

    def __init__(
        self,
        decoder: Decoder,
        store: KVStore,
        sizes: Sequence[int],
        *,
        most: int,
        longest: int,
        record: Recorder,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """For up to `most` sequences of up to `longest` tokens.

        `sizes` are those of `recorded_sizes`, and the last blocks of `store` their `spare_blocks` and the one that
        filling goes to.
        """
        self._decoder, self._store, self._longest = decoder, store, longest
        self._recorder, self._clock = record, clock
        size, spare = store.block_size, store.blocks - 1
        self._blocks = range(spare - spare_blocks(sizes, size), spare)

        def bound(tokens: int, sequences: int) -> StepBound:
            blocks = -(-(longest if sequences <= _FEW else min(longest, _FAR)) // size)
            return StepBound(tokens, sequences, blocks, min(sequences * blocks, _TABLE_BLOCKS), size, spare)

        self._sizes = [
            _Size(bound(tokens, many), least)
            for tokens, least in zip(sizes, [1, *(each + 1 for each in sizes)], strict=False)
            for many in sorted({min(_FEW, tokens, most), min(tokens, most)})
        ]
        rows = max((each.bound.sequences for each in self._sizes), default=0)
        self._out = torch.empty(rows, decoder.spec.hidden, dtype=decoder.dtype, device=decoder.device)

    @property
    def unrecorded(self) -> int:
        """How many are to be recorded; may be asked from another thread."""
        return sum(not size.tried for size in self._sizes)

    def release(self) -> None:
        """Give all of them up."""
        self._sizes.clear()

    def hidden(self, inputs: StepInputs) -> Tensor | None:
        """What `LanguageModel.hidden` gives of a step, there until the next one; None where no recording has room."""
        tokens, sequences = len(inputs.tokens), max(len(inputs.counts), len(inputs.rows))
        for size in self._sizes:
            if tokens <= size.bound.tokens and sequences <= size.bound.sequences:
                break
        else:
            return None
        if size.ready is None:
            size.misses += 1
            return None
        step, launch = size.ready
        if not step.place(inputs):
            return None
        launch()
        return self._out[: len(inputs.rows)]

    def record_one(self, *, idle: bool) -> bool:
        """Record one; False if there is none left, or, unless `idle`, none that is much wanted. See `Buckets`."""
        left = [size for size in self._sizes if not size.tried and (idle or size.misses >= DEMAND)]
        if not left:
            return False
        size = max(left, key=lambda each: (each.misses, -each.bound.tokens, -each.bound.sequences))
        size.tried = True
        bound = size.bound
        name = f"a step with prompts, of up to {bound.tokens} tokens of {bound.sequences} sequences,"
        try:
            self._record(size, name)
        except Exception:
            logger.exception("%s cannot be recorded; it stays slower", name)
        return True

    def _record(self, size: _Size, name: str) -> None:
        """Record it, and have it used unless it fails on other steps than it was recorded with."""
        most, bound = size.bound.tokens, size.bound
        step = self._decoder.kernels.standing_step(bound, self._decoder.device)
        assert step is not None, "there are sizes only where the kernels have such steps"
        self._place(step, most - most // 4, 1)
        compute = partial(self._compute, step)
        launch = self._recorder(compute)
        for tokens, seed in ((max(size.least, min(most, 5)), 2), (most, 3)):
            inputs = self._place(step, tokens, seed)
            rows = len(inputs.rows)
            got, seconds = self._timed(lambda: (launch(), self._out[:rows])[1])  # noqa: B023  it is called at once
            self._out.zero_()
            compute()
            plain = self._out[:rows].float().cpu()
            expected, usual = self._timed(lambda: self._usual(inputs))  # noqa: B023
            eps = torch.finfo(self._decoder.dtype).eps
            # The same launches on the same numbers; and others, which round differently: fp8 layers and the choice of
            # experts make more of that.
            for other, typical, what in (
                (plain, max(4 * eps, 1e-5), "launching it kernel by kernel"),
                (expected, max(32 * eps, 1e-4), "a step of that length"),
            ):
                off = _apart(got, other, typical)
                if off:
                    logger.warning("%s is not recorded: %d tokens come out %s what %s gives", name, tokens, off, what)
                    return
            if tokens < most and seconds > usual:
                with_it, without = seconds * 1e3, usual * 1e3
                logger.info("%s is not recorded: %d take %.1f ms then, else %.1f", name, tokens, with_it, without)
                return
        size.ready = step, launch
        logger.info("recorded %s %d sizes are left", name, self.unrecorded)

    def _place(self, step: StandingStep, tokens: int, seed: int) -> StepInputs:
        """Have it compute what nobody asked for."""
        bound, vocab_size = step.bound, self._decoder.spec.vocab_size
        longest = min(self._longest, bound.blocks * bound.block_size)
        inputs = made_up(tokens, bound.sequences, longest, vocab_size, self._blocks, bound.block_size, seed)
        if not step.place(inputs):
            raise ValueError(f"{tokens} tokens that are made up are beyond a step of {bound.tokens}")
        return inputs

    def _compute(self, step: StandingStep) -> None:
        rows = step.bound.sequences
        self._out[:rows].copy_(self._decoder.standing(step, self._store.layers, self._longest))

    def _usual(self, inputs: StepInputs) -> Tensor:
        """The step kernel by kernel."""
        decoder, store = self._decoder, self._store
        tokens, positions, slots, rows = (
            tensor(each, decoder.device) for each in (inputs.tokens, inputs.positions, inputs.slots, inputs.rows)
        )
        batch = AttentionBatch(inputs.counts, inputs.contexts, inputs.tables, slots, store.block_size)
        return decoder.hidden(tokens, positions, batch, store.layers, rows)

    def _timed(self, call: Callable[[], Tensor]) -> tuple[Tensor, float]:
        """What the second of two calls gives, float32 on the host, and how long it takes: the first sets things up."""
        call().cpu()
        began = self._clock()
        found = call().to("cpu", torch.float32, copy=True)
        return found, self._clock() - began


def _apart(got: Tensor, expected: Tensor, typical: float) -> str:
    """How far off rows are, if that is more than `typical` for half of them or much more for one; else nothing."""
    distance = (got - expected).norm(dim=1) / expected.norm(dim=1)
    half, most = float(distance.median()), float(distance.max())
    # What is no number is no less than anything.
    return (
        "" if half <= typical and most <= min(100 * typical, 0.5) else f"{half:.2g} (median) and {most:.2g} (most) off"
    )
