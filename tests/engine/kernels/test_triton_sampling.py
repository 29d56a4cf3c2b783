"""Triton's sampling against the sampler's own definitions, in its interpreter."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from row_cases import choices, rows_of, top_ks
from triton_cases import in_the_interpreter, triton_kernels

from headgate.engine.kernels.reference import ReferenceKernels
from headgate.engine.kernels.reference_rows import ReferenceRows
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.sampling.sampler import NonFiniteLogits, Sampler, SamplingRow

pytestmark = in_the_interpreter

CPU = torch.device("cpu")
INF, NAN = float("inf"), float("nan")


def logits_of(rows: int, width: int, seed: int, levels: float) -> torch.Tensor:
    """With few `levels` many are equal; a tenth is ruled out."""
    draw = torch.Generator().manual_seed(seed)
    logits = (torch.randn(rows, width, generator=draw) * 3 * levels).round() / levels
    return logits.masked_fill(torch.rand(rows, width, generator=draw) < 0.1, -INF)


@given(
    width=st.sampled_from([1, 2, 37, 500, 2048, 2049, 4500]),
    seed=st.integers(0, 1000),
    levels=st.sampled_from([0.3, 2.0, 1000.0]),
    dtype=st.sampled_from([torch.float32, torch.float16]),
    wanted=st.lists(st.tuples(choices, top_ks), min_size=1, max_size=4),
)
@settings(max_examples=30, deadline=None)
def test_rows_get_what_the_definition_gives(
    width: int, seed: int, levels: float, dtype: torch.dtype, wanted: list[tuple[tuple[float, ...], int]]
) -> None:
    state, logits = rows_of(wanted, width, seed), logits_of(len(wanted) + 1, width, seed, levels).to(dtype)
    order = torch.randperm(len(wanted) + 1, generator=torch.Generator().manual_seed(seed))
    keys = torch.randint(-(2**31), 2**31 - 1, (len(order), 2), generator=torch.Generator().manual_seed(seed)).int()
    kept = logits.clone()
    expected, logprobs = ReferenceRows().choose(logits, state, order, keys)
    got, told = triton_kernels().rows().choose(logits, state, order, keys)
    assert got.tolist() == expected.tolist()
    sound = expected >= 0
    torch.testing.assert_close(told[sound], logprobs[sound], rtol=1e-5, atol=1e-5)
    assert torch.equal(logits, kept)


@given(
    width=st.sampled_from([3, 300, 4100]),
    seed=st.integers(0, 1000),
    wanted=st.lists(st.tuples(choices, top_ks), min_size=1, max_size=4),
)
@settings(max_examples=12, deadline=None)
def test_the_sampler_draws_the_same_with_these_kernels(
    width: int, seed: int, wanted: list[tuple[tuple[float, ...], int]]
) -> None:
    rows = [
        SamplingRow(SamplingParams(max(heat, 1e-6), top_p, k, min_p), (1,), (), 0, 9, seed + number)
        for number, ((heat, top_p, min_p, *_), k) in enumerate(wanted)
    ]
    logits = logits_of(len(rows), width, seed, 1000.0)
    logits[0] = -INF if seed % 10 == 0 else logits[0]
    got = [sampled(Sampler(width, CPU, kernels), logits, rows) for kernels in (ReferenceKernels(), triton_kernels())]
    assert got[0] == got[1]


def sampled(sampler: Sampler, logits: torch.Tensor, rows: list[SamplingRow]) -> Sequence[int]:
    """The rows' tokens, or which of them have none."""
    try:
        return sampler.sample(logits, rows).token_ids
    except NonFiniteLogits as error:
        return error.rows


@pytest.mark.parametrize("bad", [NAN, INF])
def test_a_row_without_a_distribution_has_no_token(bad: float) -> None:
    logits = logits_of(4, 4100, 1, 1000.0)
    logits[1, 3000], logits[2] = bad, -INF
    kernels = triton_kernels()
    expected = ReferenceKernels().likeliest(logits).tolist()
    assert kernels.likeliest(logits).tolist() == expected
    assert [token >= 0 for token in expected] == [True, False, False, True]
    state = rows_of([((1.0, 0.9, 0.0, 1.0, 0.0, 0.0), 5 * (row % 2)) for row in range(4)], 4100, 1)
    chosen, _ = kernels.rows().choose(logits, state, torch.arange(4), torch.ones(4, 2, dtype=torch.int32))
    assert [token >= 0 for token in chosen.tolist()] == [True, False, False, True]


def test_no_rows() -> None:
    assert triton_kernels().likeliest(torch.zeros(0, 8)).shape == (0,)
