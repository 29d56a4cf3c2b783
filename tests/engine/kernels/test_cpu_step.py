"""The step in one call against the operators one by one: the same bits, whatever the batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from headgate.engine.kernels.cpu.kernels import CpuKernels, native_status
from headgate.engine.kernels.interface import AttentionBatch, Mlp
from headgate.engine.kv.store import KVDtype, KVStore, kv_dtype
from headgate.engine.models.decoder import Decoder, DecoderWeights, Layer
from headgate.engine.models.spec import DecoderSpec, RopeSpec
from headgate.engine.quant.linear import WeightFormat

STATUS = native_status()
pytestmark = pytest.mark.skipif(not STATUS.usable, reason=f"native kernels: {STATUS.why}")

SPEC = DecoderSpec(
    architecture="test",
    layers=3,
    hidden=72,
    heads=6,
    kv_heads=2,
    head_dim=20,
    mlp_width=100,
    vocab_size=150,
    norm_eps=1e-6,
    rope=RopeSpec(10000.0),
    context_length=4096,
    qk_norm="head",
    windows=(None, 37, None),
)
BLOCK = 4


class OneByOne(CpuKernels):
    """The same operators, without the step."""

    def whole_step(self, spec: DecoderSpec, weights: DecoderWeights) -> None:  # noqa: ARG002
        return None


def build(kernels: CpuKernels, spec: DecoderSpec, fmt: WeightFormat, dtype: torch.dtype, *, bias: bool) -> Decoder:
    generator = torch.Generator().manual_seed(5)

    def randn(*shape: int) -> Tensor:
        return (torch.randn(*shape, generator=generator) * 0.2).to(dtype)

    def norm(width: int) -> Tensor:
        return (1 + torch.randn(width, generator=generator) * 0.2).to(dtype)

    hidden, dim, width = spec.hidden, spec.head_dim, spec.mlp_width
    layers = [
        Layer(
            input_norm=norm(hidden),
            qkv=kernels.linear(randn(spec.qkv_width, hidden), randn(spec.qkv_width) if bias else None, fmt),
            output=kernels.linear(randn(hidden, spec.heads * dim), None, fmt),
            mlp_norm=norm(hidden),
            mlp=Mlp(
                kernels.linear(randn(2 * width, hidden), None, fmt), kernels.linear(randn(hidden, width), None, fmt)
            ),
            q_norm=norm(dim) if spec.qk_norm == "head" else None,
            k_norm=norm(dim) if spec.qk_norm == "head" else None,
        )
        for _ in range(spec.layers)
    ]
    embedding = randn(spec.vocab_size, hidden)
    return Decoder(spec, DecoderWeights(embedding, layers, norm(hidden), kernels.linear(embedding, None, fmt)), kernels)


class Cached:
    """A decoder and a cache in which blocks lie in a fixed random order."""

    def __init__(self, decoder: Decoder, kv: KVDtype = "auto", blocks: int = 500) -> None:
        spec = decoder.spec
        self.decoder = decoder
        self.layers = KVStore(spec, blocks, BLOCK, kv_dtype(kv, decoder.dtype), torch.device("cpu")).layers
        self._free = torch.randperm(blocks, generator=torch.Generator().manual_seed(1)).tolist()
        self.tables: dict[int, list[int]] = {}

    def step(self, parts: Sequence[tuple[int, Sequence[int], int]], *, sample: bool = True) -> Tensor:
        """Parts are (sequence, tokens, position of the first one); logits of the last token of each."""
        slots: list[int] = []
        for sequence, tokens, start in parts:
            table = self.tables.setdefault(sequence, [])
            while len(table) * BLOCK < start + len(tokens):
                table.append(self._free.pop())
            slots.extend(table[p // BLOCK] * BLOCK + p % BLOCK for p in range(start, start + len(tokens)))
        batch = AttentionBatch(
            counts=[len(tokens) for _, tokens, _ in parts],
            contexts=[start + len(tokens) for _, tokens, start in parts],
            tables=[self.tables[sequence] for sequence, _, _ in parts],
            slots=torch.tensor(slots),
            block_size=BLOCK,
        )
        ids = torch.tensor([t for _, tokens, _ in parts for t in tokens])
        positions = torch.tensor([start + i for _, tokens, start in parts for i in range(len(tokens))])
        last = torch.tensor(batch.counts).cumsum(0) - 1
        with torch.inference_mode():
            rows = last if sample else last[:0]
            hidden = self.decoder.hidden(ids, positions, batch, self.layers, rows)
            logits = self.decoder.forward(ids, positions, batch, self.layers, rows)
            assert torch.equal(self.decoder.logits(hidden), logits)
            return logits


def prompt(seed: int, length: int) -> list[int]:
    ids: list[int] = torch.randint(
        0, SPEC.vocab_size, (length,), generator=torch.Generator().manual_seed(seed)
    ).tolist()
    return ids


vnni = pytest.mark.skipif(not (STATUS.usable and CpuKernels().int8), reason="this processor lacks AVX-512 VNNI")
avx2 = pytest.mark.skipif(not (STATUS.usable and torch.ops.headgate.int4_vectors()), reason="this processor lacks AVX2")
CASES = [
    pytest.param("int8", torch.float32, marks=vnni),
    pytest.param("int8", torch.bfloat16, marks=vnni),
    pytest.param("int4", torch.float32, marks=avx2),
    pytest.param("int4", torch.bfloat16, marks=avx2),
    ("native", torch.bfloat16),
]


@pytest.mark.parametrize(("fmt", "dtype"), CASES)
@pytest.mark.parametrize("variant", ["plain", "norms", "biases"])
@pytest.mark.parametrize("kv", ["auto", "int8"])
def test_one_call_gives_the_bits_of_the_operators(
    fmt: WeightFormat, dtype: torch.dtype, variant: str, kv: KVDtype
) -> None:
    spec = SPEC if variant == "norms" else replace(SPEC, qk_norm="none")
    whole, single = (
        Cached(build(k, spec, fmt, dtype, bias=variant == "biases"), kv) for k in (CpuKernels(), OneByOne())
    )
    steps = [
        [(0, prompt(0, 1), 0)],
        [(0, prompt(1, 1), 1), (1, prompt(2, 67), 0)],
        [(0, prompt(3, 1), 2), (1, prompt(4, 1), 67), (2, prompt(5, 13), 0), (3, prompt(6, 600), 0)],
        [(3, prompt(7, 1), 600), (1, prompt(8, 5), 68)],
    ]
    for parts in steps:
        assert torch.equal(whole.step(parts), single.step(parts))
    for a, b in zip(whole.layers, single.layers, strict=True):
        assert torch.equal(a.keys, b.keys)
        assert torch.equal(a.values, b.values)
        if a.key_scales is not None and b.key_scales is not None:
            assert torch.equal(a.key_scales, b.key_scales)


@pytest.mark.parametrize(("fmt", "dtype"), CASES)
@pytest.mark.parametrize("kv", ["auto", "int8"])
def test_neighbours_and_chunks_change_no_bit(fmt: WeightFormat, dtype: torch.dtype, kv: KVDtype) -> None:
    decoder = build(CpuKernels(), SPEC, fmt, dtype, bias=True)
    alone, together = Cached(decoder, kv), Cached(decoder, kv)
    tokens = prompt(1, 61)
    expected = [alone.step([(0, tokens, 0)]), alone.step([(0, [7], 61)])]
    others = [(i, prompt(i, 9 * i), 0) for i in (1, 2, 5)]
    together.step([(1, others[0][1], 0), (0, tokens[:20], 0), (2, others[1][1], 0)])
    together.step([(0, tokens[20:33], 20)], sample=False)
    got = together.step([(5, others[2][1], 0), (0, tokens[33:], 33)])[1:]
    assert torch.equal(got, expected[0])
    assert torch.equal(together.step([(0, [7], 61), (5, [3], 45)])[:1], expected[1])


def test_threads_change_no_bit() -> None:
    decoder = build(CpuKernels(), SPEC, "native", torch.bfloat16, bias=False)
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
