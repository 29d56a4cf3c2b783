"""The compiled kernels against the reference in float64, over odd shapes, and with garbage where nobody may look."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from headgate.engine.kernels.choice import choose_kernels
from headgate.engine.kernels.cpu.kernels import CpuKernels, native_status
from headgate.engine.kernels.cpu.packed import NativeBf16Linear
from headgate.engine.kernels.interface import AttentionBatch, KVLayer
from headgate.engine.kernels.reference import ReferenceKernels
from headgate.engine.quant.linear import quantize_rows

STATUS = native_status()
pytestmark = pytest.mark.skipif(not STATUS.usable, reason=f"native kernels: {STATUS.why}")

CPU = torch.device("cpu")
NAN = float("nan")
REFERENCE = ReferenceKernels()
dtypes = st.sampled_from([torch.float32, torch.bfloat16])
widths = st.integers(1, 300) | st.sampled_from([16, 64, 256, 1024])


def check(got: Tensor, expected: Tensor) -> None:
    """A sum in float32, rounded once; float64 knows what it should be."""
    rtol, atol = (2**-8, 1e-5) if got.dtype == torch.bfloat16 else (1e-5, 2e-6)
    torch.testing.assert_close(got.double(), expected.double(), rtol=rtol, atol=atol, equal_nan=True)


def randn(generator: torch.Generator, dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator).to(dtype)


@dataclass
class Step:
    """Sequences in a cache whose blocks lie in random order and whose other slots hold NaN."""

    batch: AttentionBatch
    q: Tensor
    layer: KVLayer
    seen: Tensor
    """[slots]: whether any query of the step sees the slot."""

    def slot(self, sequence: int, position: int) -> int:
        size = self.batch.block_size
        return self.batch.tables[sequence][position // size] * size + position % size


def make_step(
    spans: list[tuple[int, int]],
    dtype: torch.dtype,
    *,
    kv_heads: int,
    group: int,
    dim: int,
    block_size: int,
    window: int | None,
    seed: int = 0,
) -> Step:
    generator = torch.Generator().manual_seed(seed)
    needed = [-(-stop // block_size) for _, stop in spans]
    order = torch.randperm(sum(needed) + 2, generator=generator).tolist()
    # One block more than the context needs, as after a cancelled draft.
    tables = [[order.pop() for _ in range(count)] + [0] for count in needed]
    slots = (sum(needed) + 2) * block_size
    keys, values = (randn(generator, dtype, slots, kv_heads, dim) for _ in range(2))
    batch = AttentionBatch(
        counts=[stop - start for start, stop in spans],
        contexts=[stop for _, stop in spans],
        tables=tables,
        slots=torch.zeros(sum(stop - start for start, stop in spans), dtype=torch.int64),
        block_size=block_size,
    )
    q = randn(generator, dtype, sum(batch.counts), kv_heads * group, dim)
    step = Step(batch, q, KVLayer(keys, values), torch.zeros(slots, dtype=torch.bool))
    for i, (start, stop) in enumerate(spans):
        first = 0 if window is None else max(0, start - window + 1)
        step.seen[[step.slot(i, p) for p in range(first, stop)]] = True
    keys[~step.seen] = NAN
    values[~step.seen] = NAN
    return step


def attend(step: Step, window: int | None) -> Tensor:
    kernels = CpuKernels()
    return kernels.paged_attention(step.q, step.layer, kernels.plan(step.batch, CPU), window)


def expected_attention(step: Step, window: int | None) -> Tensor:
    hidden = ~step.seen[:, None, None]
    layer = KVLayer(*(t.double().masked_fill(hidden, 0.0) for t in (step.layer.keys, step.layer.values)))
    return REFERENCE.paged_attention(step.q.double(), layer, REFERENCE.plan(step.batch, CPU), window)


def check_attention(step: Step, window: int | None) -> None:
    """bfloat16 weights are off by half a unit each, and so is their sum: 2^-8 of the values' weighted sizes.

    Values that were int8 are rounded to bfloat16 too.
    """
    got, layer, parts = attend(step, window), step.layer, 1.0
    if layer.key_scales is not None and layer.value_scales is not None:
        layer = KVLayer(
            layer.keys.double() * layer.key_scales.double().unsqueeze(-1),
            layer.values.double() * layer.value_scales.double().unsqueeze(-1),
        )
        parts = 1.5
    expected = expected_attention(replace(step, layer=layer), window)
    if got.dtype == torch.float32:
        return check(got, expected)
    sizes = Step(step.batch, step.q, KVLayer(layer.keys, layer.values.abs()), step.seen)
    room = parts * 2**-8 * expected_attention(sizes, window) + 2**-8 * expected.abs() + 1e-5
    assert bool(((got.double() - expected).abs() <= room).all())
    return None


spans = st.tuples(st.integers(0, 599), st.just(1) | st.integers(1, 70)).map(lambda p: (p[0], min(600, p[0] + p[1])))


@settings(max_examples=120, deadline=None)
@given(
    spans=st.lists(spans, min_size=1, max_size=5),
    dtype=dtypes,
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 8),
    dim=st.integers(8, 256) | st.sampled_from([8, 16, 64, 80, 96, 128, 256]),
    block_size=st.sampled_from([1, 4, 16]),
    window=st.none() | st.integers(1, 64) | st.integers(65, 700),
    seed=st.integers(0, 999),
)
def test_paged_attention(
    spans: list[tuple[int, int]],
    dtype: torch.dtype,
    kv_heads: int,
    group: int,
    dim: int,
    block_size: int,
    window: int | None,
    seed: int,
) -> None:
    step = make_step(
        spans, dtype, kv_heads=kv_heads, group=group, dim=dim, block_size=block_size, window=window, seed=seed
    )
    check_attention(step, window)


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
@given(
    spans=st.lists(spans, min_size=1, max_size=5),
    dtype=dtypes,
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 8),
    dim=st.integers(1, 256) | st.sampled_from([64, 80, 96, 128]),
    block_size=st.sampled_from([1, 4, 16]),
    window=st.none() | st.integers(1, 700),
    seed=st.integers(0, 999),
)
def test_paged_attention_over_int8(
    spans: list[tuple[int, int]],
    dtype: torch.dtype,
    kv_heads: int,
    group: int,
    dim: int,
    block_size: int,
    window: int | None,
    seed: int,
) -> None:
    step = rounded(
        make_step(
            spans, dtype, kv_heads=kv_heads, group=group, dim=dim, block_size=block_size, window=window, seed=seed
        )
    )
    check_attention(step, window)


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


@pytest.mark.parametrize("shape", [(3, 40, 4), (1, 96, 16), (2, 128, 16), (4, 64, 16), (8, 32, 16)])
@pytest.mark.parametrize("window", [None, 37, 600])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_neighbours_and_chunking_change_no_bit(
    dtype: torch.dtype, window: int | None, shape: tuple[int, int, int]
) -> None:
    group, dim, block_size = shape
    spans = [(1299, 1300), (0, 100), (12, 13), (500, 533), (1000, 1100)]
    step = make_step(spans, dtype, kv_heads=2, group=group, dim=dim, block_size=block_size, window=window)
    together = attend(step, window).split(step.batch.counts)
    kernels = CpuKernels()
    for i, (start, stop) in enumerate(spans):
        queries = step.q.split(step.batch.counts)[i]
        for size in (1, 7, 1000):
            parts = []
            for first in range(start, stop, size):
                last = min(first + size, stop)
                batch = AttentionBatch([last - first], [last], [step.batch.tables[i]], step.batch.slots, block_size)
                plan = kernels.plan(batch, CPU)
                parts.append(kernels.paged_attention(queries[first - start : last - start], step.layer, plan, window))
            assert torch.equal(torch.cat(parts), together[i])


@pytest.mark.parametrize("what", ["keys", "values"])
@pytest.mark.parametrize("group", [1, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nan_reaches_exactly_the_queries_that_see_it(what: str, group: int, dtype: torch.dtype) -> None:
    window = 30
    step = make_step([(0, 90)], dtype, kv_heads=2, group=group, dim=16, block_size=4, window=window)
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


def test_extreme_scores() -> None:
    step = make_step([(9, 10)], torch.float32, kv_heads=1, group=1, dim=8, block_size=4, window=None)
    step.q *= 1e4
    check(attend(step, None), expected_attention(step, None))
    step.q *= 1e35  # products overflow: infinity minus infinity is not a number, and is not hidden
    assert attend(step, None).isnan().all()


def test_what_does_not_fit_is_refused() -> None:
    step = make_step([(9, 10)], torch.float32, kv_heads=1, group=1, dim=8, block_size=4, window=None)
    step.batch.tables[0][0] = 99
    with pytest.raises(IndexError, match="block of sequence 0"):
        attend(step, None)
    with pytest.raises(IndexError, match="slot 24 of 20"):
        CpuKernels().write_kv(step.layer, step.q, step.q, torch.tensor([24]))
    with pytest.raises(RuntimeError, match="float32 or bfloat16"):
        CpuKernels().swiglu(torch.zeros(1, 2, dtype=torch.float16))


@settings(max_examples=60, deadline=None)
@given(rows=st.integers(0, 40), width=widths, dtype=dtypes, seed=st.integers(0, 99))
def test_norms_and_activation(rows: int, width: int, dtype: torch.dtype, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    kernels = CpuKernels()
    x, residual = (randn(generator, dtype, rows, width) for _ in range(2))
    weight = randn(generator, dtype, width)
    check(kernels.rms_norm(x, weight, 1e-6), REFERENCE.rms_norm(x.double(), weight.double(), 1e-6))
    total = x + residual
    normed, kept = kernels.add_rms_norm(x.clone(), residual.clone(), weight, 1e-6)
    assert torch.equal(kept, total)
    check(normed, REFERENCE.rms_norm(total.double(), weight.double(), 1e-6))
    gate_up = randn(generator, dtype, rows, 2 * width) * 30
    check(kernels.swiglu(gate_up), REFERENCE.swiglu(gate_up.double()))


@settings(max_examples=60, deadline=None)
@given(
    tokens=st.integers(0, 40),
    heads=st.integers(1, 5),
    half=st.integers(1, 128),
    dtype=dtypes,
    block=st.sampled_from([1, 4, 16]),
    seed=st.integers(0, 99),
)
def test_views_of_a_fused_projection(
    tokens: int, heads: int, half: int, dtype: torch.dtype, block: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    kernels = CpuKernels()
    dim = 2 * half
    fused = randn(generator, dtype, tokens, 3 * heads * dim)
    q, k, v = (t.reshape(-1, heads, dim) for t in fused.split(heads * dim, dim=-1))
    weight = randn(generator, dtype, dim)
    check(kernels.rms_norm(q, weight, 1e-5), REFERENCE.rms_norm(q.double(), weight.double(), 1e-5))
    angles = torch.rand(tokens, half, generator=generator) * 7
    # The reference rotates in float32: the angles are the same, what is left is one rounding.
    check(kernels.rope(q, angles.cos(), angles.sin()), REFERENCE.rope(q.float(), angles.cos(), angles.sin()))
    slots = torch.randperm((tokens + 3) * block, generator=generator)[:tokens]
    layers = [KVLayer(*torch.zeros(2, (tokens + 3) * block, heads, dim, dtype=dtype)) for _ in range(2)]
    kernels.write_kv(layers[0], k, v, slots)
    REFERENCE.write_kv(layers[1], k, v, slots)
    assert torch.equal(layers[0].keys, layers[1].keys)
    assert torch.equal(layers[0].values, layers[1].values)


@pytest.mark.parametrize("bad", [NAN, float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_not_finite_stays_visible(bad: float, dtype: torch.dtype) -> None:
    kernels = CpuKernels()
    x = torch.ones(3, 40, dtype=dtype)
    x[1, 7] = bad
    ones = torch.ones(40, dtype=dtype)
    for got, expected in (
        (kernels.rms_norm(x, ones, 1e-6), REFERENCE.rms_norm(x, ones, 1e-6)),
        (kernels.add_rms_norm(x.clone(), x.clone(), ones, 1e-6)[1], x + x),
        (kernels.swiglu(x), REFERENCE.swiglu(x)),
        (kernels.swiglu(x.roll(20, 1)), REFERENCE.swiglu(x.roll(20, 1))),
        (kernels.rope(x[:, None], *torch.ones(2, 3, 20)), REFERENCE.rope(x[:, None], *torch.ones(2, 3, 20))),
    ):
        torch.testing.assert_close(got, expected, equal_nan=True, rtol=1e-2, atol=1e-2)


def test_rows_are_shared_between_threads() -> None:
    generator = torch.Generator().manual_seed(3)
    kernels = CpuKernels()
    x, weight = torch.randn(300, 512, generator=generator), torch.randn(512, generator=generator)
    step = make_step([(400, 460)] * 6, torch.float32, kv_heads=2, group=2, dim=32, block_size=16, window=None)
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results.append((kernels.rms_norm(x, weight, 1e-6), kernels.swiglu(x), attend(step, None)))
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_choice_of_kernels() -> None:
    assert choose_kernels("auto", CPU).native
    assert not choose_kernels("reference", CPU).native
    assert not choose_kernels("auto", torch.device("cuda")).native


@pytest.mark.skipif("HEADGATE_VECTORS" not in os.environ, reason="this is the run with all instructions")
def test_fewer_instructions_are_used() -> None:
    assert "AMX" not in STATUS.why
    assert os.environ["HEADGATE_VECTORS"] == "avx512" or "AVX-512" not in STATUS.why
    assert os.environ["HEADGATE_VECTORS"] != "baseline" or "128-bit" in STATUS.why


@pytest.mark.skipif("HEADGATE_VECTORS" in os.environ, reason="this is the run with fewer instructions")
@pytest.mark.parametrize("vectors", ["avx512", "avx2", "baseline"])
def test_other_processors_compute_the_same(vectors: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-p", "no:randomly", __file__],
        env={**os.environ, "HEADGATE_VECTORS": vectors, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]


int8 = pytest.mark.skipif(
    not (STATUS.usable and torch.ops.headgate.int8_usable()), reason="this processor lacks AVX-512 VNNI"
)


@int8
@settings(max_examples=80)
@given(
    rows=st.integers(1, 67) | st.just(0),
    inputs=st.integers(1, 200) | st.sampled_from([64, 1024]),
    outputs=st.integers(1, 200) | st.sampled_from([64, 128]),
    dtype=dtypes,
    bias=st.booleans(),
    padded=st.booleans(),
    seed=st.integers(0, 99),
)
def test_int8_linear(
    rows: int, inputs: int, outputs: int, dtype: torch.dtype, bias: bool, padded: bool, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight, b = randn(generator, dtype, outputs, inputs), randn(generator, dtype, outputs) if bias else None
    x = randn(generator, dtype, rows, inputs)
    if padded:  # rows that do not follow each other, with garbage between them
        wide = torch.full((rows, inputs + 5), NAN, dtype=dtype)
        wide[:, :inputs] = x
        x = wide[:, :inputs]
    (wq, ws), (xq, xs) = quantize_rows(weight), quantize_rows(x)
    expected = (xq.double() @ wq.double().T) * xs.double() * ws.double().T
    if b is not None:
        expected += b.double()
    got = CpuKernels().linear(weight, b, "int8")(x)
    assert got.dtype == dtype
    check(got, expected)


@int8
def test_int8_linear_at_its_extremes() -> None:
    inputs = 4096
    weight = torch.ones(3, inputs)
    weight[1] = -1
    weight[2, ::2] = -1
    x = torch.stack((torch.ones(inputs), -torch.ones(inputs), torch.zeros(inputs)))
    # Every product is 127 * 127 or its negative: the largest sums there are.
    got = CpuKernels().linear(weight, None, "int8")(x)
    torch.testing.assert_close(got, x @ weight.T, rtol=1e-5, atol=0)


@int8
@pytest.mark.parametrize("bad", [NAN, float("inf"), -float("inf")])
@pytest.mark.parametrize("place", [0, 17, 99])
def test_int8_linear_gives_no_number_for_a_row_that_is_not_finite(bad: float, place: int) -> None:
    x = torch.ones(3, 100)
    x[1, place] = bad
    got = CpuKernels().linear(torch.ones(70, 100), None, "int8")(x)
    assert got[[0, 2]].eq(100).logical_or(got[[0, 2]].sub(100).abs() < 1e-3).all()
    assert not got[1].isfinite().any()


@int8
def test_int8_linear_refuses_what_does_not_fit() -> None:
    layer = CpuKernels().linear(torch.ones(70, 100), None, "int8")
    with pytest.raises(RuntimeError, match="x has 140 inputs and 70 outputs are wanted; the weights are for 128"):
        layer(torch.ones(2, 140))
    with pytest.raises(RuntimeError, match="float32 or bfloat16"):
        layer(torch.ones(2, 100, dtype=torch.float64))
    with pytest.raises(RuntimeError, match="weight must be float32 or bfloat16"):
        torch.ops.headgate.int8_pack(torch.ones(2, 2, dtype=torch.int8))


@settings(max_examples=60)
@given(
    rows=st.integers(0, 67),
    inputs=st.integers(1, 200) | st.sampled_from([64, 1024]),
    outputs=st.integers(1, 200) | st.sampled_from([64, 128]),
    bias=st.booleans(),
    seed=st.integers(0, 99),
)
def test_bf16_linear(rows: int, inputs: int, outputs: int, bias: bool, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = randn(generator, torch.bfloat16, outputs, inputs)
    b = randn(generator, torch.bfloat16, outputs) if bias else None
    x = randn(generator, torch.bfloat16, rows, inputs)
    expected = x.double() @ weight.double().T + (0 if b is None else b.double())
    # Sums are in float32: their error goes with the sum of the products' magnitudes, not with the result.
    size = x.double().abs() @ weight.double().abs().T
    layer = NativeBf16Linear(weight, b)
    got = layer(x)
    assert ((got.double() - expected).abs() <= 2**-8 * expected.abs() + 2**-18 * size).all()
    for row in range(0, rows, 9):  # and a row's result is its own
        assert torch.equal(layer(x[row : row + 1]), got[row : row + 1])


def test_bf16_linear_refuses_what_does_not_fit() -> None:
    layer = NativeBf16Linear(torch.ones(70, 100, dtype=torch.bfloat16))
    with pytest.raises(RuntimeError, match="x has 140 inputs and 70 outputs are wanted; the weights are for 128"):
        layer(torch.ones(2, 140, dtype=torch.bfloat16))
    with pytest.raises(RuntimeError, match="must be bfloat16"):
        layer(torch.ones(2, 100))


@pytest.mark.parametrize("bad", [NAN, float("inf")])
def test_bf16_linear_keeps_what_is_not_finite_in_its_row(bad: float) -> None:
    x = torch.ones(20, 100, dtype=torch.bfloat16)
    x[3, 99] = bad
    got = NativeBf16Linear(torch.ones(70, 100, dtype=torch.bfloat16))(x)
    assert not got[3].isfinite().any()
    assert got[:3].eq(100).all()
    assert got[4:].eq(100).all()
