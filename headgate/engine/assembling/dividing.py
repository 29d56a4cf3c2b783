"""Divides the memory for keys and values between the models of a device, so that each can hold equally many tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch

from headgate.engine.assembling.largest_step import largest_step
from headgate.engine.assembling.reading import ReadModel
from headgate.engine.errors import CheckpointError
from headgate.engine.kernels.device_rows import RowState
from headgate.engine.kv.budget import BlockBytes, block_bytes, divided, kv_budget
from headgate.engine.kv.store import kv_dtype, state_bytes
from headgate.engine.settings import EngineSettings


@dataclass(frozen=True, slots=True)
class KVShare:
    """What a model has for keys and values.

    Attributes:
        dtype: what they are kept in.
        blocks: how many.
        pages: how many of those layers that see a window; 0 where all layers keep all blocks.
        states: of sequences, where the model keeps some.
        block_nbytes: of one block.
        all_nbytes: of one block of each model of the device.
    """

    dtype: torch.dtype
    blocks: int
    pages: int
    states: int
    block_nbytes: int
    all_nbytes: int


def divide(
    models: Sequence[ReadModel], settings: EngineSettings, device: torch.device, *, ahead: bool, tiered: bool
) -> list[KVShare]:
    """The models' shares. `ahead`: whether steps are begun ahead. `tiered`: whether blocks may go to tiers.

    Raises:
        CheckpointError: the budget does not hold one block, and one state, of each model.
    """
    kept = [kv_dtype(settings.kv_dtype, model.decoder.dtype) for model in models]
    budget = settings.kv_bytes
    if budget is None:
        steps = (
            partial(largest_step, model.decoder, settings, settings.block_size, dtype)
            for model, dtype in zip(models, kept, strict=True)
        )
        budget = kv_budget(device, steps, _row_bytes(models, settings) if ahead else 0)
    # Pages are for steps that the host lays out, and blocks that go to no tier.
    paged = device.type == "cpu" and not ahead and not tiered
    sizes = [_block_bytes(model, settings, dtype, paged=paged) for model, dtype in zip(models, kept, strict=True)]
    together, state = sum(size.of(1) for size in sizes), sum(state_bytes(model.decoder.spec) for model in models)
    blocks, states = divided(budget, models=sizes, state=state, most_states=2 * settings.max_running)
    if blocks < 1 or (state and not states):
        least = 2 * max(together, state) if state else together
        raise CheckpointError(f"kv_bytes {budget} holds no block{' and state' * bool(state)}; {least} is the least")
    shares = []
    for model, dtype, size in zip(models, kept, sizes, strict=True):
        # More than every running sequence at full length can never be used.
        own = min(blocks, settings.max_running * -(-model.context_length // settings.block_size))
        pages = size.pages if size.pages < own else 0
        shares.append(KVShare(dtype, own, pages, states, size.of(1), together))
    return shares


def _row_bytes(models: Sequence[ReadModel], settings: EngineSettings) -> int:
    """What the rows of all models take beside keys and values."""
    specs = [model.decoder.spec for model in models if model.decoder.steps_on_device]
    rows, size = settings.max_running, settings.block_size
    return sum(RowState.nbytes(rows, -(-spec.context_length // size), spec.vocab_size) for spec in specs)


def _block_bytes(model: ReadModel, settings: EngineSettings, dtype: torch.dtype, *, paged: bool) -> BlockBytes:
    shape = model.decoder.spec
    return block_bytes(
        shape,
        dtype,
        settings,
        settings.block_size,
        context_length=model.context_length,
        apart=paged and not shape.state_shapes,
    )
