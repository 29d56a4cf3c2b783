"""`headgate bench gpu`, its checks: every kernel on random inputs, against the reference in float64."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headgate.bench.gpu_check_stages import Line
from headgate.engine.kernels.interface import AttentionBatch, HeadNorms, Kernels, KVLayer
from headgate.engine.kernels.mixture import ExpertWeights, MixtureWeights, ReferenceMixture
from headgate.engine.kernels.reference import ReferenceKernels
from headgate.engine.quant.fp8 import E4M3
from headgate.engine.quant.int4 import thin
from headgate.engine.quant.linear import DenseLinear, WeightFormat, quantize_rows

ALLOWED = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}
"""Most relative error by dtype: products of float32 with sums in float32, or two to three roundings to the dtype."""
_REFERENCE = ReferenceKernels()
_ROUNDED: tuple[WeightFormat, ...] = "int8", "int4"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Shapes of the checks. `spans`: first new token and context of each sequence of the attention checks."""

    hidden: int = 1024
    width: int = 3072
    heads: int = 16
    kv_heads: int = 8
    head_dim: int = 128
    experts: int = 128
    expert_width: int = 768
    per_token: int = 8
    tokens: Sequence[int] = (1, 3, 300)
    decoding: Sequence[tuple[int, int]] = ((0, 1), (15, 16), (127, 128), (1000, 1001), (4095, 4096), (20000, 20001))
    prompts: Sequence[tuple[int, int]] = ((0, 700), (513, 530), (4000, 4003), (99, 100), (0, 2), (1024, 2048))
    window: int = 512


def relative_error(got: Tensor, expected: Tensor) -> float:
    """|got - expected| / |expected|, infinite where an element of either is not finite."""
    got, expected = got.double(), expected.double()
    error = float((got - expected).norm() / expected.norm())
    return error if math.isfinite(error) else math.inf


def kernel_checks(kernels: Kernels, device: torch.device, dtype: torch.dtype, sizes: Sizes) -> Iterator[Line]:
    """A line per kernel and shape. Inputs are drawn with a fixed seed."""
    draw = Draw(device, dtype)
    with _poisoned():
        for tokens in sizes.tokens:
            yield from _row_checks(kernels, draw, sizes, tokens)
        for name, spans in (("decoding", sizes.decoding), ("prompts", sizes.prompts)):
            yield from _attention_checks(kernels, draw, sizes, name, spans)
        yield from _linear_checks(kernels, draw, sizes)
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


