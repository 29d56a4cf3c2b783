"""Every operation of a set of kernels, in the shapes of a model."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product

import torch
from torch import Tensor

from headgate.engine.kernels.checks.adapters import adapter_checks
from headgate.engine.kernels.checks.inputs import (
    Draw,
    Sizes,
    expanded,
    head_norms,
    in_float64,
    mixture_weights,
    paged,
    projected,
    rounded,
    rounded_layer,
)
from headgate.engine.kernels.checks.line import Line, judged
from headgate.engine.kernels.device_rows import POSITION, RowState
from headgate.engine.kernels.interface import Kernels, KVLayer, Mlp
from headgate.engine.kernels.mixture import ReferenceMixture
from headgate.engine.kernels.reference import ReferenceKernels
from headgate.engine.quant.fp8 import E4M3
from headgate.engine.quant.linear import DenseLinear, WeightFormat

_REFERENCE = ReferenceKernels()
_ROUNDED: tuple[WeightFormat, ...] = "int8", "int4"


def kernel_checks(kernels: Kernels, device: torch.device, dtype: torch.dtype, sizes: Sizes) -> Iterator[Line]:
    """A line per kernel and shape. Inputs are drawn with a fixed seed."""
    draw = Draw(device, dtype)
    with _poisoned():
        for tokens in sizes.tokens:
            yield from _row_checks(kernels, draw, sizes, tokens)
        for name, spans in (("decoding", sizes.decoding), ("prompts", sizes.prompts)):
            yield from _attention_checks(kernels, draw, sizes, name, spans)
        for spans in (sizes.decoding[-1:], sizes.decoding):
            yield from _step_checks(kernels, draw, sizes, spans)
        yield from _linear_checks(kernels, draw, sizes)
        yield from adapter_checks(kernels, draw, sizes)
        if sizes.experts:
            yield from _mixture_checks(kernels, draw, sizes)


@contextmanager
def _poisoned() -> Iterator[None]:
    """New memory holds NaN, or the largest integer, until it is written: what a kernel leaves out shows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(False)


