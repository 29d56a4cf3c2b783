"""Compiled attention against the reference in float64, over odd shapes, and with garbage where nobody may look."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import (
    CPU,
    NAN,
    REFERENCE,
    Step,
    attend,
    check,
    check_attention,
    dtypes,
    expected_attention,
    make_step,
    needs_kernels,
    randn,
    seeing_each_other,
)

from headgate.engine.kernels.cpu.kernels import CpuKernels
from headgate.engine.kernels.interface import AttentionBatch, KVLayer
from headgate.engine.quant.linear import quantize_rows

pytestmark = needs_kernels

spans = st.tuples(st.integers(0, 599), st.just(1) | st.integers(1, 70)).map(lambda p: (p[0], min(600, p[0] + p[1])))


def asked(dim: st.SearchStrategy[int], window: st.SearchStrategy[int | None]) -> st.SearchStrategy[dict[str, Any]]:
    """What steps are made of, by the parameters of `make_step`."""
    return st.fixed_dictionaries(
        {
            "spans": st.lists(spans, min_size=1, max_size=5),
            "dtype": dtypes,
            "kv_heads": st.integers(1, 3),
            "group": st.integers(1, 8),
            "dim": dim,
            "block_size": st.sampled_from([1, 4, 16]),
            "window": window,
            "sinks": st.booleans(),
            "seed": st.integers(0, 999),
        }
    )


@settings(max_examples=120, deadline=None)
@given(
    asked(
        st.integers(8, 256) | st.sampled_from([8, 16, 64, 80, 96, 128, 256]),
        st.none() | st.integers(1, 64) | st.integers(65, 700),
    )
)
def test_paged_attention(case: dict[str, Any]) -> None:
    check_attention(make_step(**case), case["window"])


@settings(max_examples=30, deadline=None)
@given(asked(st.sampled_from([8, 40, 64, 128]), st.none() | st.integers(1, 700)), st.integers(1, 90), st.booleans())
def test_rows_may_see_each_other(case: dict[str, Any], whole: int, int8: bool) -> None:
    step = seeing_each_other(make_step(**case), whole)
    check_attention(rounded(step) if int8 else step, case["window"])


@pytest.mark.parametrize("window", [None, 37])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_that_see_each_other_get_the_same_bits_in_any_step(dtype: torch.dtype, window: int | None) -> None:
    spans, whole = [(500, 600), (0, 1)], 30
    step = seeing_each_other(make_step(spans, dtype, kv_heads=2, group=2, dim=64, block_size=16, window=window), whole)
    together = attend(step, window)
    for first in range(0, 100, whole):
        rows = slice(first, min(first + whole, 100))
        count, limits = rows.stop - first, torch.full((rows.stop - first,), 500 + rows.stop, dtype=torch.int32)
        batch = replace(
            step.batch, counts=[count], contexts=[500 + rows.stop], tables=step.batch.tables[:1], limits=limits
        )
        assert torch.equal(attend(replace(step, batch=batch, q=step.q[rows]), window), together[rows])


@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("window", [None, 100])
def test_prompts_of_every_height_with_a_cached_prefix(dim: int, window: int | None) -> None:
    prefixes = (0, 3, 61, 500, 515)
    spans = [(prefixes[i % 5], prefixes[i % 5] + i) for i in range(1, 68)]
    step = make_step(spans, torch.bfloat16, kv_heads=1, group=4, dim=dim, block_size=16, window=window)
    step.q *= 2  # weights of some size
    check_attention(step, window)


def rounded(step: Step) -> Step:
    """The same step over an int8 cache; NaN where nobody may look is a scale of NaN."""
    (keys, by_keys), (values, by_values) = (
        quantize_rows(t.flatten(0, 1)) for t in (step.layer.keys, step.layer.values)
    )
    shape = step.layer.keys.shape
    scales = [scale.view(shape[:2]).masked_fill(~step.seen[:, None], NAN) for scale in (by_keys, by_values)]
    return replace(step, layer=KVLayer(keys.view(shape), values.view(shape), *scales))


@settings(max_examples=120, deadline=None)
@given(asked(st.integers(1, 256) | st.sampled_from([64, 80, 96, 128]), st.none() | st.integers(1, 700)))
def test_paged_attention_over_int8(case: dict[str, Any]) -> None:
    check_attention(rounded(make_step(**case)), case["window"])


@settings(max_examples=60, deadline=None)
@given(
    tokens=st.integers(0, 40),
    heads=st.integers(1, 5),
    dim=st.integers(1, 256) | st.sampled_from([64, 128]),
    dtype=dtypes,
    bad=st.sampled_from([None, NAN, float("inf")]),
    seed=st.integers(0, 99),
)
def test_int8_keys_and_values_are_the_references(
    tokens: int, heads: int, dim: int, dtype: torch.dtype, bad: float | None, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    fused = randn(generator, dtype, tokens, 2 * heads * dim)
    if tokens:
        fused[0] = 0  # a row of zeros
    if tokens and bad is not None:
        fused[-1, -1] = bad
    keys, values = (t.reshape(-1, heads, dim) for t in fused.split(heads * dim, dim=-1))
    slots = torch.randperm(tokens + 3, generator=generator)[:tokens]
    got, expected = (
        KVLayer(*torch.zeros(2, tokens + 3, heads, dim, dtype=torch.int8), *torch.zeros(2, tokens + 3, heads))
        for _ in range(2)
    )
    CpuKernels().write_kv(got, keys, values, slots)
    REFERENCE.write_kv(expected, keys, values, slots)
    assert got.key_scales is not None
    assert got.value_scales is not None
    torch.testing.assert_close(got.key_scales, expected.key_scales, rtol=0, atol=0)
    torch.testing.assert_close(got.value_scales, expected.value_scales, rtol=0, atol=0, equal_nan=True)
    finite = got.value_scales.isfinite()
    assert torch.equal(got.keys, expected.keys)
    assert torch.equal(got.values[finite], expected.values[finite])


def test_int8_caches_without_scales_are_refused() -> None:
    kernels = CpuKernels()
    layer = KVLayer(*torch.zeros(2, 4, 1, 8, dtype=torch.int8))
    with pytest.raises(RuntimeError, match="int8 keys and values take float32 scales"):
        kernels.write_kv(layer, torch.ones(1, 1, 8), torch.ones(1, 1, 8), torch.tensor([0]))
    plain = KVLayer(*torch.zeros(2, 4, 1, 8), *torch.zeros(2, 4, 1))
    with pytest.raises(RuntimeError, match="scales go with int8"):
        kernels.write_kv(plain, torch.ones(1, 1, 8), torch.ones(1, 1, 8), torch.tensor([0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("window", [None, 2000])
@pytest.mark.parametrize("others", [0, 9])
def test_long_contexts_are_split_and_merged(window: int | None, others: int, dtype: torch.dtype) -> None:
    spans = [(2999, 3000), *[(300 + i, 301 + i) for i in range(others)], (40, 60)]
    step = make_step(spans, dtype, kv_heads=1, group=4, dim=24, block_size=16, window=window)
    step.q[0] *= 5  # scores far apart, so that the splits weigh differently
    check_attention(step, window)


@pytest.mark.parametrize("window", [None, 100, 1200])
@pytest.mark.parametrize("int8", [False, True])
def test_heads_of_many_decoded_tokens_go_together(window: int | None, int8: bool) -> None:
    """Five heads, some at a time: as many runs of neighbours as there should be leave a shorter one."""
    contexts = (1, 17, 63, 64, 65, 130, 511, 512, 513, 900, 1300)
    spans = [(0, 40), *[(context - 1, context) for context in contexts], (5, 9)]
    step = make_step(spans, torch.bfloat16, kv_heads=5, group=2, dim=64, block_size=16, window=window)
    check_attention(rounded(step) if int8 else step, window)


@pytest.mark.parametrize("shape", [(3, 40, 4), (1, 96, 16), (2, 128, 16), (4, 64, 16), (8, 32, 16)])
@pytest.mark.parametrize("window", [None, 37, 600])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("sinks", [False, True])
def test_neighbours_and_chunking_change_no_bit(
    sinks: bool, dtype: torch.dtype, window: int | None, shape: tuple[int, int, int]
) -> None:
    group, dim, block_size = shape
    spans = [(1299, 1300), (0, 100), (12, 13), (500, 533), (1000, 1100)]
    step = make_step(spans, dtype, kv_heads=2, group=group, dim=dim, block_size=block_size, window=window, sinks=sinks)
    together = attend(step, window).split(step.batch.counts)
    kernels = CpuKernels()
    for i, (start, stop) in enumerate(spans):
        queries = step.q.split(step.batch.counts)[i]
        for size in (1, 7, 1000):
            parts = []
            for first in range(start, stop, size):
                last = min(first + size, stop)
                batch = AttentionBatch([last - first], [last], [step.batch.tables[i]], step.batch.slots, block_size)
                plan, asked = kernels.plan(batch, CPU), queries[first - start : last - start]
                parts.append(kernels.paged_attention(asked, step.layer, plan, window, step.sinks))
            assert torch.equal(torch.cat(parts), together[i])


@pytest.mark.parametrize("what", ["keys", "values"])
@pytest.mark.parametrize(("group", "dim"), [(1, 16), (4, 16), (2, 1024)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nan_reaches_exactly_the_queries_that_see_it(what: str, group: int, dim: int, dtype: torch.dtype) -> None:
    window = 30
    step = make_step([(0, 90)], dtype, kv_heads=2, group=group, dim=dim, block_size=4, window=window)
    getattr(step.layer, what)[step.slot(0, 50), 1, 3] = NAN
    nan = attend(step, window).isnan().any(dim=2)
    assert not nan[:, :group].any()
    assert nan[50:80, group:].all()
    assert not nan[:50].any()
    assert not nan[80:].any()


@pytest.mark.parametrize("what", ["q", "keys", "values"])
def test_a_decoded_token_gets_the_bits_of_a_prompts_below_the_normal_numbers(what: str) -> None:
    """Products and sums there may be flushed to zero, by either way or by none."""
    step = make_step([(50, 90)], torch.bfloat16, kv_heads=2, group=2, dim=64, block_size=16, window=None)
    tiny = step.q if what == "q" else getattr(step.layer, what)
    tiny *= torch.logspace(-41, -35, tiny.shape[-1])
    if what != "values":
        other = step.layer.keys if what == "q" else step.q
        other *= 1e36
    whole = attend(step, None)
    assert whole.isfinite().all()
    for position in range(50, 90):
        single = AttentionBatch([1], [position + 1], step.batch.tables, step.batch.slots, 16)
        alone = replace(step, batch=single, q=step.q[position - 50 : position - 49])
        assert torch.equal(attend(alone, None)[0], whole[position - 50])


@pytest.mark.parametrize("bad", [NAN, float("inf")])
@pytest.mark.parametrize("group", [1, 2, 8])
def test_a_decoded_token_gets_the_bits_of_a_prompts_where_values_are_not_finite(group: int, bad: float) -> None:
    """Nor does a bad element of a value reach its neighbours."""
    step = make_step([(50, 90)], torch.bfloat16, kv_heads=2, group=group, dim=64, block_size=16, window=None)
    step.layer.values[step.slot(0, 60), 1, 5] = bad
    whole = attend(step, None)
    assert whole.isfinite()[:, :group].all()
    for position in (59, 60, 89):
        single = AttentionBatch([1], [position + 1], step.batch.tables, step.batch.slots, 16)
        alone = replace(step, batch=single, q=step.q[position - 50 : position - 49])
        got = attend(alone, None)
        torch.testing.assert_close(got[0], whole[position - 50], rtol=0, atol=0, equal_nan=True)
        assert (~got.isfinite()).sum() == (group if position >= 60 else 0)


@pytest.mark.parametrize("seed", [17, 125, 170, 301, 379])
def test_a_tile_that_only_a_querys_neighbours_see_changes_no_bit_of_it(seed: int) -> None:
    """The last ones of the queries see a third tile. Among millions of elements few come to lie where it would show."""
    step = make_step([(114, 130)], torch.bfloat16, kv_heads=8, group=2, dim=128, block_size=16, window=None, seed=seed)
    step.layer.keys.mul_(4)
    whole = attend(step, None)
    for position in range(114, 130):
        single = AttentionBatch([1], [position + 1], step.batch.tables, step.batch.slots, 16)
        alone = replace(step, batch=single, q=step.q[position - 114 : position - 113])
        assert torch.equal(attend(alone, None)[0], whole[position - 114])


def test_extreme_scores() -> None:
    step = make_step([(9, 10)], torch.float32, kv_heads=1, group=1, dim=8, block_size=4, window=None)
    step.q *= 1e4
    check(attend(step, None), expected_attention(step, None))
    step.q *= 1e35  # products overflow: infinity minus infinity is not a number, and is not hidden
    assert attend(step, None).isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("contexts", [(10, 3), (1300, 700)])
def test_sinks_of_any_size(dtype: torch.dtype, contexts: tuple[int, int]) -> None:
    """Far below all scores they change no bit, far above nothing is left of the values; in one section or in some."""
    spans = [(contexts[0] - 1, contexts[0]), (contexts[1] - 3, contexts[1])]
    step = make_step(spans, dtype, kv_heads=1, group=4, dim=32, block_size=16, window=None)
    plain = attend(step, None)
    step.sinks = torch.tensor([-300.0, 8.0, 300.0, -torch.inf])
    got = attend(step, None)
    assert torch.equal(got[:, [0, 3]], plain[:, [0, 3]])
    assert not got[:, 2].any()
    assert got[:, 1].norm() < 0.6 * plain[:, 1].norm()
    check_attention(step, None)
    step.sinks = torch.zeros(3)
    with pytest.raises(RuntimeError, match=r"sinks must be contiguous float32 \[4\]"):
        attend(step, None)


def test_what_does_not_fit_is_refused() -> None:
    step = make_step([(9, 10)], torch.float32, kv_heads=1, group=1, dim=8, block_size=4, window=None)
    step.batch.tables[0][0] = 99
    with pytest.raises(IndexError, match="block of sequence 0"):
        attend(step, None)
    step = make_step([(5, 9)], torch.float32, kv_heads=1, group=1, dim=8, block_size=4, window=None)
    for limits in ([6, 7, 8, 10], [5, 7, 8, 9], [8, 7, 8, 9]):
        step.batch = replace(step.batch, limits=torch.tensor(limits, dtype=torch.int32))
        with pytest.raises(IndexError, match=r"row [0-3] of a sequence of 9 tokens sees keys up to"):
            attend(step, None)
    step.batch = replace(step.batch, limits=torch.tensor([9, 9, 9, 9]))
    with pytest.raises(RuntimeError, match=r"limits must be contiguous int32 \[4\]"):
        attend(step, None)
    with pytest.raises(IndexError, match="slot 24 of 20"):
        CpuKernels().write_kv(step.layer, step.q, step.q, torch.tensor([24]))
    with pytest.raises(RuntimeError, match="float32 or bfloat16"):
        CpuKernels().swiglu(torch.zeros(1, 2, dtype=torch.float16))