class Draw:
    """Normal random numbers, the same in every run, made on the host so that they do not depend on the device."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device, self.dtype = device, dtype
        self._generator = torch.Generator().manual_seed(0)

    def __call__(self, *shape: int, scale: float = 1.0) -> Tensor:
        """Numbers of this standard deviation."""
        return (torch.randn(*shape, generator=self._generator) * scale).to(self.device, self.dtype)

    def order(self, count: int) -> list[int]:
        """The numbers below `count`, shuffled."""
        return torch.randperm(count, generator=self._generator).tolist()


def judged(
    name: str, draw: Draw, got: Tensor, expected: Tensor, *, allowed: float | None = None, again: Tensor | None = None
) -> Line:
    """How far `got` is from what is expected; `again` is what a second call gave: other bits mean a race."""
    error, allowed = relative_error(got, expected), allowed or ALLOWED[draw.dtype]
    if again is not None and not torch.equal(got, again):
        return Line(name, f"not the same twice, by {relative_error(again, got):.1e}", ok=False)
    kind = str(draw.dtype).removeprefix("torch.")
    figures = {"error": error, "allowed": allowed}
    return Line(f"{name}, {kind}", f"error {error:.1e}, at most {allowed:.0e}", figures, error <= allowed)


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
    dim, kv_heads = sizes.head_dim, sizes.kv_heads
    q, k, v = projected(draw, sizes, tokens)
    norms = HeadNorms(draw(dim), draw(dim), eps)
    exact = HeadNorms(norms.query.double(), norms.key.double(), eps)
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


def _rounded_caches(kernels: Kernels) -> dict[str, tuple[torch.dtype, float]]:
    """By name the dtypes that keys and values may be rounded to, with the most relative error of that.

    Of a head rounded to 255 levels of its largest element, 2 ** -8 / sqrt(3) of that typically; of three bits of
    fraction 2 ** -4 / sqrt(3).
    """
    kinds = {"int8": (torch.int8, 1e-2)}
    return kinds | {"fp8": (E4M3, 4e-2)} if kernels.fp8_cache else kinds


def rounded_layer(dtype: torch.dtype, slots: int, kv_heads: int, head_dim: int, *, device: torch.device) -> KVLayer:
    """An empty layer of a cache in 8 bits."""
    keys, values = (torch.zeros(slots, kv_heads, head_dim, device=device).to(dtype) for _ in range(2))
    return KVLayer(keys, values, *(torch.zeros(slots, kv_heads, device=device) for _ in range(2)))


def projected(draw: Draw, sizes: Sizes, tokens: int) -> list[Tensor]:
    """Queries, keys and values as parts of one projection."""
    dim = sizes.head_dim
    widths = [sizes.heads * dim, sizes.kv_heads * dim, sizes.kv_heads * dim]
    return [t.view(tokens, -1, dim) for t in torch.split(draw(tokens, sum(widths)), widths, dim=1)]


def _linear_checks(kernels: Kernels, draw: Draw, sizes: Sizes) -> Iterator[Line]:
    weight = draw(sizes.width, sizes.hidden, scale=sizes.hidden**-0.5)
    for fmt in _ROUNDED:
        layer, exact = kernels.linear(weight, None, fmt), rounded(weight, fmt)
        for tokens in sizes.tokens:
            x = draw(tokens, sizes.hidden)
            yield judged(f"{fmt} weights, {tokens} tokens", draw, layer(x), x.double() @ exact.T, again=layer(x))


def _mixture_checks(kernels: Kernels, draw: Draw, sizes: Sizes) -> Iterator[Line]:
    weights = mixture_weights(draw, sizes)
    for fmt in ("native", *_ROUNDED):
        mixture, exact = kernels.mixture(weights, fmt), ReferenceMixture(in_float64(weights, fmt), DenseLinear)
        for tokens in sizes.tokens:
            x = draw(tokens, sizes.hidden)
            name = "mixture" if fmt == "native" else f"{fmt} mixture"
            yield judged(f"{name}, {tokens} tokens", draw, mixture(x), exact(x.double()), again=mixture(x))


def paged(
    spans: Sequence[tuple[int, int]], order: Callable[[int], list[int]], block_size: int = 16
) -> tuple[AttentionBatch, int]:
    """A step that computes the tokens of each span, in blocks that lie in `order`; and the slots of its cache."""
    needed = [-(-context // block_size) for _, context in spans]
    blocks = order(sum(needed))
    tables = [[blocks.pop() for _ in range(count)] for count in needed]
    counts = [context - first for first, context in spans]
    # The keys are there already: none are written.
    nowhere = torch.zeros(0, dtype=torch.int64)
    return AttentionBatch(counts, [c for _, c in spans], tables, nowhere, block_size), sum(needed) * block_size


def mixture_weights(draw: Draw, sizes: Sizes) -> MixtureWeights:
    """Experts whose results are about as large as their input, and a router that prefers some."""
    hidden, width = sizes.hidden, sizes.expert_width
    experts = [
        ExpertWeights(draw(2 * width, hidden, scale=hidden**-0.5), draw(hidden, width, scale=2 * width**-0.5))
        for _ in range(sizes.experts)
    ]
    router = draw(sizes.experts, hidden, scale=4 * hidden**-0.5)
    return MixtureWeights(router, experts, sizes.per_token, normalize=True)


def rounded(weight: Tensor, fmt: WeightFormat) -> Tensor:
    """What a layer computes with that keeps the weight in a format, in float64."""
    if fmt == "native":
        return weight.double()
    if fmt == "int8":
        values, scales = quantize_rows(weight)
        return values.double() * scales.double()
    codes = thin(weight)
    return codes.expand()[:, : weight.shape[1]].double() * codes.scales.double().unsqueeze(1)


def in_float64(weights: MixtureWeights, fmt: WeightFormat = "native") -> MixtureWeights:
    """The same numbers, those of experts as they are in a format."""

    def wide(expert: ExpertWeights) -> ExpertWeights:
        return ExpertWeights(rounded(expert.gate_up, fmt), rounded(expert.down, fmt))

    shared, gate = weights.shared, weights.shared_gate
    return replace(
        weights,
        router=weights.router.double(),
        experts=[wide(expert) for expert in weights.experts],
        shared=wide(shared) if shared is not None else None,
        shared_gate=gate.double() if gate is not None else None,
    )


def _normed(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    expected: Tensor = _REFERENCE.rms_norm(x.double(), weight.double(), eps)
    return expected


def expanded(layer: KVLayer) -> tuple[Tensor, Tensor]:
    """Keys and values in float64."""
    keys, values = layer.keys.double(), layer.values.double()
    if layer.key_scales is None or layer.value_scales is None:
        return keys, values
    return keys * layer.key_scales.double().unsqueeze(-1), values * layer.value_scales.double().unsqueeze(-1)
