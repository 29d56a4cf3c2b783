"""A step that nobody asked for, before somebody does: what its launches take is compiled and set up by then."""

from __future__ import annotations

import torch

from headgate.engine.kernels.interface import AttentionBatch
from headgate.engine.kv.store import KVStore
from headgate.engine.models.language_model import LanguageModel
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.sampling.sampler import Sampler, SamplingRow

_STEPS: tuple[tuple[tuple[int, int], ...], ...] = (
    ((300, 300), (17, 400), (1, 300)),
    ((5, 5), (1, 9)),
    ((1, 1),),
)
"""Tokens and contexts of sequences: prompts in long and short tiles, keys that are split and not, one row and some."""


def rehearse(decoder: LanguageModel, store: KVStore, sampler: Sampler) -> None:
    """Run steps with prompts, and sample, on what the store's last block has room for."""
    device, spare, size = decoder.device, store.blocks - 1, store.block_size
    for sequences in _STEPS:
        counts, contexts = [count for count, _ in sequences], [context for _, context in sequences]
        nothing = torch.zeros(sum(counts), dtype=torch.int64, device=device)
        # Many keys for few places: what is there in the end is nobody's.
        tables = [[spare] * -(-context // size) for context in contexts]
        batch = AttentionBatch(counts, contexts, tables, nothing + spare * size, size)
        last = torch.tensor(counts, device=device).cumsum(0) - 1
        logits = decoder.forward(nothing, nothing, batch, store.layers, last)
        sampler.likeliest(logits)
        drawn = SamplingParams(top_k=20, top_p=0.9)
        sampler.sample(logits, [SamplingRow(drawn, (), (), 0, 0, 0) for _ in sequences])
