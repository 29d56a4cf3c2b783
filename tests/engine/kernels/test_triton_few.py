"""What Triton does for a few tokens in fewer launches, in its interpreter, against one operation after the other."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from kernel_cases import randn
from test_experts import make, tokens
from triton_cases import in_the_interpreter, right_fp8, triton_kernels

from headgate.engine.kernels.interface import Mlp
from headgate.engine.kernels.mixture import Mixture, ReferenceMixture
from headgate.engine.kernels.reference import ReferenceKernels
from headgate.engine.models.activation import Activation
from headgate.engine.quant.fp8 import Fp8Weight
from headgate.engine.quant.linear import DenseLinear, Linear

pytestmark = [in_the_interpreter, pytest.mark.usefixtures(right_fp8.__name__)]

REFERENCE = ReferenceKernels()
HIDDEN, WIDTH, EPS = 136, 128, 1e-6
FORMATS = ("native", "int8", "int4", "rows", "blocks")
Pair = tuple[Linear, Linear]


def layer(fmt: str, outputs: int, inputs: int, generator: torch.Generator, bias: torch.Tensor | None = None) -> Pair:
    """A layer of ours, and what it should compute in plain torch."""
    weight, kernels = randn(generator, torch.float32, outputs, inputs) / inputs**0.5, triton_kernels()
    if fmt in ("rows", "blocks"):
        kept = Fp8Weight.of(weight, blocks=fmt == "blocks")
        assert kernels.fp8 is not None
        return kernels.fp8.linear(kept, bias), DenseLinear(kept.expand(torch.float32), bias)
    mine = kernels.linear(weight, bias, fmt)  # type: ignore[arg-type]
    # Of rounded weights: what it makes of unit vectors, many at a time, which goes another way.
    return mine, DenseLinear(
        mine(torch.eye(inputs)).T if bias is None else mine(torch.eye(inputs)).T - bias[:, None], bias
    )


def close(got: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("count", "biased"), [(1, False), (4, True)])
@pytest.mark.parametrize("fmt", FORMATS)
def test_a_layer_and_the_norm_before_it(fmt: str, count: int, *, biased: bool) -> None:
    generator = torch.Generator().manual_seed(count)
    bias = randn(generator, torch.float32, WIDTH) if biased else None
    mine, plain = layer(fmt, WIDTH, HIDDEN, generator, bias)
    x, residual = (randn(generator, torch.float32, count, HIDDEN) for _ in range(2))
    scale = randn(generator, torch.float32, HIDDEN)
    kernels = triton_kernels()
    close(mine(x), plain(x))
    close(mine(kernels.rms_norm(x, scale, EPS, mine)), plain(REFERENCE.rms_norm(x, scale, EPS)))
    expected, total = REFERENCE.add_rms_norm(x, residual, scale, EPS)
    normed, kept = kernels.add_rms_norm(x, residual.clone(), scale, EPS, mine)
    close(mine(normed), plain(expected))
    close(kept, total)  # by now


@pytest.mark.parametrize(("fmt", "count", "biased"), [("native", 1, True), ("int8", 3, False), ("blocks", 1, False)])
def test_an_mlp(fmt: str, count: int, *, biased: bool) -> None:
    generator = torch.Generator().manual_seed(count)
    bias = randn(generator, torch.float32, 2 * WIDTH) if biased else None
    (gate_up, plain), (down, plain_down) = (
        layer(fmt, 2 * WIDTH, HIDDEN, generator, bias),
        layer(fmt, HIDDEN, WIDTH, generator),
    )
    x, kernels = randn(generator, torch.float32, count, HIDDEN), triton_kernels()
    close(kernels.feed_forward(Mlp(gate_up, down), x), REFERENCE.feed_forward(Mlp(plain, plain_down), x))
    ones = torch.ones(HIDDEN)
    normed = kernels.rms_norm(x, ones, EPS, gate_up)
    expected = REFERENCE.feed_forward(Mlp(plain, plain_down), REFERENCE.rms_norm(x, ones, EPS))
    close(kernels.feed_forward(Mlp(gate_up, down), normed), expected)


def test_a_layer_that_ends_inside_a_block_of_gates_goes_another_way() -> None:
    generator = torch.Generator().manual_seed(0)
    (gate_up, plain), (down, plain_down) = (
        layer("blocks", 200, HIDDEN, generator),
        layer("native", HIDDEN, 100, generator),
    )
    x = randn(generator, torch.float32, 1, HIDDEN)
    close(triton_kernels().feed_forward(Mlp(gate_up, down), x), REFERENCE.feed_forward(Mlp(plain, plain_down), x))


@pytest.mark.parametrize("activation", ["gelu", "relu2"])
def test_what_no_product_gates_goes_another_way(activation: Activation) -> None:
    generator = torch.Generator().manual_seed(0)
    (gate_up, plain), (down, plain_down) = (
        layer("native", 2 * WIDTH, HIDDEN, generator),
        layer("native", HIDDEN, WIDTH if activation == "gelu" else 2 * WIDTH, generator),
    )
    x = randn(generator, torch.float32, 1, HIDDEN)
    kernels, ours, theirs = triton_kernels(), Mlp(gate_up, down, activation), Mlp(plain, plain_down, activation)
    close(kernels.feed_forward(ours, x), REFERENCE.feed_forward(theirs, x))
    ones = torch.ones(HIDDEN)
    expected = REFERENCE.feed_forward(theirs, REFERENCE.rms_norm(x, ones, EPS))
    close(kernels.feed_forward(ours, kernels.rms_norm(x, ones, EPS, gate_up)), expected)


@pytest.mark.parametrize(
    ("count", "experts", "per_token", "shared", "normalize"),
    [(1, 5, 3, 0, True), (3, 5, 2, 0, False), (2, 3, 2, 16, True)],
)
def test_experts_behind_a_norm(count: int, experts: int, per_token: int, shared: int, *, normalize: bool) -> None:
    weights = replace(make(40, 16, experts, per_token, shared=shared, dtype=torch.float32), normalize=normalize)
    kernels, plain = triton_kernels(), ReferenceMixture(weights, DenseLinear)
    mixture: Mixture = kernels.mixture(weights, "native")
    x = tokens(weights, count)
    residual, scale = x.flip(0).flip(1), torch.linspace(0.5, 2, 40)
    for _ in range(2):  # the second time finds what the first one left
        close(mixture(x), plain(x))
        expected, total = REFERENCE.add_rms_norm(x, residual, scale, EPS)
        normed, kept = kernels.add_rms_norm(x, residual.clone(), scale, EPS, mixture)
        close(mixture(normed), plain(expected))
        close(kept, total)


@pytest.mark.parametrize(
    ("pairs", "count", "size"), [(1, 4, 16), (33, 4, 16), (1500, 128, 16), (3000, 3, 64), (40, 200, 16)]
)
def test_pairs_are_sorted_by_expert(pairs: int, count: int, size: int) -> None:
    from headgate.engine.kernels.triton.by_expert import by_expert

    generator = torch.Generator().manual_seed(pairs)
    # Some experts are much wanted, some by nobody.
    chosen = (torch.rand(pairs, 1, generator=generator) ** 2 * count).int()
    sorted_pairs, experts = by_expert(chosen, count, size)
    expected: list[tuple[int, list[int]]] = []
    for expert in range(count):
        mine = (chosen.flatten() == expert).nonzero().flatten().tolist()
        expected += [(expert, mine[at : at + size]) for at in range(0, len(mine), size)]
    assert experts.tolist() == [expert for expert, _ in expected] + [count] * (len(experts) - len(expected))
    for row, (_, mine) in zip(sorted_pairs.tolist(), expected, strict=False):
        assert row == mine + [pairs] * (size - len(mine))
