"""Layers of fp8 checkpoints, against the same rounding with sums in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from headgate.engine.kernels.checks.inputs import Draw, Sizes, mixture_weights
from headgate.engine.kernels.checks.line import Line, judged
from headgate.engine.kernels.interface import Fp8Layers, Kernels
from headgate.engine.kernels.mixture import Fp8Expert, Mixture, MixtureWeights, ReferenceMixture
from headgate.engine.quant.fp8 import BLOCK, Fp8Weight, round_activations

_ALLOWED, _ALLOWED_TWICE = 1e-2, 2.5e-2
"""Where a quotient is within a bit of a tie, kernels and torch round an element apart, by a sixteenth of it at most.
What experts take second is rounded to bfloat16 first, a bit apart where exponentials are: more of it is then near ties.
"""
KINDS = {"rows": False, "blocks": True}
"""Of scales, and whether they are those of blocks."""


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
    for kind, blocks in KINDS.items():
        weight = Fp8Weight.of(draw(sizes.width, hidden, scale=hidden**-0.5), blocks=blocks)
        layer = kernels.fp8.linear(weight, None)
        few = Sizes(hidden=hidden, expert_width=width, experts=min(sizes.experts, 4), per_token=min(sizes.per_token, 2))
        weights = mixture_weights(draw, few) if few.experts else None
        mixture = None if weights is None else fp8_mixture(kernels.fp8, weights, blocks=blocks)
        for tokens in sizes.tokens:
            x, name = draw(tokens, hidden), f"{tokens} tokens"
            exact = _Plain(weight, rounds=kernels.fp8.rounds(weight, tokens))
            check = partial(judged, draw=draw, allowed=_ALLOWED)
            yield check(f"fp8 {kind}, {name}", got=layer(x), expected=exact(x), again=layer(x))
            normed, rounded = kernels.rms_norm(x, norm, 1e-6), kernels.rms_norm(x, norm, 1e-6, layer)
            yield check(f"fp8 {kind} behind a norm, {name}", got=layer(rounded), expected=exact(normed))
            if weights is None or mixture is None:
                continue
            rounds = tokens > kernels.fp8.unrounded
            plain = ReferenceMixture(weights, _plain(blocks=blocks, rounds=rounds))
            check = partial(judged, draw=draw, allowed=_ALLOWED_TWICE if rounds else _ALLOWED)
            yield check(f"fp8 {kind} mixture, {name}", got=mixture(x), expected=plain(x), again=mixture(x))


def _plain(*, blocks: bool, rounds: bool) -> Callable[[Tensor], _Plain]:
    return lambda matrix: _Plain(Fp8Weight.of(matrix, blocks=blocks), rounds=rounds)


def fp8_mixture(fp8: Fp8Layers, weights: MixtureWeights, *, blocks: bool) -> Mixture:
    """The experts of `weights` in fp8."""
    kept = partial(Fp8Weight.of, blocks=blocks)
    experts = (Fp8Expert(kept(each.gate_up), kept(each.down)) for each in weights.experts)
    return fp8.mixture(MixtureWeights(weights.router, (), weights.per_token, weights.normalize), experts, None)
