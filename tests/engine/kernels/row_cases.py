"""Rows of sequences that decode, as the device holds them, for tests of what steps make of them."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

from headgate.engine.kernels.device_rows import BIASED, NUMBERS, POSITION, PROMPTED, STREAM, TOKEN, TOP_K, RowState

BLOCK_SIZE = 4
choices = st.tuples(
    st.sampled_from([0.0, 0.0, 0.3, 1.0, 2.5]),
    st.sampled_from([1.0, 1.0, 0.9, 0.4, 1e-6]),
    st.sampled_from([0.0, 0.0, 0.1, 0.9]),
    st.sampled_from([1.0, 1.0, 1.3, 0.8]),
    st.sampled_from([0.0, 0.0, 0.7, -1.1]),
    st.sampled_from([0.0, 0.0, 0.4, -0.6]),
)
"""As in `RowState.choices`."""
top_ks = st.sampled_from([0, 0, 1, 2, 7, 40, 100_000])


def rows_of(wanted: list[tuple[tuple[float, ...], int]], vocab_size: int, seed: int) -> RowState:
    """A row for each (choices, top_k), with counts, biases, blocks and positions drawn by `seed`."""
    draw = torch.Generator().manual_seed(seed)

    def integers(low: int, high: int, *shape: int) -> torch.Tensor:
        return torch.randint(low, high, shape, generator=draw)

    rows, blocks = len(wanted), 80
    state = RowState.empty(rows, blocks, vocab_size, BLOCK_SIZE, rows * blocks, torch.device("cpu"))
    state.choices[:rows] = torch.tensor([each for each, _ in wanted], dtype=torch.float64)
    assert state.numbers.shape[1] == NUMBERS
    state.numbers[:rows, TOKEN] = integers(0, vocab_size, rows)
    state.numbers[:rows, POSITION] = integers(0, blocks * BLOCK_SIZE, rows)
    state.numbers[:rows, STREAM] = integers(-(2**62), 2**62, rows) * 2 + 1
    state.numbers[:rows, TOP_K] = torch.tensor([k for _, k in wanted])
    state.tables[:rows] = torch.randperm(rows * blocks, generator=draw).view(rows, blocks).int()
    likely = integers(0, 20, rows, vocab_size)
    state.counts[:rows] = (likely * (likely < 4) + PROMPTED * (likely % 5 == 1)).int()
    for row in range(rows):
        biased = min(int(integers(0, 9, 1)), vocab_size)
        state.numbers[row, BIASED] = biased
        state.bias_tokens[row, :biased] = torch.randperm(vocab_size, generator=draw)[:biased].int()
        state.bias_values[row, :biased] = torch.randn(biased, generator=draw) * 3
    return state
