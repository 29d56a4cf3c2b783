"""What happens to queries, keys and values between their projection and attention, in one launch."""

from __future__ import annotations

import math

import triton
import triton.language as tl
from torch import Tensor

from headgate.engine.kernels.interface import HeadNorms, KVLayer
from headgate.engine.kernels.triton.launch import begin, overlapping, wait

_TOGETHER = 8
"""Heads of a program at most. They are small: a program for each would be as much to launch as to do."""


@triton.jit
def _halves(row: tl.tensor, pair: tl.tensor, inside: tl.tensor, half: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    first = tl.load(row + pair, mask=inside, other=0.0).to(tl.float32)
    return first, tl.load(row + half + pair, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _normed(
    first: tl.tensor,
    second: tl.tensor,
    weight: tl.tensor,
    eps: tl.tensor,
    pair: tl.tensor,
    inside: tl.tensor,
    half: tl.tensor,
) -> tuple[tl.tensor, tl.tensor]:
    squares = tl.sum(first * first, axis=1, keep_dims=True) + tl.sum(second * second, axis=1, keep_dims=True)
    factor = 1.0 / tl.sqrt(squares / (2 * half) + eps)
    first_weight, second_weight = _halves(weight, pair, inside, half)
    return first * factor * first_weight, second * factor * second_weight


@triton.jit
def _turned(
    first: tl.tensor, second: tl.tensor, cos: tl.tensor, sin: tl.tensor, pair: tl.tensor, inside: tl.tensor
) -> tuple[tl.tensor, tl.tensor]:
    c, s = tl.load(cos + pair, mask=inside, other=0.0), tl.load(sin + pair, mask=inside, other=0.0)
    return first * c - second * s, second * c + first * s


@triton.jit
def _store(
    row: tl.tensor,
    scales: tl.tensor,
    place: tl.tensor,
    first: tl.tensor,
    second: tl.tensor,
    pair: tl.tensor,
    inside: tl.tensor,
    half: tl.tensor,
) -> None:
    """To `row`, rounded to int8 or fp8 where there are `scales`, whose `place` gets those of these heads."""
    kind: tl.constexpr = row.dtype.element_ty
    if scales is not None:
        most = tl.max(tl.maximum(tl.abs(first), tl.abs(second)), axis=1, keep_dims=True)
        # A maximum passes over NaN. An infinite scale lets it be seen: what is read back is 0 * inf.
        unsound = tl.where((first == first) & (second == second), 0, 1)
        sound = tl.sum(unsound, axis=1, keep_dims=True) == 0
        largest: tl.constexpr = 127.0 if kind == tl.int8 else 448.0
        step = tl.where(sound, tl.where(most == 0.0, 1.0, most / largest), float("inf"))
        tl.store(scales + place, step)
        first, second = tl.where(sound, first / step, 0.0), tl.where(sound, second / step, 0.0)
        if kind == tl.int8:
            # Adding 1.5 * 2^23 leaves no bit for a fraction: the sum rounds to the nearest integer, ties to even.
            first, second = (first + 12582912.0) - 12582912.0, (second + 12582912.0) - 12582912.0
    tl.store(row + pair, first.to(kind), mask=inside)
    tl.store(row + half + pair, second.to(kind), mask=inside)


@triton.jit
def _place(
    q: tl.tensor,
    k: tl.tensor,
    v: tl.tensor,
    q_weight: tl.tensor,
    k_weight: tl.tensor,
    eps: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    out: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    key_scales: tl.tensor,
    value_scales: tl.tensor,
    slots: tl.tensor,
    q_stride: tl.tensor,
    k_stride: tl.tensor,
    v_stride: tl.tensor,
    heads: tl.tensor,
    kv_heads: tl.tensor,
    half: tl.tensor,
    together: tl.constexpr,
    block: tl.constexpr,
    pdl: tl.constexpr,
) -> None:
    """A program per token and `together` heads of queries, of keys or of values: it holds each as two halves.

    The rotation pairs element i with i + half, so that neither half needs the other's threads. What counts is that
    heads are read and written once, and that one launch does what five did.
    """
    begin(pdl)
    wait(pdl)
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * together
    pair = tl.arange(0, block)[None, :]
    inside = pair < half
    number = tl.arange(0, together)[:, None]
    cos += token * half
    sin += token * half
    if head < heads:
        mine = head + number
        first, second = _halves(q + token * q_stride + mine * 2 * half, pair, inside, half)
        if q_weight is not None:
            first, second = _normed(first, second, q_weight, eps, pair, inside, half)
        first, second = _turned(first, second, cos, sin, pair, inside)
        _store(out + (token * heads + mine) * 2 * half, None, 0, first, second, pair, inside, half)
    else:
        mine = (head - heads) % kv_heads + number
        place = tl.load(slots + token) * kv_heads + mine
        if head < heads + kv_heads:
            first, second = _halves(k + token * k_stride + mine * 2 * half, pair, inside, half)
            if k_weight is not None:
                first, second = _normed(first, second, k_weight, eps, pair, inside, half)
            first, second = _turned(first, second, cos, sin, pair, inside)
            _store(keys + place * 2 * half, key_scales, place, first, second, pair, inside, half)
        else:
            first, second = _halves(v + token * v_stride + mine * 2 * half, pair, inside, half)
            _store(values + place * 2 * half, value_scales, place, first, second, pair, inside, half)


def rotate_and_write(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    norms: HeadNorms | None,
    cos: Tensor,
    sin: Tensor,
    layer: KVLayer,
    slots: Tensor,
) -> Tensor:
    """See Kernels. The heads of a token lie side by side in q, k and v, which may be parts of one projection."""
    tokens, heads, head_dim = q.shape
    kv_heads, half = k.shape[1], head_dim // 2
    out = q.new_empty(q.shape)
    if tokens:
        # The largest power of two that divides both.
        together = math.gcd(heads, kv_heads, _TOGETHER)
        query, key, eps = (norms.query, norms.key, norms.eps) if norms is not None else (None, None, 0.0)
        _place[(tokens, (heads + 2 * kv_heads) // together)](
            q, k, v, query, key, eps, cos, sin, out, layer.keys, layer.values, layer.key_scales, layer.value_scales,
            slots, q.stride(0), k.stride(0), v.stride(0), heads, kv_heads, half, together,
            triton.next_power_of_2(half), num_warps=2 if together > 2 else 1, **overlapping(),
        )  # fmt: skip
    return out
