"""Layers whose rows have adapters of their own, against matrices with the factors in them, in float64."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from headgate.engine.kernels.checks.inputs import Draw, Sizes
from headgate.engine.kernels.checks.line import Line, judged
from headgate.engine.kernels.interface import Kernels, Mlp
from headgate.engine.kernels.reference import ReferenceKernels
from headgate.engine.models.adapters.linear import AdapterRows, Stack

_RANKS = 16, 5
"""Of the adapters, in each part of a layer."""
_EPS = 1e-6
_REFERENCE = ReferenceKernels()


def adapter_checks(kernels: Kernels, draw: Draw, sizes: Sizes) -> Iterator[Line]:
    """Two lines per number of tokens, of rows that are mixed and of rows as prompts have them.

    Of two layers with gates between, behind a norm, any of which may be part of a layer; none where the kernels leave
    such layers to plain torch.
    """
    hidden, width, norm = sizes.hidden, sizes.width, draw(sizes.hidden)
    rows = AdapterRows(len(_RANKS), draw.device)
    gate_up, down = draw(2 * width, hidden, scale=hidden**-0.5), draw(hidden, width, scale=width**-0.5)
    stacks = _stack(draw, hidden, (width, width)), _stack(draw, width, (hidden,))
    first, second = (
        kernels.adapted(kernels.linear(weight, None, "native"), stack, rows.every)
        for weight, stack in zip((gate_up, down), stacks, strict=True)
    )
    if first is None or second is None:
        return
    for tokens in sizes.tokens:
        mixed = [at % (len(_RANKS) + 1) for at in range(1, tokens + 1)]
        for kind, numbers in (("mixed rows", mixed), ("prompts", sorted(mixed))):
            rows.place(numbers, [1] * tokens, [])
            x = draw(tokens, hidden)
            normed = kernels.rms_norm(x, norm, _EPS, first)
            exact = _REFERENCE.rms_norm(x.double(), norm.double(), _EPS)
            between = _REFERENCE.swiglu(_tuned(exact, gate_up, stacks[0], numbers))
            got, again = (kernels.feed_forward(Mlp(first, second), normed) for _ in range(2))
            expected = _tuned(between, down, stacks[1], numbers)
            yield judged(f"adapters, {kind}, {tokens} tokens", draw, got, expected, again=again)


def _stack(draw: Draw, inputs: int, widths: Sequence[int]) -> Stack:
    """As large as what they are beside."""
    most = max(_RANKS) * len(widths)
    count = len(_RANKS) + 1
    down, up = draw(count, most, inputs) * 0, draw(count, most, sum(widths)) * 0
    for number, rank in enumerate(_RANKS, 1):
        column = 0
        for part, width in enumerate(widths):
            at = slice(part * rank, (part + 1) * rank)
            down[number, at] = draw(rank, inputs, scale=inputs**-0.5)
            up[number, at, column : column + width] = draw(rank, width, scale=rank**-0.5)
            column += width
    return Stack.of(down, up)


def _tuned(x: Tensor, weight: Tensor, stack: Stack, numbers: Sequence[int]) -> Tensor:
    """float64 [rows, outputs]."""
    y, of = x @ weight.double().T, torch.tensor(numbers, device=x.device)
    for number in range(1, len(stack.down)):
        mine = of == number
        y[mine] += x[mine] @ stack.down[number].double().T @ stack.up[number].double()
    return y
