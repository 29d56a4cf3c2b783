"""Log-probabilities of emitted tokens, from the model's own distribution."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headgate.engine.request import TokenLogprob
from headgate.engine.sampling.truncation import largest


def measure(logits: Tensor, token_ids: Tensor, top: int) -> Tensor:
    """Natural-log probabilities of drawn tokens and of the `top` likeliest, packed for one transfer.

    Args:
        logits: [rows, vocabulary], any float type, before any processing.
        token_ids: int64 [rows], the drawn tokens.
        top: how many of the likeliest tokens, at most the vocabulary.

    Returns:
        float64 [rows, 1 + 2 * top]: the drawn token's, then `top` token ids, then their log-probabilities.
    """
    wide = logits.to(torch.float32)
    normaliser = wide.logsumexp(-1, keepdim=True)
    parts = [wide.gather(-1, token_ids.unsqueeze(-1)) - normaliser]
    if top:
        values, ids = largest(wide, top)
        parts += [ids, values - normaliser]
    return torch.cat([part.double() for part in parts], dim=-1)


def read(token_id: int, packed: Sequence[float], top: int) -> TokenLogprob:
    """One row of `measure` as a value, with the `top` likeliest of those it holds."""
    held = len(packed) // 2
    top = min(top, held)
    likeliest = zip(packed[1 : 1 + top], packed[1 + held : 1 + held + top], strict=True)
    return TokenLogprob(token_id, packed[0], tuple((int(token), logprob) for token, logprob in likeliest))
