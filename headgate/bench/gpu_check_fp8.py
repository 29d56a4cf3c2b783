"""`headgate bench gpu`, layers of fp8 checkpoints: their times beside those of plain weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from headgate.bench.gpu_check_speed import Work
from headgate.engine.kernels.checks.fp8 import KINDS, fp8_mixture
from headgate.engine.kernels.checks.inputs import Draw, Sizes, mixture_weights
from headgate.engine.kernels.interface import Kernels
from headgate.engine.quant.fp8 import Fp8Weight
from headgate.engine.quant.linear import DenseLinear


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


def _behind_norm(layers: Mapping[int, Callable[[Tensor], Tensor]], x: Tensor, norm: Tensor, kernels: Kernels) -> object:
    layer = layers[id(kernels)]
    return layer(kernels.rms_norm(x, norm, 1e-6, layer))
