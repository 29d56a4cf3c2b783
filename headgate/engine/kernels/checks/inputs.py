"""What checks give to kernels: shapes, random numbers, steps, layers; and what exact results are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headgate.engine.kernels.interface import AttentionBatch, HeadNorms, KVLayer
from headgate.engine.kernels.mixture import ExpertWeights, MixtureWeights
from headgate.engine.quant.int4 import thin
from headgate.engine.quant.linear import WeightFormat, quantize_rows


@dataclass(frozen=True, slots=True)
class Sizes:
    """Shapes of the checks; by default those of a Qwen3 of 0.6B, with experts.

    Attributes:
        head_norms: whether heads of queries and keys are normed.
        biases: whether there are layers with biases, too.
        experts: 0 is none.
        shared_width: of the expert that every token passes; 0 is none.
        normalize: whether the weights of a token's experts are made to sum to one.
        tokens: how many layers and norms are given at once.
        decoding, prompts: first new token and context of each sequence of the attention checks.
    """

    hidden: int = 1024
    width: int = 3072
    heads: int = 16
    kv_heads: int = 8
    head_dim: int = 128
    head_norms: bool = True
    biases: bool = False
    experts: int = 128
    expert_width: int = 768
    per_token: int = 8
    shared_width: int = 0
    normalize: bool = True
    tokens: Sequence[int] = (1, 3, 300)
    decoding: Sequence[tuple[int, int]] = ((0, 1), (15, 16), (127, 128), (1000, 1001), (4095, 4096), (20000, 20001))
    prompts: Sequence[tuple[int, int]] = ((0, 700), (513, 530), (4000, 4003), (99, 100), (0, 2), (1024, 2048))
    window: int = 512


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


def head_norms(draw: Draw, sizes: Sizes) -> tuple[HeadNorms | None, HeadNorms | None]:
    """Norms of heads, and the same in float64; none where the model has none."""
    if not sizes.head_norms:
        return None, None
    norms = HeadNorms(draw(sizes.head_dim), draw(sizes.head_dim), 1e-6)
    return norms, HeadNorms(norms.query.double(), norms.key.double(), norms.eps)


def projected(draw: Draw, sizes: Sizes, tokens: int) -> list[Tensor]:
    """Queries, keys and values as parts of one projection."""
    dim = sizes.head_dim
    widths = [sizes.heads * dim, sizes.kv_heads * dim, sizes.kv_heads * dim]
    return [t.view(tokens, -1, dim) for t in torch.split(draw(tokens, sum(widths)), widths, dim=1)]


def rounded_layer(dtype: torch.dtype, slots: int, kv_heads: int, head_dim: int, *, device: torch.device) -> KVLayer:
    """An empty layer of a cache in 8 bits."""
    keys, values = (torch.zeros(slots, kv_heads, head_dim, device=device).to(dtype) for _ in range(2))
    return KVLayer(keys, values, *(torch.zeros(slots, kv_heads, device=device) for _ in range(2)))


def expanded(layer: KVLayer) -> tuple[Tensor, Tensor]:
    """Keys and values in float64."""
    keys, values = layer.keys.double(), layer.values.double()
    if layer.key_scales is None or layer.value_scales is None:
        return keys, values
    return keys * layer.key_scales.double().unsqueeze(-1), values * layer.value_scales.double().unsqueeze(-1)


def mixture_weights(draw: Draw, sizes: Sizes) -> MixtureWeights:
    """Experts whose results are about as large as their input, and a router that prefers some."""
    hidden = sizes.hidden

    def expert(width: int) -> ExpertWeights:
        return ExpertWeights(draw(2 * width, hidden, scale=hidden**-0.5), draw(hidden, width, scale=2 * width**-0.5))

    experts = [expert(sizes.expert_width) for _ in range(sizes.experts)]
    weights = MixtureWeights(
        draw(sizes.experts, hidden, scale=4 * hidden**-0.5), experts, sizes.per_token, sizes.normalize
    )
    if not sizes.shared_width:
        return weights
    return replace(weights, shared=expert(sizes.shared_width), shared_gate=draw(1, hidden, scale=hidden**-0.5))


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
