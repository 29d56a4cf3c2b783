"""The sampler's promises about rows: penalties, the same alone and in any batch, logprobs, and clear failure."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sampler_cases import CPU, both, every_kind, logit_lists, row

from headgate.engine.kernels.interface import Kernels
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.sampling.sampler import NonFiniteLogits, Sampler, SamplingRow


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_greedy_takes_the_lowest_of_equal_logits(dtype: torch.dtype) -> None:
    logits = torch.zeros(3, 5000, dtype=dtype)
    logits[0, [7, 4000]] = 2.0
    logits[1, [4999]] = 1.0
    rows = [row(SamplingParams(temperature=0.0), noise=i) for i in range(3)]
    assert Sampler(5000, CPU).sample(logits, rows).token_ids == [7, 4999, 0]


def reference_penalties(logits: np.ndarray, r: SamplingRow) -> np.ndarray:
    x = logits.astype(np.float64).copy()
    for token, addend in r.params.logit_bias:
        x[token] += addend
    for token in set(r.prompt) | set(r.output):
        x[token] = x[token] * r.params.repetition_penalty if x[token] < 0 else x[token] / r.params.repetition_penalty
    for token in set(r.output):
        x[token] -= r.params.presence_penalty + r.params.frequency_penalty * list(r.output).count(token)
    return x


tokens_of_ten = st.lists(st.integers(0, 9), max_size=12).map(tuple)
penalised = st.builds(
    SamplingParams,
    temperature=st.just(0.0),
    presence_penalty=st.sampled_from([0.0, 0.5, -1.0]),
    frequency_penalty=st.sampled_from([0.0, 0.75, -0.25]),
    repetition_penalty=st.sampled_from([1.0, 1.5, 0.5]),
    logit_bias=st.lists(st.tuples(st.integers(0, 9), st.floats(-3, 3)), max_size=4).map(tuple),
)


@given(
    st.lists(
        st.tuples(penalised, tokens_of_ten, tokens_of_ten, st.lists(st.floats(-4, 4), min_size=10, max_size=10)),
        min_size=1,
        max_size=4,
    )
)
@settings(deadline=None, max_examples=200)
def test_penalties_match_the_reference(cases: list) -> None:
    """Greedy choices after bias and penalties, several rows at once, with ordinary rows among them."""
    rows = [row(params, prompt=prompt, output=output) for params, prompt, output, _ in cases]
    logits = torch.tensor([values for *_, values in cases], dtype=torch.float32)
    before = logits.clone()
    chosen = Sampler(10, CPU).sample(logits, rows).token_ids
    assert torch.equal(logits, before)
    for r, x, token in zip(rows, before.numpy(), chosen, strict=True):
        expected = reference_penalties(x, r)
        assert expected[token] >= expected.max() - 1e-5


def test_a_kept_row_counts_new_output_only_once() -> None:
    """A row that lives across steps gives what a new row would give at each step."""
    params = SamplingParams(temperature=0.0, frequency_penalty=0.3, repetition_penalty=1.2)
    sampler = Sampler(6, CPU)
    output: list[int] = []
    kept = SamplingRow(params, (1, 2), output, 0, 2, 0)
    generator = torch.Generator().manual_seed(0)
    for _ in range(30):
        logits = torch.randn(1, 6, generator=generator)
        fresh = SamplingRow(params, (1, 2), tuple(output), 0, kept.position, 0)
        token = sampler.sample(logits, [kept]).token_ids[0]
        assert token == sampler.sample(logits, [fresh]).token_ids[0]
        assert token == int(reference_penalties(logits[0].numpy(), fresh).argmax())
        output.append(token)
        kept.position += 1


@both
@given(st.lists(st.integers(0, len(every_kind) - 1), min_size=1, max_size=8, unique=True), st.integers(0, 5))
@settings(deadline=None, max_examples=60)
def test_a_row_is_sampled_alike_alone_and_in_any_batch(kernels: Kernels, members: list[int], position: int) -> None:
    sampler = Sampler(2000, CPU, kernels)
    logits = torch.randn(len(every_kind), 2000, generator=torch.Generator().manual_seed(position)) * 2
    rows = [row(params, position, noise=i, prompt=(1, 2), output=(3, 3)) for i, params in enumerate(every_kind)]
    together = sampler.sample(logits[members], [rows[i] for i in members])
    for place, i in enumerate(members):
        alone = sampler.sample(logits[i : i + 1], [rows[i]])
        assert alone.token_ids[0] == together.token_ids[place]
        a, b = alone.logprobs[0], together.logprobs[place]
        assert (a is None) == (b is None) == (every_kind[i].logprobs is None)
        if a is not None and b is not None:
            assert a.logprob == pytest.approx(b.logprob, abs=1e-6)
            assert [token for token, _ in a.top] == [token for token, _ in b.top]


@given(
    logit_lists.filter(lambda values: len(values) >= 3),
    st.integers(0, 20),
    st.sampled_from([torch.float32, torch.bfloat16]),
)
@settings(deadline=None, max_examples=100)
def test_logprobs_are_the_models_own(values: list[float], count: int, dtype: torch.dtype) -> None:
    logits = torch.tensor([values, values[::-1]], dtype=dtype)
    params = SamplingParams(
        temperature=0.3, seed=1, logprobs=count, logit_bias=((0, 50.0),), presence_penalty=1.0, top_k=2
    )
    plain = SamplingParams(temperature=0.0)
    result = Sampler(len(values), CPU).sample(logits, [row(plain), row(params, output=(1,))])
    assert result.logprobs[0] is None
    reported = result.logprobs[1]
    assert reported is not None
    x = logits[1].double().numpy()
    expected = x - x.max() - math.log(np.exp(x - x.max()).sum())
    assert reported.token_id == result.token_ids[1]
    assert reported.logprob == pytest.approx(expected[reported.token_id], abs=1e-4)
    order = np.lexsort((np.arange(len(x)), -x))[:count].tolist()
    assert [token for token, _ in reported.top] == order
    assert [logprob for _, logprob in reported.top] == pytest.approx(expected[order].tolist(), abs=1e-4)


@both
@pytest.mark.parametrize("params", every_kind)
@pytest.mark.parametrize("bad", [math.nan, -math.nan, math.inf])
def test_rows_without_a_distribution_are_named(kernels: Kernels, params: SamplingParams, bad: float) -> None:
    logits = torch.randn(4, 2000, generator=torch.Generator().manual_seed(0))
    logits[1, 1500] = bad
    logits[3] = -math.inf
    with pytest.raises(NonFiniteLogits, match=r"\[1, 3\]") as failure:
        Sampler(2000, CPU, kernels).sample(logits, [row(params)] * 4)
    assert failure.value.rows == (1, 3)


def test_wrong_shapes_are_refused_and_an_empty_batch_is_not() -> None:
    sampler = Sampler(8, CPU)
    with pytest.raises(ValueError, match=r"\[1, 9\]; \[1, 8\]"):
        sampler.sample(torch.zeros(1, 9), [row(SamplingParams())])
    assert sampler.sample(torch.zeros(0, 8), []).token_ids == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_draws_what_the_cpu_draws() -> None:
    cuda = torch.device("cuda")
    logits = torch.randn(len(every_kind), 2000, generator=torch.Generator().manual_seed(0))
    rows = [row(params, 3, prompt=(1, 2), output=(3, 3)) for params in every_kind]
    here = Sampler(2000, CPU).sample(logits, rows)
    there = Sampler(2000, cuda).sample(logits.to(cuda), rows)
    assert here.token_ids == there.token_ids


@both
@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 3),
    n=st.integers(1, 5000),
    levels=st.integers(1, 400),
    seed=st.integers(0, 999),
    bad=st.sampled_from([math.nan, -math.nan, math.inf]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_likeliest_is_the_first_of_equal_ones(
    kernels: Kernels, rows: int, n: int, levels: int, seed: int, bad: float, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randint(-levels, 1, (rows, n), generator=generator).to(dtype)
    first = [(row == row.max()).nonzero()[0, 0].item() for row in logits]
    assert kernels.likeliest(logits).tolist() == first
    assert kernels.likeliest(logits[:0]).tolist() == [], "as where no row of a step is sound"
    logits[0, seed % n] = bad
    assert kernels.likeliest(logits).tolist() == [-1, *first[1:]]
    logits[0] = -math.inf
    assert kernels.likeliest(logits).tolist() == [-1, *first[1:]]
    if n > 1:
        logits[0, seed % n] = -3.0
        assert kernels.likeliest(logits).tolist() == [seed % n, *first[1:]]


@both
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_greedy_needs_no_rows_where_settings_are_plain(kernels: Kernels, dtype: torch.dtype) -> None:
    sampler = Sampler(3000, CPU, kernels)
    logits = torch.randn(5, 3000, generator=torch.Generator().manual_seed(1)).to(dtype)
    plain = SamplingParams(temperature=0.0)
    assert plain.plain
    assert sampler.likeliest(logits) == sampler.sample(logits, [row(plain)] * 5).token_ids
    logits[2, 7] = math.nan
    assert sampler.likeliest(logits)[2] == -1


@pytest.mark.parametrize("params", every_kind)
def test_only_plain_settings_are_plain(params: SamplingParams) -> None:
    assert not params.plain


def test_a_kept_row_works_its_biases_out_once() -> None:
    kept = row(SamplingParams(logit_bias=((5, 1.0), (3, -2.0), (5, 0.5))))
    tokens, addends = kept.biases()
    assert dict(zip(tokens.tolist(), addends.tolist(), strict=True)) == {5: 1.5, 3: -2.0}
    kept.position += 1
    assert kept.biases()[0] is tokens
