"""Which tokens may be drawn: the top_k, top_p and min_p sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from headgate.engine.sampling.upload import upload


def largest(values: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The `width` largest entries of each row, largest first, equal ones by ascending index.

    `torch.topk` leaves the order of equal values open, so which of them is kept could change with device or batch.
    Here it runs on unique int64 keys: the value's bits, ordered like the value, above the negated index.

    Args:
        values: float32 [rows, n]. In a row with a NaN the result is unspecified.
        width: how many; a full row is sorted instead.

    Returns:
        float32 and int64, both [rows, min(width, n)].
    """
    n = values.shape[-1]
    if width >= n:
        ordered, index = torch.sort(values, dim=-1, descending=True, stable=True)
        return ordered, index
    bits = (values + 0.0).view(torch.int32)  # + 0.0 makes a zero of -0.0, which equals it but has other bits
    keys = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(torch.int64)
    keys <<= 32
    keys -= torch.arange(n, device=values.device)
    index = keys.topk(width, dim=-1).indices
    return values.gather(-1, index), index


def scaled(logits: Tensor, temperature: Tensor) -> Tensor:
    """(logits - row maximum) / temperature: float32 [rows, vocabulary], at most 0, so that no exponential overflows.

    A row with a NaN or +inf, or with -inf only, becomes all NaN, which no later stage can overlook.
    """
    wide = logits.to(torch.float32)
    return (wide - wide.amax(-1, keepdim=True)).div_(temperature)


@dataclass(frozen=True, slots=True)
class Candidates:
    """The likeliest tokens of each row.

    Attributes:
        scores: float32 [rows, width], scaled logits, -inf where truncation dropped the token.
        token_ids: int64 [rows, width].
        complete: bool [rows]; False if the row's true set may reach beyond `width`.
    """

    scores: Tensor
    token_ids: Tensor
    complete: Tensor


def truncate(scores: Tensor, top_k: Tensor | None, top_p: Tensor, width: int) -> Candidates:
    """The top_k set, and within it (renormalised) the smallest set of likeliest tokens whose mass is >= top_p.

    Masses are float64: the set must not change with the order in which a device adds.

    Args:
        scores: float32 [rows, vocabulary] from `scaled`.
        top_k: int64 [rows, 1], 1 to `width`, or None for no limit on the count.
        top_p: float64 [rows, 1]; 1 or more keeps all.
        width: how many of the likeliest tokens to look at.
    """
    values, token_ids = largest(scores, width)
    weights = values.double().exp_()
    if top_k is None:
        keep = torch.ones_like(values, dtype=torch.bool)
        mass = scores.exp().sum(-1, keepdim=True, dtype=torch.float64)
        cumulative = weights.cumsum(-1)
    else:
        keep = torch.arange(values.shape[-1], device=values.device) < top_k
        cumulative = weights.masked_fill_(~keep, 0.0).cumsum(-1)
        mass = cumulative[:, -1:]
    # The token that crosses the limit is kept: what counts is the mass before it.
    limit = torch.where(top_p < 1.0, top_p * mass, torch.inf)
    keep &= functional.pad(cumulative[:, :-1], (1, 0)) < limit
    complete = torch.ones_like(limit, dtype=torch.bool) if top_k is not None else cumulative[:, -1:] >= limit
    return Candidates(values.masked_fill(~keep, -torch.inf), token_ids, complete[:, 0])


def drop_unlikely(scores: Tensor, min_p: Sequence[float]) -> Tensor:
    """Drop tokens below `min_p` times the likeliest one's probability: -inf in `scores`, in place.

    The likeliest token's score is 0, so the comparison needs no normalisation.
    """
    if any(min_p):
        share = upload(min_p, torch.float32, scores.device).log_().unsqueeze(-1)
        scores.masked_fill_(scores < share, -torch.inf)
    return scores
