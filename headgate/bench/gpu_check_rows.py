"""`headgate bench gpu`, choosing tokens of steps on rows: how long it takes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from headgate.bench.gpu_check_speed import Work
from headgate.engine.kernels.checks.inputs import Draw
from headgate.engine.kernels.checks.rows import filled_rows
from headgate.engine.kernels.device_rows import BIASED, RowState
from headgate.engine.kernels.interface import Kernels
from headgate.engine.kernels.reference_rows import ReferenceRows


def choosing_work(
    draw: Draw,
    batches: tuple[int, ...],
    vocab_size: int = 151_936,
    settings: tuple[str, ...] = ("greedy", "temperature", "top_k, top_p", "top_p"),
) -> Iterator[Work]:
    """Choosing tokens, which reads the logits at least once."""
    for name in settings:
        for batch in batches:
            state = filled_rows(draw, batch, vocab_size, (name,))
            state.numbers[:, BIASED] = 0
            order = torch.arange(batch, device=draw.device)
            logits, keys = draw(batch, vocab_size, scale=3.0), ReferenceRows().begin(state, order).keys

            call = partial(_choose, logits, state, order, keys)
            yield Work(f"choosing by {name}, {batch} tokens", call, logits.nbytes)


def _choose(logits: Tensor, state: RowState, order: Tensor, keys: Tensor, kernels: Kernels) -> object:
    rows = kernels.rows()
    assert rows is not None
    return rows.choose(logits, state, order, keys)
