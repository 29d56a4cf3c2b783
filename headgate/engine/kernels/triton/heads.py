"""What happens to queries, keys and values between their projection and attention, in one launch."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from headgate.engine.kernels.interface import HeadNorms, KVLayer


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
    factor = 1.0 / tl.sqrt((tl.sum(first * first, axis=0) + tl.sum(second * second, axis=0)) / (2 * half) + eps)
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
    """To `row`, rounded to int8 or fp8 where there are scales, whose `place` gets this head's."""
    if scales is not None:
        most = tl.maximum(tl.max(tl.abs(first), axis=0), tl.max(tl.abs(second), axis=0))
        # A maximum passes over NaN. An infinite scale lets it be seen: what is read back is 0 * inf.
        sound = tl.sum(tl.where((first == first) & (second == second), 0, 1), axis=0) == 0
        largest: tl.constexpr = 127.0 if row.dtype.element_ty == tl.int8 else 448.0
        step = tl.where(sound, tl.where(most == 0.0, 1.0, most / largest), float("inf"))
        tl.store(scales + place, step)
        first, second = tl.where(sound, first / step, 0.0), tl.where(sound, second / step, 0.0)
        if row.dtype.element_ty == tl.int8:
            # Adding 1.5 * 2^23 leaves no bit for a fraction: the sum rounds to the nearest integer, ties to even.
            first, second = (first + 12582912.0) - 12582912.0, (second + 12582912.0) - 12582912.0
    tl.store(row + pair, first.to(row.dtype.element_ty), mask=inside)
    tl.store(row + half + pair, second.to(row.dtype.element_ty), mask=inside)


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
    block: tl.constexpr,
) -> None:
    """A program of one warp per token and head, the queries' heads first: it holds a head as two halves.

    The rotation pairs element i with i + half, so that neither half needs the other's threads. Heads are small; what
    counts is that they are read and written once, and that one launch does what five did.
    """
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    pair = tl.arange(0, block)
    inside = pair < half
    cos += token * half
    sin += token * half
    if head < heads:
        first, second = _halves(q + token * q_stride + head * 2 * half, pair, inside, half)
        if q_weight is not None:
            first, second = _normed(first, second, q_weight, eps, pair, inside, half)
        first, second = _turned(first, second, cos, sin, pair, inside)
        _store(out + (token * heads + head) * 2 * half, None, 0, first, second, pair, inside, half)
    else:
        number = (head - heads) % kv_heads
        place = tl.load(slots + token) * kv_heads + number
        if head < heads + kv_heads:
            first, second = _halves(k + token * k_stride + number * 2 * half, pair, inside, half)
            if k_weight is not None:
                first, second = _normed(first, second, k_weight, eps, pair, inside, half)
            first, second = _turned(first, second, cos, sin, pair, inside)
            _store(keys + place * 2 * half, key_scales, place, first, second, pair, inside, half)
        else:
            first, second = _halves(v + token * v_stride + number * 2 * half, pair, inside, half)
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
        _place[(tokens, heads + 2 * kv_heads)](
            q,
            k,
            v,
            norms.query if norms is not None else None,
            norms.key if norms is not None else None,
            norms.eps if norms is not None else 0.0,
            cos,
            sin,
            out,
            layer.keys,
            layer.values,
            layer.key_scales,
            layer.value_scales,
            slots,
            q.stride(0),
            k.stride(0),
            v.stride(0),
            heads,
            kv_heads,
            half,
            triton.next_power_of_2(half),
            num_warps=1,
        )
    return out
