"""The checks that a machine with a GPU is asked pass in the interpreter, where new memory is NaN at first."""

from __future__ import annotations

import pytest
import torch
from triton_cases import in_the_interpreter, right_fp8, triton_kernels

from headgate.engine.kernels.checks.fp8 import fp8_checks
from headgate.engine.kernels.checks.inputs import Draw, Sizes
from headgate.engine.kernels.checks.operations import kernel_checks
from headgate.engine.kernels.checks.rows import row_checks

pytestmark = in_the_interpreter


@pytest.mark.usefixtures(right_fp8.__name__)
def test_checks_pass() -> None:
    sizes = Sizes(
        hidden=48, width=40, heads=4, kv_heads=2, head_dim=24, experts=6, expert_width=24, per_token=2, tokens=(17,),
        decoding=((0, 1), (139, 140)), prompts=((3, 30), (30, 31)), window=20,
    )  # fmt: skip
    draw = Draw(torch.device("cpu"), torch.float32)
    lines = [*kernel_checks(triton_kernels(), draw.device, draw.dtype, sizes)]
    assert not [line for line in lines if not line.ok]
    assert len(lines) == 12 + 2 * 4 + 2 * 4 + 9 + 2 + 3
    lines = [*fp8_checks(triton_kernels(), draw, sizes)]
    assert not [line for line in lines if not line.ok]
    assert len(lines) == 2 * 3


@pytest.mark.usefixtures(right_fp8.__name__)
def test_checks_of_what_only_some_models_have_pass() -> None:
    sizes = Sizes(
        hidden=48, width=40, heads=4, kv_heads=2, head_dim=24, head_norms=False, biases=True, experts=6,
        expert_width=24, per_token=2, shared_width=40, normalize=False, tokens=(1,), decoding=((0, 1), (139, 140)),
        prompts=((3, 30),), window=20,
    )  # fmt: skip
    lines = [*kernel_checks(triton_kernels(), torch.device("cpu"), torch.float32, sizes)]
    assert not [line for line in lines if not line.ok]
    assert len(lines) == 12 + 2 * 4 + 2 * 4 + 2 * 9 + 2 + 3


def test_checks_of_steps_on_rows_pass() -> None:
    lines = [*row_checks(triton_kernels().rows(), Draw(torch.device("cpu"), torch.float32), 2100, 1)]
    assert not [line for line in lines if not line.ok]
