"""`headgate bench gpu`, layers of fp8 checkpoints: against float64, and their times beside those of plain weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from headgate.bench.gpu_check_kernels import Draw, Sizes, judged, mixture_weights
from headgate.bench.gpu_check_speed import Work
from headgate.bench.gpu_check_stages import Line
from headgate.engine.kernels.interface import Fp8Layers, Kernels
from headgate.engine.kernels.mixture import Fp8Expert, Mixture, MixtureWeights, ReferenceMixture
from headgate.engine.quant.fp8 import BLOCK, Fp8Weight, round_activations
from headgate.engine.quant.linear import DenseLinear

_ALLOWED, _ALLOWED_TWICE = 1e-2, 2.5e-2
"""Where a quotient is within a bit of a tie, kernels and torch round an element apart, by a sixteenth of it at most.
What experts take second is rounded to bfloat16 first, a bit apart where exponentials are: more of it is then near ties.
"""
_KINDS = {"rows": False, "blocks": True}


class _Plain:
    """What an fp8 layer computes, with sums in float64; `rounds`: of rounded activations."""

    nbytes = 0

    def __init__(self, weight: Fp8Weight, *, rounds: bool) -> None:
        self._weight, self._rounds = weight, rounds

    def __call__(self, x: Tensor) -> Tensor:
        if not self._rounds:
            return x.double() @ self._weight.expand(torch.float64).T
        values, scales = round_activations(x, blocks=self._weight.blocks)
        spread = scales.repeat_interleave(BLOCK, 1)[:, : x.shape[1]] if self._weight.blocks else scales
        return (values.double() * spread.double()) @ self._weight.expand(torch.float64).T


def fp8_checks(kernels: Kernels, draw: Draw, sizes: Sizes) -> Iterator[Line]:
    """A line per layer and number of tokens; one that says so where the kernels have no fp8."""
    if kernels.fp8 is None:
        yield Line("fp8", "none on this device: its compute capability is below 8.9")
        return
    hidden, width = (-(-size // BLOCK) * BLOCK for size in (sizes.hidden, sizes.expert_width))
    norm = draw(hidden)
    for kind, blocks in _KINDS.items():
        weight = Fp8Weight.of(draw(sizes.width, hidden, scale=hidden**-0.5), blocks=blocks)
        layer = kernels.fp8.linear(weight, None)
        weights = mixture_weights(draw, Sizes(hidden=hidden, expert_width=width, experts=4, per_token=2))
        mixture = _mixture(kernels.fp8, weights, blocks=blocks)
        for tokens in sizes.tokens:
            x, name = draw(tokens, hidden), f"{tokens} tokens"
            rounds = tokens > kernels.fp8.unrounded
            exact = _Plain(weight, rounds=rounds)
            plain = ReferenceMixture(weights, _plain(blocks=blocks, rounds=rounds))
            check = partial(judged, draw=draw, allowed=_ALLOWED)
            yield check(f"fp8 {kind}, {name}", got=layer(x), expected=exact(x), again=layer(x))
            normed, rounded = kernels.rms_norm(x, norm, 1e-6), kernels.rms_norm(x, norm, 1e-6, layer)
            yield check(f"fp8 {kind} behind a norm, {name}", got=layer(rounded), expected=exact(normed))
            check = partial(judged, draw=draw, allowed=_ALLOWED_TWICE if rounds else _ALLOWED)
            yield check(f"fp8 {kind} mixture, {name}", got=mixture(x), expected=plain(x), again=mixture(x))


def fp8_work(
    draw: Draw, kernels: Sequence[Kernels], inputs: int, outputs: int, tokens: Sequence[int]
) -> Iterator[Work]:
    """A layer of fp8 weights behind a norm, beside one of plain weights where the kernels have no fp8."""
    matrix, norm = draw(outputs, inputs, scale=inputs**-0.5), draw(inputs)
    for kind, blocks in _KINDS.items():
        weight = Fp8Weight.of(matrix, blocks=blocks)
        layers = {id(each): each.fp8.linear(weight, None) if each.fp8 else DenseLinear(matrix) for each in kernels}
        for count in tokens:
            call = partial(_behind_norm, layers, draw(count, inputs), norm)
            yield Work(f"fp8 {kind}, {inputs} to {outputs}, {count} tokens", call, weight.values.nbytes)


def fp8_mixture_work(draw: Draw, sizes: Sizes, kernels: Sequence[Kernels], tokens: Sequence[int]) -> Iterator[Work]:
    """Experts of fp8 blocks behind a norm, beside plain ones where the kernels have no fp8."""
    weights, norm = mixture_weights(draw, sizes), draw(sizes.hidden)
    mixtures = {
        id(each): _mixture(each.fp8, weights, blocks=True) if each.fp8 else each.mixture(weights, "native")
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


def _plain(*, blocks: bool, rounds: bool) -> Callable[[Tensor], _Plain]:
    return lambda matrix: _Plain(Fp8Weight.of(matrix, blocks=blocks), rounds=rounds)


def _mixture(fp8: Fp8Layers, weights: MixtureWeights, *, blocks: bool) -> Mixture:
    """The experts of `weights` in fp8."""
    kept = partial(Fp8Weight.of, blocks=blocks)
    experts = (Fp8Expert(kept(each.gate_up), kept(each.down)) for each in weights.experts)
    return fp8.mixture(MixtureWeights(weights.router, (), weights.per_token, weights.normalize), experts, None)
