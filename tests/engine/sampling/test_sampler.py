"""What the sampler draws, against float64 references: the distribution asked for, and from nothing else."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sampler_cases import CPU, KERNELS, both, draw, logit_lists, row

from headgate.engine.kernels.interface import Kernels
from headgate.engine.sampling.noise import gumbel
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.sampling.sampler import Sampler, SamplingRow
from headgate.engine.sampling.truncation import drop_unlikely, scaled, truncate


def reference_probabilities(logits: np.ndarray, params: SamplingParams) -> np.ndarray:
    """The distribution that `params` asks for, in float64, by sorting everything."""
    x = logits.astype(np.float64) / params.temperature
    p = np.exp(x - x.max())
    order = np.lexsort((np.arange(len(p)), -p))
    keep = np.ones(len(p), dtype=bool)
    if params.top_k:
        keep[order[params.top_k :]] = False
    p = np.where(keep, p, 0.0)
    p /= p.sum()
    if params.top_p < 1.0:
        mass = 0.0
        for token in order:
            if mass >= params.top_p - 1e-12:
                p[token] = 0.0
            mass += p[token]
    p[p < params.min_p * p.max() * (1 - 1e-9)] = 0.0
    return p / p.sum()


def chi_square(counts: np.ndarray, expected: np.ndarray) -> float:
    """Standardised chi-square: about normal(0, 1) when the counts follow the expectation."""
    degrees = len(expected) - 1
    return (((counts - expected) ** 2 / expected).sum() - degrees) / math.sqrt(2 * degrees)


@both
@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(seed=3),
        SamplingParams(seed=4, temperature=0.5),
        SamplingParams(seed=5, top_k=4),
        SamplingParams(seed=6, top_p=0.8),
        SamplingParams(seed=7, min_p=0.2),
        SamplingParams(seed=8, temperature=1.5, top_k=6, top_p=0.9, min_p=0.1),
        SamplingParams(seed=None),
    ],
)
def test_draws_follow_the_distribution(kernels: Kernels, params: SamplingParams) -> None:
    logits = np.random.default_rng(0).normal(size=12).astype(np.float32) * 1.5
    draws = 20_000
    counts = np.bincount(draw(kernels, logits, params, draws), minlength=12)
    expected = reference_probabilities(logits, params) * draws
    assert (counts[expected == 0] == 0).all()
    kept = expected > 0
    assert kept.sum() > 1
    assert abs(chi_square(counts[kept], expected[kept])) < 4


@both
def test_neighbouring_positions_choices_and_seeds_are_independent(kernels: Kernels) -> None:
    sampler = Sampler(4, CPU, kernels)
    draws = 8000
    batch = torch.zeros(draws, 4)

    def tokens(rows: list[SamplingRow]) -> np.ndarray:
        return np.array(sampler.sample(batch, rows).token_ids)

    base = tokens([row(SamplingParams(seed=1), position) for position in range(draws)])
    others = [
        tokens([row(SamplingParams(seed=1), position + 1) for position in range(draws)]),
        tokens([row(SamplingParams(seed=1), position, choice=1) for position in range(draws)]),
        tokens([row(SamplingParams(seed=2), position) for position in range(draws)]),
        tokens([row(SamplingParams(seed=-1), position) for position in range(draws)]),
        tokens([row(SamplingParams(seed=1 + (1 << 40)), position) for position in range(draws)]),
    ]
    for other in others:
        pairs = np.bincount(base * 4 + other, minlength=16)
        assert abs(chi_square(pairs, np.full(16, draws / 16))) < 4


def test_every_bit_of_a_key_gives_unrelated_noise() -> None:
    ids = torch.arange(4096, dtype=torch.int32).unsqueeze(0)

    def ranks(high: list[int], low: list[int]) -> torch.Tensor:
        """The noise as standardised uniforms: [keys, tokens]."""
        noise = gumbel([torch.tensor(half, dtype=torch.int32).unsqueeze(-1) for half in (high, low)], ids)
        assert noise.isfinite().all()
        return (noise.double().neg().exp().neg().exp() - 0.5) * math.sqrt(12)

    bits = [1 << bit for bit in range(31)] + [-(1 << 31)]
    base = (12345, -67890)
    high = ranks([base[0] ^ bit for bit in bits], [base[1]] * 32)
    low = ranks([base[0]] * 32, [base[1] ^ bit for bit in bits])
    related = torch.cat([high, low]) @ ranks([base[0]], [base[1]]).T / 4096
    assert related.abs().max() < 5 / math.sqrt(4096)


@both
def test_rare_tokens_of_a_large_vocabulary_are_drawn_as_often_as_they_should(kernels: Kernels) -> None:
    """Half the mass on one token, half spread over 30,000: no token range is favoured by the noise."""
    size, draws = 30_000, 600
    logits = np.zeros(size, dtype=np.float32)
    logits[17] = math.log(size - 1)
    tokens = draw(kernels, logits, SamplingParams(seed=11), draws)
    rare = tokens[tokens != 17]
    assert abs(len(rare) - draws / 2) < 4 * math.sqrt(draws / 4)
    bins = np.bincount(rare * 10 // size, minlength=10)
    assert abs(chi_square(bins, np.full(10, len(rare) / 10))) < 4


@both
@given(
    logit_lists,
    st.floats(0.25, 4),
    st.integers(0, 26),
    st.one_of(st.just(1.0), st.floats(0.01, 0.999)),
    st.one_of(st.just(0.0), st.floats(0.01, 0.9)),
)
@settings(deadline=None, max_examples=150)
def test_truncation_keeps_exactly_the_reference_set(
    kernels: Kernels, values: list[float], temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    logits = np.array(values, dtype=np.float32)
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=0)
    expected = reference_probabilities(logits, params)
    # float32 cannot settle a mass or a share that lies on the limit: the same set must come out a hair either side.
    for hair in (1e-5, -1e-5):
        near = SamplingParams(
            temperature=temperature,
            top_k=top_k,
            top_p=top_p if top_p == 1.0 else top_p + hair,
            min_p=max(0.0, min_p * (1 + hair)),
        )
        assume(((reference_probabilities(logits, near) > 0) == (expected > 0)).all())
    size = len(values)
    scores = scaled(torch.from_numpy(logits).unsqueeze(0), torch.tensor([[temperature]]))
    limit = torch.tensor([[min(top_k, size)]]) if top_k else None
    candidates = truncate(scores, limit, torch.tensor([[top_p]], dtype=torch.float64), size)
    kept = candidates.token_ids[drop_unlikely(candidates.scores, [min_p]) > -torch.inf]
    assert set(kept.tolist()) == set(np.flatnonzero(expected).tolist())
    assert set(draw(kernels, logits, params, 20).tolist()) <= set(kept.tolist())


@both
@pytest.mark.parametrize("top_k", [1, 3, 64, 65, 1024, 1025, 2999, 3000, 10_000])
def test_wide_top_k(kernels: Kernels, top_k: int) -> None:
    logits = np.random.default_rng(1).permutation(3000).astype(np.float32) / 3000
    drawn = draw(kernels, logits, SamplingParams(seed=1, top_k=top_k, temperature=100.0), 500)
    assert set(drawn.tolist()) <= set(np.argsort(-logits)[:top_k].tolist())
    assert len(set(drawn.tolist())) > min(top_k, 200) // 2


@both
def test_a_nucleus_wider_than_the_fast_path_is_exact(kernels: Kernels) -> None:
    """Of 4000 equal tokens top_p 0.75 keeps the first 3000; a peaked row in the same batch is untouched by that."""
    sampler = Sampler(4000, CPU, kernels)
    peaked = torch.zeros(4000)
    peaked[:2] = 30.0
    batch = torch.stack([torch.zeros(4000), peaked] * 400)
    params = SamplingParams(seed=1, top_p=0.75)
    tokens = np.array(sampler.sample(batch, [row(params, position) for position in range(800)]).token_ids)
    flat = tokens[::2]
    assert flat.max() < 3000
    assert flat.max() > 2900
    assert set(tokens[1::2].tolist()) == {0, 1}
    alone = [sampler.sample(batch[i : i + 1], [row(params, i)]).token_ids[0] for i in range(20)]
    assert alone == tokens[:20].tolist()


@both
def test_ties_at_the_limit_keep_the_lowest_ids(kernels: Kernels) -> None:
    logits = np.zeros(300, dtype=np.float32)
    assert set(draw(kernels, logits, SamplingParams(seed=1, top_k=3), 200).tolist()) == {0, 1, 2}
    assert set(draw(kernels, logits, SamplingParams(seed=1, top_p=0.01), 200).tolist()) == {0, 1, 2}
    negative_zero = logits.copy()
    negative_zero[0] = -0.0
    assert set(draw(kernels, negative_zero, SamplingParams(seed=1, top_k=1), 5).tolist()) == {0}


@both
def test_masked_tokens_are_never_drawn(kernels: Kernels) -> None:
    logits = np.full(50, -np.inf, dtype=np.float32)
    logits[[3, 8]] = 0.0
    for params in (SamplingParams(seed=1), SamplingParams(seed=1, top_k=10), SamplingParams(seed=1, top_p=0.99)):
        assert set(draw(kernels, logits, params, 100).tolist()) == {3, 8}


@both
def test_extreme_temperatures(kernels: Kernels) -> None:
    logits = np.array([1e4, 1e4 - 1, -1e4], dtype=np.float32)
    assert set(draw(kernels, logits, SamplingParams(seed=1, temperature=1e-4), 50).tolist()) == {0}
    assert set(draw(kernels, logits, SamplingParams(seed=1, temperature=1e-30), 50).tolist()) == {0}
    assert set(draw(kernels, logits, SamplingParams(seed=1, temperature=1e30), 200).tolist()) == {0, 1, 2}


@both
@pytest.mark.parametrize("temperature", [0.0, 1e-4, 2.0])
@pytest.mark.parametrize(("penalty", "likeliest"), [(5e-324, 2), (1e-40, 2), (1e-30, 2), (1e30, 3), (1e300, 3)])
def test_repetition_penalties_beyond_float32(
    kernels: Kernels, temperature: float, penalty: float, likeliest: int
) -> None:
    logits = torch.tensor([[-6.0, 5.0, 6.0, 0.5, -2.0]])
    params = SamplingParams(seed=1, temperature=temperature, repetition_penalty=penalty, logit_bias=((3, 90.0),))
    drawn = Sampler(5, CPU, kernels).sample(logits, [row(params, prompt=(0, 1), output=(2,))])
    assert drawn.token_ids == [likeliest]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@settings(max_examples=80, deadline=None)
@given(
    n=st.integers(1, 6000),
    spread=st.sampled_from([0.0, 0.01, 1.0, 4.0, 30.0]),
    temperature=st.sampled_from([1e-4, 0.3, 1.0, 7.0]),
    top_k=st.sampled_from([0, 1, 3, 40, 93, 94, 95, 700, 5999]),
    top_p=st.sampled_from([1.0, 0.999, 0.9, 0.3, 1e-6]),
    min_p=st.sampled_from([0.0, 0.0, 0.02, 0.7]),
    seed=st.integers(0, 999),
)
def test_the_kernels_draw_what_stock_operators_do(
    dtype: torch.dtype, n: int, spread: float, temperature: float, top_k: int, top_p: float, min_p: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = (torch.randn(1, n, generator=generator) * spread).to(dtype).expand(16, n).contiguous()
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed)
    rows = [row(params, position) for position in range(16)]
    drawn = [Sampler(n, CPU, kernels).sample(logits, rows).token_ids for kernels in KERNELS.values()]
    # Logarithms and masses differ in the last place: once in a great while that decides.
    assert sum(a != b for a, b in zip(drawn[0], drawn[-1], strict=True)) <= 1
