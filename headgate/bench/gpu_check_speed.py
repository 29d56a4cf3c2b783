"""`headgate bench gpu`, its timings of kernels: each beside plain torch, as a share of what was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from headgate.bench.ceilings import Ceilings, device_name
from headgate.engine.kernels.checks.fp8 import KINDS, fp8_mixture
from headgate.engine.kernels.checks.inputs import Draw, Sizes, mixture_weights, paged, projected
from headgate.engine.kernels.checks.line import Line
from headgate.engine.kernels.checks.rows import filled_rows
from headgate.engine.kernels.device_rows import BIASED, RowState
from headgate.engine.kernels.interface import HeadNorms, Kernels, KVLayer
from headgate.engine.kernels.reference_rows import ReferenceRows
from headgate.engine.quant.fp8 import Fp8Weight
from headgate.engine.quant.linear import DenseLinear, WeightFormat

Timer = Callable[[Callable[[], object]], float]
"""Median seconds of a call, with cold caches."""


def gpu_ceilings(device: torch.device, time: Timer, copied: int = 1 << 32, edge: int = 8192) -> Ceilings:
    """Bytes per second of a copy of `copied` bytes, read and written, and a bfloat16 product of `edge` cubed."""
    source = torch.ones(copied // 2, dtype=torch.bfloat16, device=device)
    target = torch.empty_like(source)
    rate = 2 * copied / time(partial(target.copy_, source))
    a, b = (torch.randn(edge, edge, device=device).bfloat16() for _ in range(2))
    return Ceilings(device_name(device), 0, rate, {"bfloat16": 2 * edge**3 / time(partial(torch.matmul, a, b))})


@dataclass(frozen=True, slots=True)
class Work:
    """A call to time, and the least it must do: bytes from and to memory, or floating-point operations."""

    name: str
    run: Callable[[Kernels], object]
    moved: int = 0
    flops: int = 0


def timed(work: Work, ours: Kernels, plain: Kernels, ceilings: Ceilings, time: Timer) -> Line:
    """Its time and rate, beside the time of plain torch."""
    seconds, stock = (time(partial(work.run, kernels)) for kernels in (ours, plain))
    if work.flops:
        rate, ceiling, unit = work.flops / seconds, ceilings.peak("bfloat16"), "TFLOP/s"
    else:
        rate, ceiling, unit = work.moved / seconds, ceilings.read_bytes_s, "TB/s"
    figures = {"seconds": seconds, "plain_torch_seconds": stock, "rate": rate, "share": rate / ceiling}
    text = (
        f"{seconds * 1e6:,.1f} µs, {rate / 1e12:.2f} {unit} ({rate / ceiling:.0%}); plain torch {stock * 1e6:,.1f} µs"
    )
    return Line(work.name, text, figures)


def row_work(draw: Draw, sizes: Sizes, tokens: int) -> Iterator[Work]:
    """What a layer does with rows and heads."""
    x, residual, weight = draw(tokens, sizes.hidden), draw(tokens, sizes.hidden), draw(sizes.hidden)
    yield Work(f"norm of a sum, {tokens} tokens", lambda k: k.add_rms_norm(x, residual, weight, 1e-6), 4 * x.nbytes)
    gate_up = draw(tokens, 2 * sizes.width)
    yield Work(f"swiglu, {tokens} tokens", lambda k: k.swiglu(gate_up), gate_up.nbytes * 3 // 2)
    q, k, v = projected(draw, sizes, tokens)
    norms = HeadNorms(draw(sizes.head_dim), draw(sizes.head_dim), 1e-6)
    angles = draw(tokens, sizes.head_dim // 2).float()
    layer = KVLayer(k.new_empty(k.shape), v.new_empty(v.shape))
    slots = torch.arange(tokens, device=draw.device)
    yield Work(
        f"heads, {tokens} tokens",
        lambda kernels: kernels.rotate_and_write(q, k, v, norms, angles, angles, layer, slots),
        2 * (q.nbytes + k.nbytes + v.nbytes),
    )


def linear_work(
    draw: Draw, kernels: Sequence[Kernels], inputs: int, outputs: int, fmt: WeightFormat, tokens: Sequence[int]
) -> Iterator[Work]:
    """A layer of rounded weights, of which the reference rounds the activations too."""
    weight = draw(outputs, inputs, scale=inputs**-0.5)
    layers = {id(each): each.linear(weight, None, fmt) for each in kernels}
    for count in tokens:
        call = partial(_applied, layers, draw(count, inputs))
        yield Work(f"{fmt} weights, {inputs} to {outputs}, {count} tokens", call, layers[id(kernels[0])].nbytes)


def attention_work(draw: Draw, sizes: Sizes, batches: Sequence[int], context: int, prompt: int) -> Iterator[Work]:
    """Decoding after `context` tokens by batch, which reads keys and values; and a prompt, which computes."""
    for batch in batches:
        call, read = _attention(draw, sizes, [(context - 1, context)] * batch)
        yield Work(f"attention, {batch} decoded after {context}", call, read)
    call, _ = _attention(draw, sizes, [(0, prompt)])
    # Two products, of which the causal mask leaves half.
    yield Work(f"attention, prompt of {prompt}", call, flops=2 * prompt**2 * sizes.heads * sizes.head_dim)


def _attention(draw: Draw, sizes: Sizes, spans: Sequence[tuple[int, int]]) -> tuple[Callable[[Kernels], object], int]:
    """The call, its plan made beforehand as for all layers of a step, and bytes of keys and values."""
    batch, slots = paged(spans, draw.order)
    layer = KVLayer(*(draw(slots, sizes.kv_heads, sizes.head_dim) for _ in range(2)))
    q, plans = draw(sum(batch.counts), sizes.heads, sizes.head_dim), dict[int, object]()

    def call(kernels: Kernels) -> object:
        if id(kernels) not in plans:
            plans[id(kernels)] = kernels.plan(batch, draw.device)
        return kernels.paged_attention(q, layer, plans[id(kernels)], None)

    return call, 2 * layer.keys[0].nbytes * sum(batch.contexts)


def mixture_work(
    draw: Draw, sizes: Sizes, kernels: Sequence[Kernels], fmt: WeightFormat, tokens: Sequence[int]
) -> Iterator[Work]:
    """A layer of experts, which reads those that are chosen: with random weights nearly all, from some tokens on."""
    weights = mixture_weights(draw, sizes)
    mixtures = {id(each): each.mixture(weights, fmt) for each in kernels}
    for count in tokens:
        x = draw(count, sizes.hidden)
        chosen = torch.unique(F.linear(x, weights.router).topk(sizes.per_token).indices).numel()
        read = chosen * mixtures[id(kernels[0])].expert_nbytes
        yield Work(f"{fmt} mixture, {count} tokens, {chosen} experts", partial(_applied, mixtures, x), read)


def fp8_work(
    draw: Draw, kernels: Sequence[Kernels], inputs: int, outputs: int, tokens: Sequence[int]
) -> Iterator[Work]:
    """A layer of fp8 weights behind a norm, beside one of plain weights where the kernels have no fp8."""
    matrix, norm = draw(outputs, inputs, scale=inputs**-0.5), draw(inputs)
    for kind, blocks in KINDS.items():
        weight = Fp8Weight.of(matrix, blocks=blocks)
        layers = {id(each): each.fp8.linear(weight, None) if each.fp8 else DenseLinear(matrix) for each in kernels}
        for count in tokens:
            call = partial(_behind_norm, layers, draw(count, inputs), norm)
            yield Work(f"fp8 {kind}, {inputs} to {outputs}, {count} tokens", call, weight.values.nbytes)


def fp8_mixture_work(draw: Draw, sizes: Sizes, kernels: Sequence[Kernels], tokens: Sequence[int]) -> Iterator[Work]:
    """Experts of fp8 blocks behind a norm, beside plain ones where the kernels have no fp8."""
    weights, norm = mixture_weights(draw, sizes), draw(sizes.hidden)
    mixtures = {
        id(each): fp8_mixture(each.fp8, weights, blocks=True) if each.fp8 else each.mixture(weights, "native")
        for each in kernels
    }
    for count in tokens:
        x = draw(count, sizes.hidden)
        chosen = torch.unique((x @ weights.router.t()).topk(sizes.per_token).indices).numel()
        read = chosen * mixtures[id(kernels[0])].expert_nbytes
        yield Work(f"fp8 mixture, {count} tokens, {chosen} experts", partial(_behind_norm, mixtures, x, norm), read)


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


def _applied(layers: Mapping[int, Callable[[Tensor], Tensor]], x: Tensor, kernels: Kernels) -> object:
    return layers[id(kernels)](x)


def _behind_norm(layers: Mapping[int, Callable[[Tensor], Tensor]], x: Tensor, norm: Tensor, kernels: Kernels) -> object:
    layer = layers[id(kernels)]
    return layer(kernels.rms_norm(x, norm, 1e-6, layer))


def _choose(logits: Tensor, state: RowState, order: Tensor, keys: Tensor, kernels: Kernels) -> object:
    rows = kernels.rows()
    assert rows is not None
    return rows.choose(logits, state, order, keys)
