"""The step in one call against the operators one by one: the same bits, whatever the batch."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from step_cases import (
    AROUND,
    CASES,
    EXPERTS,
    MIXED,
    RUNNABLE,
    SPEC,
    STATUS,
    Cached,
    OneByOne,
    avx2,
    build,
    own_int8,
    prompt,
    weights_of,
)

from headgate.engine.demo import checkpoint
from headgate.engine.kernels.cpu.kernels import CpuKernels
from headgate.engine.kernels.reference import ReferenceKernels
from headgate.engine.kv.store import KVDtype
from headgate.engine.models.loader import load_decoder
from headgate.engine.models.spec import DecoderSpec, ExpertsSpec
from headgate.engine.quant.linear import WeightFormat
from headgate.engine.text.chat_template import ChatTemplate
from headgate.engine.text.tokenizer import Tokenizer

pytestmark = pytest.mark.skipif(not STATUS.usable, reason=f"native kernels: {STATUS.why}")


@pytest.mark.parametrize(("fmt", "dtype"), CASES)
@pytest.mark.parametrize("variant", ["plain", "norms", "biases", "experts", "shared expert", "around", "sinks"])
@pytest.mark.parametrize("kv", ["auto", "int8"])
def test_one_call_gives_the_bits_of_the_operators(
    fmt: WeightFormat, dtype: torch.dtype, variant: str, kv: KVDtype
) -> None:
    spec = SPEC if variant == "norms" else replace(SPEC, qk_norm="none")
    if variant == "experts":
        spec = replace(spec, experts=EXPERTS, moe_layers=MIXED)
    if variant == "around":
        spec = replace(spec, experts=EXPERTS, moe_layers=MIXED, **AROUND)
    if variant == "sinks":
        experts = replace(EXPERTS, bias=True, limit=0.3)
        spec = replace(spec, experts=experts, moe_layers=MIXED, sinks=True, windows=(40, None, 700))
    if variant == "shared expert":
        spec = replace(spec, experts=replace(EXPERTS, normalize=False, shared_width=70), moe_layers=frozenset(range(3)))
    whole, single = (
        Cached(build(k, spec, fmt, dtype, bias=variant == "biases"), kv) for k in (CpuKernels(), OneByOne())
    )
    steps = [
        [(0, prompt(0, 1), 0)],
        [(0, prompt(1, 1), 1), (1, prompt(2, 67), 0)],
        [(0, prompt(3, 1), 2), (1, prompt(4, 1), 67), (2, prompt(5, 13), 0), (3, prompt(6, 600), 0)],
        [(3, prompt(7, 1), 600), (1, prompt(8, 5), 68)],
        [(1, prompt(9, 1), 73), (2, prompt(10, 1), 13)],
        [(1, prompt(11, 1), 74), (3, prompt(12, 1), 601), (0, prompt(13, 1), 3)],
    ]
    for parts in steps:
        assert torch.equal(whole.step(parts), single.step(parts))
    for a, b in zip(whole.layers, single.layers, strict=True):
        assert torch.equal(a.keys, b.keys)
        assert torch.equal(a.values, b.values)
        if a.key_scales is not None and b.key_scales is not None:
            assert torch.equal(a.key_scales, b.key_scales)


@pytest.mark.parametrize(("fmt", "dtype"), CASES)
@pytest.mark.parametrize("width", [32, 96])
def test_gates_and_ups_in_whole_panels_give_the_bits_of_the_operators(
    fmt: WeightFormat, dtype: torch.dtype, width: int
) -> None:
    spec = replace(SPEC, mlp_width=width)
    whole, single = (Cached(build(k, spec, fmt, dtype, bias=False)) for k in (CpuKernels(), OneByOne()))
    for parts in ([(0, prompt(1, 1), 0)], [(0, prompt(2, 5), 1), (1, prompt(3, 33), 0)], [(2, prompt(4, 107), 0)]):
        assert torch.equal(whole.step(parts), single.step(parts))


@pytest.mark.parametrize(("fmt", "dtype"), CASES)
def test_a_row_has_the_same_bits_whichever_rows_are_wanted(fmt: WeightFormat, dtype: torch.dtype) -> None:
    cached = Cached(build(CpuKernels(), SPEC, fmt, dtype, bias=False))
    parts = [(0, prompt(1, 70), 0), (1, prompt(2, 9), 0), (2, prompt(3, 30), 0)]
    everything = cached.step(parts, rows=range(109))
    for rows in ([108], [5, 69, 100], [64, 70, 3], [78]):
        assert torch.equal(cached.step(parts, rows=rows), everything[rows])


# Rows of such widths go to products as they are, and many of them by blocks through a whole layer.
EVEN = replace(SPEC, hidden=64, head_dim=16, mlp_width=96)


@given(
    lengths=st.lists(st.integers(1, 150), min_size=1, max_size=6),
    later=st.integers(1, 90),
    wanted=st.sampled_from(["last", "all", "none", "some"]),
    threads=st.integers(1, 3),
    norms=st.booleans(),
    around=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_many_rows_of_a_small_model_give_the_bits_of_the_operators(
    lengths: list[int], later: int, wanted: str, threads: int, norms: bool, around: bool
) -> None:
    spec = replace(EVEN, qk_norm="head" if norms else "none", **(AROUND if around else {}))
    whole, single = (Cached(build(k, spec, "native", torch.bfloat16, bias=True)) for k in (CpuKernels(), OneByOne()))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        first = [(i, prompt(i, length), 0) for i, length in enumerate(lengths)]
        then = [(0, prompt(9, later), lengths[0]), *((i, [3], length) for i, length in enumerate(lengths) if i)]
        for parts in (first, then):
            total = sum(len(tokens) for _, tokens, _ in parts)
            rows = {"all": range(total), "some": range(0, total, 7)}.get(wanted)
            sample = wanted != "none"
            assert torch.equal(
                whole.step(parts, sample=sample, rows=rows), single.step(parts, sample=sample, rows=rows)
            )
    finally:
        torch.set_num_threads(before)
    for a, b in zip(whole.layers, single.layers, strict=True):
        assert torch.equal(a.keys, b.keys)
        assert torch.equal(a.values, b.values)


MIXTURE = replace(SPEC, experts=EXPERTS, moe_layers=MIXED)


@pytest.mark.parametrize(("fmt", "dtype"), CASES)
@pytest.mark.parametrize("spec", [SPEC, MIXTURE], ids=["dense", "experts"])
def test_packed_weights_go_in_one_call(fmt: WeightFormat, dtype: torch.dtype, spec: DecoderSpec) -> None:
    kernels = CpuKernels()
    assert kernels.whole_step(spec, weights_of(kernels, spec, fmt, dtype, bias=False)) is not None


@pytest.mark.parametrize(("fmt", "dtype"), CASES)
def test_heads_that_are_too_large_for_it_go_one_by_one(fmt: WeightFormat, dtype: torch.dtype) -> None:
    kernels = CpuKernels()
    for dim, fits in ((512, True), (576, False)):
        spec = replace(SPEC, heads=2, kv_heads=1, head_dim=dim, layers=1, windows=(None,))
        whole = kernels.whole_step(spec, weights_of(kernels, spec, fmt, dtype, bias=False))
        assert (whole is not None) == fits


@given(
    hidden=st.integers(1, 130),
    width=st.integers(1, 100),
    count=st.integers(1, 40),
    per_token=st.integers(1, 8),
    shared_width=st.none() | st.integers(1, 90),
    normalize=st.booleans(),
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    case=st.sampled_from(RUNNABLE),
    dense=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_mixtures_of_any_shape(
    hidden: int,
    width: int,
    count: int,
    per_token: int,
    shared_width: int | None,
    normalize: bool,
    lengths: list[int],
    case: tuple[WeightFormat, torch.dtype],
    dense: bool,
) -> None:
    experts = ExpertsSpec(count, min(per_token, count), width, normalize, shared_width)
    layers = frozenset({1}) if dense else frozenset({0, 1})
    spec = replace(SPEC, layers=2, windows=(None, None), hidden=hidden, experts=experts, moe_layers=layers)
    whole, single = (Cached(build(k, spec, *case, bias=False)) for k in (CpuKernels(), OneByOne()))
    parts = [(i, prompt(i, length), 0) for i, length in enumerate(lengths)]
    assert torch.equal(whole.step(parts), single.step(parts))
    parts = [(i, [7], length) for i, length in enumerate(lengths)]
    assert torch.equal(whole.step(parts), single.step(parts))


@pytest.mark.parametrize(("fmt", "dtype"), CASES)
@pytest.mark.parametrize("kv", ["auto", "int8"])
@pytest.mark.parametrize("spec", [SPEC, MIXTURE], ids=["dense", "experts"])
def test_neighbours_and_chunks_change_no_bit(
    fmt: WeightFormat, dtype: torch.dtype, kv: KVDtype, spec: DecoderSpec
) -> None:
    decoder = build(CpuKernels(), spec, fmt, dtype, bias=True)
    alone, together = Cached(decoder, kv), Cached(decoder, kv)
    tokens = prompt(1, 61)
    expected = [alone.step([(0, tokens, 0)]), alone.step([(0, [7], 61)])]
    others = [(i, prompt(i, 9 * i), 0) for i in (1, 2, 5)]
    together.step([(1, others[0][1], 0), (0, tokens[:20], 0), (2, others[1][1], 0)])
    together.step([(0, tokens[20:33], 20)], sample=False)
    got = together.step([(5, others[2][1], 0), (0, tokens[33:], 33)])[1:]
    assert torch.equal(got, expected[0])
    assert torch.equal(together.step([(0, [7], 61), (5, [3], 45)])[:1], expected[1])


@pytest.mark.parametrize("spec", [SPEC, MIXTURE], ids=["dense", "experts"])
def test_threads_change_no_bit(spec: DecoderSpec) -> None:
    decoder = build(CpuKernels(), spec, "native", torch.bfloat16, bias=False)
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            cached = Cached(decoder)
            results.append([cached.step([(0, prompt(0, 40), 0), (1, prompt(1, 3), 0)]), cached.step([(1, [5], 3)])])
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_does_not_wait_for_threads_that_it_lacks() -> None:
    decoder = build(CpuKernels(), SPEC, "native", torch.bfloat16, bias=False)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        expected = Cached(decoder).step([(0, prompt(0, 40), 0)])
        child = os.fork()
        if child == 0:
            same = torch.equal(Cached(decoder).step([(0, prompt(0, 40), 0)]), expected)
            os._exit(0 if same else 1)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("fmt", ["native", pytest.param("int8", marks=own_int8), pytest.param("int4", marks=avx2)])
def test_the_demo_teacher_says_the_same_in_one_call(fmt: WeightFormat) -> None:
    folder = checkpoint("teacher")
    whole, single = (Cached(load_decoder(folder, k, fmt=fmt).decoder) for k in (CpuKernels(), OneByOne()))
    plain = Cached(load_decoder(folder, ReferenceKernels(), fmt=fmt).decoder)
    template, tokenizer = ChatTemplate.load(folder), Tokenizer.load(folder)
    asked = ["What is 7 plus 15?", "Reverse the word: lantern", "Is a whale a mammal?"]
    texts = [template.render([{"role": "user", "content": text}]) for text in asked]
    parts = [(i, tokenizer.encode(text, add_special_tokens=False), 0) for i, text in enumerate(texts)]
    answers: list[list[int]] = []
    for _ in range(16):
        logits = whole.step(parts)
        assert torch.equal(logits, single.step(parts))
        told = plain.step(parts)
        # Where plain torch is in no doubt it says the same token.
        sure = told.float().topk(2).values.diff().abs()[:, 0] > 1
        assert torch.equal(logits.argmax(-1)[sure], told.argmax(-1)[sure])
        answers.append(logits.argmax(-1).tolist())
        parts = [(i, [token], start + len(t)) for (i, t, start), token in zip(parts, answers[-1], strict=True)]
    assert len({tuple(answer) for answer in zip(*answers, strict=True)}) == len(asked)


def test_long_positions_extend_the_rotation() -> None:
    decoder = build(CpuKernels(), SPEC, "native", torch.bfloat16, bias=False)
    far, single = (Cached(d) for d in (decoder, build(OneByOne(), SPEC, "native", torch.bfloat16, bias=False)))
    for cached in (far, single):
        cached.step([(0, prompt(0, 1000), 0)])
    assert torch.equal(far.step([(0, prompt(1, 200), 1000)]), single.step([(0, prompt(1, 200), 1000)]))


@pytest.mark.parametrize(
    ("tokens", "start", "message"), [([150], 0, "tokens: 150 of 150"), ([-1], 0, "tokens: -1 of 150")]
)
def test_what_does_not_fit_is_refused(tokens: list[int], start: int, message: str) -> None:
    cached = Cached(build(CpuKernels(), SPEC, "native", torch.bfloat16, bias=False))
    with pytest.raises(IndexError, match=message):
        cached.step([(0, tokens, start)])
