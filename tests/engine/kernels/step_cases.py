"""What the tests of the step in one call share: decoders of random weights, their operators one by one, and a cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from headgate.engine.kernels.cpu.kernels import CpuKernels, native_status
from headgate.engine.kernels.interface import AttentionBatch, Mlp
from headgate.engine.kernels.mixture import ExpertWeights, Mixture, MixtureWeights
from headgate.engine.kernels.reference import ReferenceKernels
from headgate.engine.kv.store import KVDtype, KVStore, kv_dtype
from headgate.engine.models.decoder import Decoder, DecoderWeights, Layer
from headgate.engine.models.rope import RopeSpec
from headgate.engine.models.spec import DecoderSpec, ExpertsSpec, WeightNames
from headgate.engine.quant.linear import WeightFormat

STATUS = native_status()

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
AROUND: dict[str, Any] = {
    **{"activation": "gelu", "embedding_scale": 3.3, "attention_scale": 0.3},
    **{"second_rope": RopeSpec(500.0, kind="linear", factor=2.0), "second_rope_layers": frozenset({0, 2})},
    "names": WeightNames(attended_norm="behind", fed_norm="behind, too"),
}
"""What families have that are unlike Llama."""
EXPERTS = ExpertsSpec(count=9, per_token=3, width=44, normalize=True)
MIXED = frozenset({0, 2})  # and one MLP between them


class OneByOne(CpuKernels):
    """The same operators, without the step."""

    def whole_step(self, spec: DecoderSpec, weights: DecoderWeights) -> None:  # noqa: ARG002
        return None


def build(kernels: CpuKernels, spec: DecoderSpec, fmt: WeightFormat, dtype: torch.dtype, *, bias: bool) -> Decoder:
    return Decoder(spec, weights_of(kernels, spec, fmt, dtype, bias=bias), kernels)


def weights_of(
    kernels: CpuKernels, spec: DecoderSpec, fmt: WeightFormat, dtype: torch.dtype, *, bias: bool
) -> DecoderWeights:
    generator = torch.Generator().manual_seed(5)

    def randn(*shape: int) -> Tensor:
        return (torch.randn(*shape, generator=generator) * 0.2).to(dtype)

    def norm(width: int) -> Tensor:
        return (1 + torch.randn(width, generator=generator) * 0.2).to(dtype)

    hidden, dim, width = spec.hidden, spec.head_dim, spec.mlp_width

    def expert(wide: int) -> ExpertWeights:
        return ExpertWeights(randn(2 * wide, hidden), randn(hidden, wide))

    def mixture(experts: ExpertsSpec) -> Mixture:
        wide = experts.shared_width
        return kernels.mixture(
            MixtureWeights(
                router=randn(experts.count, hidden),
                experts=[expert(experts.width) for _ in range(experts.count)],
                per_token=experts.per_token,
                normalize=experts.normalize,
                shared=expert(wide) if wide else None,
                shared_gate=randn(1, hidden) if wide else None,
                router_bias=randn(experts.count) if experts.bias else None,
                gate_up_bias=randn(experts.count, 2 * experts.width) if experts.bias else None,
                down_bias=randn(experts.count, hidden) if experts.bias else None,
                limit=experts.limit,
            ),
            fmt,
        )

    layers = [
        Layer(
            input_norm=norm(hidden),
            qkv=kernels.linear(randn(spec.qkv_width, hidden), randn(spec.qkv_width) if bias else None, fmt),
            output=kernels.linear(randn(hidden, spec.heads * dim), None, fmt),
            mlp_norm=norm(hidden),
            mlp=mixture(spec.experts)
            if spec.experts is not None and number in spec.moe_layers
            else Mlp(
                kernels.linear(randn(2 * width, hidden), None, fmt),
                kernels.linear(randn(hidden, width), None, fmt),
                spec.activation,
            ),
            q_norm=norm(dim) if spec.qk_norm == "head" else None,
            k_norm=norm(dim) if spec.qk_norm == "head" else None,
            attended_norm=norm(hidden) if spec.names.attended_norm else None,
            fed_norm=norm(hidden) if spec.names.fed_norm else None,
            sinks=randn(spec.heads).float() if spec.sinks else None,
        )
        for number in range(spec.layers)
    ]
    embedding = randn(spec.vocab_size, hidden)
    return DecoderWeights(embedding, layers, norm(hidden), kernels.linear(embedding, None, fmt))


class Cached:
    """A decoder and a cache in which blocks lie in a fixed random order."""

    def __init__(self, decoder: Decoder, kv: KVDtype = "auto", blocks: int = 500) -> None:
        spec = decoder.spec
        self.decoder = decoder
        self.layers = KVStore(spec, blocks, BLOCK, kv_dtype(kv, decoder.dtype), torch.device("cpu")).layers
        self._free = torch.randperm(blocks, generator=torch.Generator().manual_seed(1)).tolist()
        self.tables: dict[int, list[int]] = {}

    def step(
        self,
        parts: Sequence[tuple[int, Sequence[int], int]],
        *,
        sample: bool = True,
        rows: Sequence[int] | None = None,
    ) -> Tensor:
        """Parts are (sequence, tokens, position of the first one); logits of `rows`, or of the last token of each."""
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
        wanted = last[: len(last) if sample else 0] if rows is None else torch.tensor(list(rows))
        with torch.inference_mode():
            hidden = self.decoder.hidden(ids, positions, batch, self.layers, wanted)
            logits = self.decoder.forward(ids, positions, batch, self.layers, wanted)
            assert torch.equal(self.decoder.logits(hidden), logits)
            if self.decoder.decodes and len(wanted):
                # Where tokens stand and where their keys go follows from the tables.
                nowhere = torch.empty(0, dtype=torch.int64)
                chosen = self.decoder.likeliest(ids, nowhere, replace(batch, slots=nowhere), self.layers, wanted)
                assert chosen == ReferenceKernels().likeliest(logits).tolist()
            return logits


def prompt(seed: int, length: int) -> list[int]:
    ids: list[int] = torch.randint(
        0, SPEC.vocab_size, (length,), generator=torch.Generator().manual_seed(seed)
    ).tolist()
    return ids


own_int8 = pytest.mark.skipif(not (STATUS.usable and CpuKernels().int8), reason="this processor lacks AVX2")
avx2 = pytest.mark.skipif(not (STATUS.usable and torch.ops.headgate.int4_vectors()), reason="this processor lacks AVX2")
RUNNABLE: list[tuple[WeightFormat, torch.dtype]] = [("native", torch.bfloat16)]
if STATUS.usable and CpuKernels().int8:
    RUNNABLE += [("int8", torch.float32), ("int8", torch.bfloat16)]
if STATUS.usable and torch.ops.headgate.int4_vectors():
    RUNNABLE += [("int4", torch.float32), ("int4", torch.bfloat16)]
CASES = [
    pytest.param("int8", torch.float32, marks=own_int8),
    pytest.param("int8", torch.bfloat16, marks=own_int8),
    pytest.param("int4", torch.float32, marks=avx2),
    pytest.param("int4", torch.bfloat16, marks=avx2),
    ("native", torch.bfloat16),
]
