"""Rows with adapters of their own in Triton's interpreter, against sums in float64."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from kernel_cases import randn
from triton_cases import in_the_interpreter, triton_kernels

from headgate.engine.kernels.interface import Mlp
from headgate.engine.kernels.reference import ReferenceKernels
from headgate.engine.models.adapters.linear import AdapterRows, Stack
from headgate.engine.quant.linear import DenseLinear, Linear

pytestmark = in_the_interpreter

CPU, EPS = torch.device("cpu"), 1e-6


def drawn(
    generator: torch.Generator, dtype: torch.dtype, inputs: int, widths: Sequence[int], ranks: Sequence[int]
) -> Stack:
    """Of adapters with these ranks in each part of a layer but one, which is another's by turns."""
    rank = max(ranks) * len(widths)
    down = torch.zeros(len(ranks) + 1, rank, inputs, dtype=dtype)
    up = torch.zeros(len(ranks) + 1, rank, sum(widths), dtype=dtype)
    for number, own in enumerate(ranks, 1):
        used = column = 0
        for part, width in enumerate(widths):
            if len(widths) == 1 or part != number % len(widths):
                down[number, used : used + own] = randn(generator, dtype, own, inputs) / inputs**0.5
                up[number, used : used + own, column : column + width] = randn(generator, dtype, own, width) / own**0.5
                used += own
            column += width
    return Stack.of(down, up)


def placed(numbers: Sequence[int], count: int) -> AdapterRows:
    rows = AdapterRows(count, CPU)
    rows.place(numbers, [1] * len(numbers), range(len(numbers)))
    return rows


def layers(
    stack: Stack, rows: AdapterRows, weight: torch.Tensor, numbers: Sequence[int]
) -> tuple[Linear, list[DenseLinear]]:
    """The layer under test, and for each of these rows one in float64 that has its factors merged."""
    kernels = triton_kernels()
    tuned = kernels.adapted(kernels.linear(weight, None, "native"), stack, rows.every)
    merged = [weight.double() + stack.up[n].double().T @ stack.down[n].double() for n in numbers]
    return tuned, [DenseLinear(each) for each in merged]


def row_by_row(exact: Sequence[Linear], x: torch.Tensor) -> torch.Tensor:
    return torch.cat([layer(x[at : at + 1].double()) for at, layer in enumerate(exact)])


# Rows one by one, then tiles: one adapter, all of them in each tile, rows that end in a tile, more ranks than a tile.
CASES: dict[str, tuple[int, list[int], list[int], list[int]]] = {
    "one row": (70, [37], [3], [1]),
    "mixed rows": (600, [80, 130, 41], [4, 1, 7], [1, 0, 3, 2, 0, 1, 1]),
    "many ranks": (33, [300], [20, 250], [2]),
    "none": (40, [48], [2], [0, 0, 0]),
    "a prompt": (70, [140, 20], [70], [1] * 41),
    "prompts": (40, [33, 96, 200], [30, 100, 9], [0] * 5 + [2] * 7 + [1] * 20 + [3] * 4 + [2]),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("case", CASES)
def test_each_row_gets_what_its_adapter_makes(case: str, dtype: torch.dtype) -> None:
    inputs, widths, ranks, numbers = CASES[case]
    generator = torch.Generator().manual_seed(inputs)
    stack = drawn(generator, dtype, inputs, widths, ranks)
    weight, x = (
        randn(generator, dtype, sum(widths), inputs) / inputs**0.5,
        randn(generator, dtype, len(numbers), inputs),
    )
    rows = placed(numbers, len(ranks))
    tuned, exact = layers(stack, rows, weight, numbers)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-2
    torch.testing.assert_close(tuned(x).double(), row_by_row(exact, x), rtol=tolerance, atol=tolerance)
    bare = [at for at, number in enumerate(numbers) if not number]
    assert torch.equal(tuned(x)[bare], triton_kernels().linear(weight, None, "native")(x)[bare])
    with rows.on_device(torch.tensor(numbers).flip(0)):
        assert torch.equal(tuned(x.flip(0)), tuned(x.flip(0)))
        torch.testing.assert_close(
            tuned(x.flip(0)).flip(0).double(), row_by_row(exact, x), rtol=tolerance, atol=tolerance
        )


def test_a_row_that_is_not_finite_spoils_no_other() -> None:
    generator = torch.Generator().manual_seed(0)
    for numbers in ([1, 2, 1], [1, 2, 0] * 90):
        stack = drawn(generator, torch.float32, 20, [30], [16, 2])
        weight, x = randn(generator, torch.float32, 30, 20), randn(generator, torch.float32, len(numbers), 20)
        tuned, exact = layers(stack, placed(numbers, 2), weight, numbers)
        x[1] = torch.nan
        got, wanted = tuned(x), row_by_row(exact, x)
        assert got[1].isnan().all()
        torch.testing.assert_close(got[2:].double(), wanted[2:], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("numbers", [[2], [1, 0, 2], [1] * 9 + [0, 2]], ids=["one", "few", "some"])
def test_norms_before_and_gates_behind(numbers: list[int]) -> None:
    """Of one row the layer and its factors both compute the norm; gates come behind what is added."""
    generator, reference, kernels = torch.Generator().manual_seed(1), ReferenceKernels(), triton_kernels()
    hidden, width, dtype = 72, 100, torch.float32
    rows = placed(numbers, 2)
    first, exact = layers(
        drawn(generator, dtype, hidden, [width, width], [5, 2]), rows,
        randn(generator, dtype, 2 * width, hidden) / hidden**0.5, numbers,
    )  # fmt: skip
    second, exact_second = layers(
        drawn(generator, dtype, width, [hidden], [3, 3]), rows,
        randn(generator, dtype, hidden, width) / width**0.5, numbers,
    )  # fmt: skip
    x, residual = (randn(generator, dtype, len(numbers), hidden) for _ in range(2))
    scale = randn(generator, dtype, hidden)
    total = x + residual
    normed, kept = kernels.add_rms_norm(x, residual.clone(), scale, EPS, first)
    got = kernels.feed_forward(Mlp(first, second), normed)
    between = row_by_row(exact, reference.rms_norm(total.double(), scale.double(), EPS))
    wanted = row_by_row(exact_second, reference.swiglu(between))
    torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(kept, total)
    plain = kernels.feed_forward(Mlp(first, second, "gelu"), kernels.rms_norm(total, scale, EPS, first))
    wanted = row_by_row(exact_second, reference.geglu(between))
    torch.testing.assert_close(plain.double(), wanted, rtol=1e-4, atol=1e-4)


def test_no_rows_go_on() -> None:
    stack, rows = drawn(torch.Generator().manual_seed(0), torch.float32, 16, [24], [2]), AdapterRows(1, CPU)
    rows.place([1], [3], [])
    kernels = triton_kernels()
    tuned = kernels.adapted(kernels.linear(torch.ones(24, 16), None, "native"), stack, rows.wanted)
    assert tuned(torch.zeros(0, 16)).shape == (0, 24)