def _row_checks(kernels: Kernels, draw: Draw, sizes: Sizes, tokens: int) -> Iterator[Line]:
    at, eps = f"{tokens} tokens", 1e-6
    x, residual, weight = draw(tokens, sizes.hidden), draw(tokens, sizes.hidden), draw(sizes.hidden)
    yield judged(f"norm, {at}", draw, kernels.rms_norm(x, weight, eps), _normed(x, weight, eps))
    total = x + residual
    normed, kept = kernels.add_rms_norm(x.clone(), residual.clone(), weight, eps)
    yield judged(f"norm of a sum, {at}", draw, normed, _normed(total, weight, eps))
    yield judged(f"sum, {at}", draw, kept, total)
    gate_up = draw(tokens, 2 * sizes.width, scale=3.0)
    yield judged(f"swiglu, {at}", draw, kernels.swiglu(gate_up), _REFERENCE.swiglu(gate_up.double()))
    yield judged(f"geglu, {at}", draw, kernels.geglu(gate_up), _REFERENCE.geglu(gate_up.double()))
    dim, kv_heads = sizes.head_dim, sizes.kv_heads
    q, k, v = projected(draw, sizes, tokens)
    norms, exact = head_norms(draw, sizes)
    angles = draw(tokens, dim // 2).float()
    turns = angles.cos(), angles.sin()
    slots = torch.tensor(draw.order(tokens + 8)[:tokens], device=draw.device)
    empty = q.new_zeros(tokens + 8, kv_heads, dim)
    wanted = KVLayer(empty.double(), empty.double())
    expected = _REFERENCE.rotate_and_write(q.double(), k.double(), v.double(), exact, *turns, wanted, slots)
    layer = KVLayer(empty.clone(), empty.clone())
    yield judged(f"queries, {at}", draw, kernels.rotate_and_write(q, k, v, norms, *turns, layer, slots), expected)
    yield judged(f"keys, {at}", draw, layer.keys, wanted.keys)
    yield judged(f"values, {at}", draw, layer.values, wanted.values)
    for name, (dtype, allowed) in _rounded_caches(kernels).items():
        layer = rounded_layer(dtype, *empty.shape, device=empty.device)
        kernels.rotate_and_write(q, k, v, norms, *turns, layer, slots)
        keys, values = expanded(layer)
        yield judged(f"{name} keys, {at}", draw, keys, wanted.keys, allowed=allowed)
        yield judged(f"{name} values, {at}", draw, values, wanted.values, allowed=allowed)


def _attention_checks(
    kernels: Kernels, draw: Draw, sizes: Sizes, name: str, spans: Sequence[tuple[int, int]]
) -> Iterator[Line]:
    batch, slots = paged(spans, draw.order)
    q = draw(sum(batch.counts), sizes.heads, sizes.head_dim)
    layer = KVLayer(*(draw(slots, sizes.kv_heads, sizes.head_dim) for _ in range(2)))
    caches = [("", layer, None), (", window", layer, sizes.window)]
    for kind, (dtype, _) in _rounded_caches(kernels).items():
        low = rounded_layer(dtype, *layer.keys.shape, device=draw.device)
        _REFERENCE.write_kv(low, layer.keys, layer.values, torch.arange(slots, device=draw.device))
        caches.append((f", {kind}", low, None))
    plan, exact_plan = kernels.plan(batch, draw.device), _REFERENCE.plan(batch, draw.device)
    for kind, kept, window in caches:
        got = kernels.paged_attention(q, kept, plan, window)
        keys, values = expanded(kept)
        expected = _REFERENCE.paged_attention(q.double(), KVLayer(keys, values), exact_plan, window)
        again = kernels.paged_attention(q, kept, plan, window)
        yield judged(f"attention, {name}{kind}", draw, got, expected, again=again)


def _step_checks(kernels: Kernels, draw: Draw, sizes: Sizes, spans: Sequence[tuple[int, int]]) -> Iterator[Line]:
    """Attention of a step on rows: the norms, the rotation and the write of a token each, and what it sees."""
    rows = kernels.rows()
    if rows is None:
        return
    batch, slots = paged(spans, draw.order)
    count, dim, size = len(spans), sizes.head_dim, batch.block_size
    state = RowState.empty(count, max(map(len, batch.tables)), 1, size, slots // size, draw.device)
    for row, table in enumerate(batch.tables):
        state.tables[row, : len(table)] = torch.tensor(table, dtype=torch.int32)
        state.numbers[row, POSITION] = batch.contexts[row] - 1
    q, k, v = projected(draw, sizes, count)
    (norms, exact), angles = head_norms(draw, sizes), draw(count, dim // 2).float()
    turns = angles.cos(), angles.sin()
    layer = KVLayer(*(draw(slots + size, sizes.kv_heads, dim) for _ in range(2)))
    step = rows.begin(state, torch.arange(count, device=draw.device))
    wanted = KVLayer(layer.keys.double(), layer.values.double())
    turned = _REFERENCE.rotate_and_write(q.double(), k.double(), v.double(), exact, *turns, wanted, step.slots)
    for name, window in (("", None), (", window", sizes.window)):
        expected = _REFERENCE.paged_attention(turned, wanted, _REFERENCE.plan(batch, draw.device), window)
        got, again = (kernels.attend(q, k, v, norms, *turns, layer, step.slots, step.plan, window) for _ in range(2))
        yield judged(f"a step's attention, {count} tokens{name}", draw, got, expected, again=again)
    yield judged(f"a step's keys, {count} tokens", draw, layer.keys, wanted.keys)
    yield judged(f"a step's values, {count} tokens", draw, layer.values, wanted.values)


def _rounded_caches(kernels: Kernels) -> dict[str, tuple[torch.dtype, float]]:
    """By name the dtypes that keys and values may be rounded to, with the most relative error of that.

    Of a head rounded to 255 levels of its largest element, 2 ** -8 / sqrt(3) of that typically; of three bits of
    fraction 2 ** -4 / sqrt(3).
    """
    kinds = {"int8": (torch.int8, 1e-2)}
    return kinds | {"fp8": (E4M3, 4e-2)} if kernels.fp8_cache else kinds


def _linear_checks(kernels: Kernels, draw: Draw, sizes: Sizes) -> Iterator[Line]:
    """Layers as they are and behind a norm, which may be part of them, and two with gates between."""
    hidden, width, eps = sizes.hidden, sizes.width, 1e-6
    norm = draw(hidden)
    gate_up, down = draw(2 * width, hidden, scale=hidden**-0.5), draw(hidden, width, scale=width**-0.5)
    biases = (None, draw(2 * width)) if sizes.biases else (None,)
    for fmt, bias in product(("native", *_ROUNDED), biases):
        first, second = kernels.linear(gate_up, bias, fmt), kernels.linear(down, None, fmt)
        one, two = rounded(gate_up, fmt).T, rounded(down, fmt).T
        added = 0.0 if bias is None else bias.double()
        for tokens in sizes.tokens:
            x, name = draw(tokens, hidden), f"{fmt} weights{'' if bias is None else ' and biases'}, {tokens} tokens"
            yield judged(name, draw, first(x), x.double() @ one + added, again=first(x))
            between = _normed(x, norm, eps) @ one + added
            yield judged(f"{name} behind a norm", draw, first(kernels.rms_norm(x, norm, eps, first)), between)
            got = kernels.feed_forward(Mlp(first, second), kernels.rms_norm(x, norm, eps, first))
            yield judged(f"{name} with gates between", draw, got, _REFERENCE.swiglu(between) @ two)


def _mixture_checks(kernels: Kernels, draw: Draw, sizes: Sizes) -> Iterator[Line]:
    weights = mixture_weights(draw, sizes)
    for fmt in ("native", *_ROUNDED):
        mixture, exact = kernels.mixture(weights, fmt), ReferenceMixture(in_float64(weights, fmt), DenseLinear)
        for tokens in sizes.tokens:
            x = draw(tokens, sizes.hidden)
            name = "mixture" if fmt == "native" else f"{fmt} mixture"
            yield judged(f"{name}, {tokens} tokens", draw, mixture(x), exact(x.double()), again=mixture(x))


def _normed(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    expected: Tensor = _REFERENCE.rms_norm(x.double(), weight.double(), eps)
    return expected
