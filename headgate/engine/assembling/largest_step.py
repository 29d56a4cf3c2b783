"""The step that takes the most memory: tried before what is left is divided."""

from __future__ import annotations

import torch

from headgate.engine.kernels.interface import AttentionBatch
from headgate.engine.kv.store import KVStore
from headgate.engine.models.adapters.decoder import AdaptedDecoder
from headgate.engine.models.language_model import LanguageModel
from headgate.engine.scheduling.limits import Limits


def largest_step(decoder: LanguageModel, limits: Limits, block_size: int, kept: torch.dtype) -> torch.Tensor:
    """Compute a prompt that fills a step, and the logits of as many rows as may run, with a cache of its own.

    `kept` is the cache's dtype. Returns the logits; what tokens the prompt has does not matter.
    """
    device = decoder.device
    tokens = min(limits.max_step_tokens, decoder.spec.context_length)
    blocks = -(-tokens // block_size)
    store = KVStore(decoder.spec, blocks, block_size, kept, device)
    places = torch.arange(tokens, device=device)
    batch = AttentionBatch([tokens], [tokens], [range(blocks)], places, block_size)
    rows = range(tokens)[-limits.max_running :]
    if isinstance(decoder, AdaptedDecoder) and decoder.tuning is not None:
        decoder.rows.place([1], [tokens], rows)
        decoder = decoder.tuned
    with torch.inference_mode():
        return decoder.forward(torch.zeros_like(places), places, batch, store.layers, places[-limits.max_running :])
