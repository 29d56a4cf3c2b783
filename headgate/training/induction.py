"""A start that copies: previous-token heads and induction heads, written into fresh weights.

Most tasks copy from the prompt: after a token that occurred before, repeat what followed it there. Transformers learn
it with two heads in sequence (Olsson et al. 2022, "In-context Learning and Induction Heads"): one in an early layer
notes at each position which token came before, one in a later layer looks for positions whose note is the current
token and copies what stands there. Here a second pair does the same one token further back: behind a space or a comma,
which occur everywhere, the token before them says where to go on. Found by gradient descent from random weights, that
takes many millions of tokens; written in, it is there from the first step and training refines it. Starting from
structure found in trained models is mimetic initialization (Trockman and Kolter 2023, "Mimetic Initialization of
Self-Attention Layers").
"""

from __future__ import annotations

import math
from typing import Any

import torch

_SHARP = 2.0
"""Weight of the query and key norms in the two layers; scores grow with its square."""
_NOTE = 0.15
_COPY = 1.5
"""Sizes of what the heads write, beside embeddings of standard deviation 0.02."""
_QUIET = 0.1
"""Factor on what all other heads write at first, so that they do not drown it."""


@torch.no_grad()
def copying_values(model: Any) -> None:
    """Makes each head's output projection the transpose of its value projection, in place.

    Their product is then positive semidefinite: what a head attends to raises the logit of that very token, from the
    first step on.
    """
    config = model.config
    heads, kv_heads, size = config.num_attention_heads, config.num_key_value_heads, config.head_dim
    for layer in model.model.layers:
        values = layer.self_attn.v_proj.weight.view(kv_heads, size, config.hidden_size)
        output = layer.self_attn.o_proj.weight.view(config.hidden_size, heads, size)
        for head in range(heads):
            output[:, head] = values[head // (heads // kv_heads)].T


@torch.no_grad()
def induction_heads(model: Any) -> None:
    """Writes the two kinds of heads into the first two layers of a fresh Qwen3-shaped model, in place.

    The random parts come from torch's global generator. Raises `ValueError` for fewer than two layers or a hidden size
    below four times the head size, which has no room for them.
    """
    config = model.config
    size, hidden = config.head_dim, config.hidden_size
    if config.num_hidden_layers < 2 or hidden < 4 * size:
        raise ValueError(
            f"induction heads need 2 layers and a hidden size of 4 heads; the model has {config.num_hidden_layers} "
            f"layers and hidden size {hidden} with heads of {size}"
        )
    # Orthonormal directions: one that all tokens share, `match` that tell tokens apart, two notes of that size, and the
    # rest for what is copied.
    match = size // 2
    basis = torch.linalg.qr(torch.randn(hidden, hidden)).Q.T
    common, key, notes, rest = basis[0], basis[1 : 1 + match], basis[1 + match : 1 + 3 * match], basis[1 + 3 * match :]
    embeddings = model.model.embed_tokens.weight
    # Where the notes go, embeddings are empty.
    for direction in (common[None], notes):
        embeddings -= embeddings @ direction.T @ direction
    embeddings += embeddings.std() * math.sqrt(hidden) * common
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight *= _QUIET
    first, second = (layer.self_attn for layer in model.model.layers[:2])
    _note_previous(config, first, common, key, notes)
    _find_and_copy(config, second, key, notes, rest)


def _note_previous(config: Any, attention: Any, common: torch.Tensor, key: torch.Tensor, notes: torch.Tensor) -> None:
    """The first group of heads attends to the token before and, its second head, to the one before that.

    Query and key are constant vectors, read from the direction that all tokens share. Rotary embedding turns pair i of
    a key at distance d by d * f_i against the query, so a query turned by f_i already scores highest at distance 1.
    """
    size, half, match = config.head_dim, config.head_dim // 2, len(key)
    pairs = max(2, half // 4)
    frequencies = config.rope_parameters["rope_theta"] ** (-torch.arange(half) / half)
    attention.q_norm.weight.fill_(_SHARP)
    attention.k_norm.weight.fill_(_SHARP)
    queries = attention.q_proj.weight.view(-1, size, config.hidden_size)
    outputs = attention.o_proj.weight.view(config.hidden_size, -1, size)
    attention.k_proj.weight[:size] = torch.outer(_turned(frequencies, pairs, 0), common)
    values = attention.v_proj.weight[:size]
    values[:match], values[match:] = key, 0
    for head in range(min(2, config.num_attention_heads // config.num_key_value_heads)):
        queries[head] = torch.outer(_turned(frequencies, pairs, head + 1), common)
        outputs[:, head] = 0
        outputs[:, head, :match] = _NOTE * notes[head * match : (head + 1) * match].T


def _turned(frequencies: torch.Tensor, pairs: int, distance: int) -> torch.Tensor:
    """A vector of head size whose first `pairs` pairs are unit vectors turned back by `distance` positions."""
    angles = -distance * frequencies
    kept = (torch.arange(len(frequencies)) < pairs).float()
    return torch.cat((angles.cos() * kept, angles.sin() * kept))


def _find_and_copy(config: Any, attention: Any, key: torch.Tensor, notes: torch.Tensor, rest: torch.Tensor) -> None:
    """The first group of heads attends to where the note is the current token, and copies what stands there.

    The second group attends to where the note of the token before the last is the last token. Query and key lie in the
    pairs of low frequency, which rotary embedding hardly turns within a short text.
    """
    size, half, match = config.head_dim, config.head_dim // 2, len(key)
    group = config.num_attention_heads // config.num_key_value_heads
    slow = torch.cat((torch.arange(half - match // 2, half), torch.arange(size - match // 2, size)))
    attention.q_norm.weight.fill_(_SHARP)
    attention.k_norm.weight.fill_(_SHARP)
    queries = attention.q_proj.weight.view(-1, size, config.hidden_size)
    keys = attention.k_proj.weight.view(-1, size, config.hidden_size)
    values = attention.v_proj.weight.view(-1, size, config.hidden_size)
    outputs = attention.o_proj.weight.view(config.hidden_size, -1, size)
    previous, before_it = notes[:match], notes[match:]
    pairs = ((key, previous), (previous, before_it))[: min(config.num_key_value_heads, len(rest) // size)]
    for kv_head, (wanted, noted) in enumerate(pairs):
        copied = rest[kv_head * size : (kv_head + 1) * size]
        keys[kv_head] = 0
        keys[kv_head, slow] = noted
        values[kv_head] = copied
        for head in range(kv_head * group, (kv_head + 1) * group):
            queries[head] = 0
            queries[head, slow] = wanted
            outputs[:, head] = _COPY / group * copied.T
