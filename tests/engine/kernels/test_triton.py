"""The Triton kernels without a GPU: compiled for two kinds of GPU, and chosen. `test_interpreter.py` has them run."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from compiled_triton import SHARED, compiling
from triton_cases import needs_triton, triton_kernels

from headgate.engine.kernels.choice import choose_kernels
from headgate.engine.kernels.device_rows import RowState
from headgate.engine.kernels.interface import AttentionBatch, HeadNorms, KVLayer, Mlp
from headgate.engine.kernels.mixture import ExpertWeights, Fp8Expert, MixtureWeights, Mxfp4Expert
from headgate.engine.models.adapters.linear import AdapterRows, Stack
from headgate.engine.quant.fp8 import Fp8Weight
from headgate.engine.quant.linear import Linear, WeightFormat
from headgate.engine.quant.mxfp4 import Mxfp4Weight

pytestmark = [needs_triton, pytest.mark.skipif("TRITON_INTERPRET" in os.environ, reason="needs the compiler")]

SAMPLED = ["_survey", "_race", "_choose"]
PAIRS = ["_product", "_product", "_weigh"]
EXPERTS = ["_route", "_sort", *PAIRS]
FEW_EXPERTS = ["_router", "_gates", "_weighed"]


def launch_row_kernels() -> None:
    """As a layer of Qwen3-0.6B does."""
    kernels = triton_kernels()
    x, weight, angles = torch.zeros(4, 1024).bfloat16(), torch.zeros(1024).bfloat16(), torch.zeros(4, 64)
    places = torch.arange(4)
    kernels.enter(places, places, torch.zeros(100, 1024).bfloat16(), (torch.zeros(50, 64), torch.zeros(50, 64)))
    kernels.rms_norm(x, weight, 1e-6)
    kernels.add_rms_norm(x, x.clone(), weight, 1e-6)
    kernels.swiglu(torch.zeros(4, 6144).bfloat16())
    kernels.geglu(torch.zeros(4, 6144).bfloat16())
    parts = [t.unflatten(1, (-1, 128)) for t in torch.zeros(4, 4096).bfloat16().split([2048, 1024, 1024], dim=1)]
    norms, slots = HeadNorms(weight[:128], weight[:128], 1e-6), torch.zeros(4, dtype=torch.int64)
    half, int8 = torch.zeros(16, 8, 128).bfloat16(), torch.zeros(16, 8, 128, dtype=torch.int8)
    kernels.rotate_and_write(*parts, norms, angles, angles, KVLayer(half, half), slots)
    kernels.rotate_and_write(*parts, None, angles, angles, KVLayer(int8, int8, *torch.zeros(2, 16, 8)), slots)


def launch_attention() -> None:
    """Of a prompt's part and three tokens decoded beside it, one of them with many keys."""
    kernels = triton_kernels()
    tables = [list(range(n)) for n in (20, 1, 3, 70)]
    batch = AttentionBatch([300, 1, 1, 1], [310, 9, 40, 1100], tables, torch.zeros(303, dtype=torch.int64), 16)
    plan, q = kernels.plan(batch, torch.device("cpu")), torch.zeros(303, 16, 128).bfloat16()
    kept, int8 = torch.zeros(16, 8, 128).bfloat16(), torch.zeros(16, 8, 128, dtype=torch.int8)
    kernels.paged_attention(q, KVLayer(kept, kept), plan, None)
    kernels.paged_attention(q, KVLayer(int8, int8, *torch.zeros(2, 16, 8)), plan, 512)


def launch_decode_attention() -> None:
    """Of a token and of eight, and of a token with an int8 cache and eight query heads a key head."""
    kernels, weight = triton_kernels(), torch.zeros(128).bfloat16()
    norms, state = HeadNorms(weight, weight, 1e-6), RowState.empty(8, 2560, 100, 16, 100, torch.device("cpu"))
    kept, int8 = torch.zeros(16, 8, 128).bfloat16(), torch.zeros(16, 4, 128, dtype=torch.int8)
    for rows, heads, layer in (
        (1, 16, KVLayer(kept, kept)),
        (8, 16, KVLayer(kept, kept)),
        (1, 32, KVLayer(int8, int8, *torch.zeros(2, 16, 4))),
    ):
        step = kernels.rows().begin(state, torch.arange(rows))
        kv_heads = layer.keys.shape[1]
        parts = torch.zeros(rows, heads + 2 * kv_heads, 128).bfloat16().split([heads, kv_heads, kv_heads], dim=1)
        angles = torch.zeros(rows, 64)
        kernels.attend(*parts, norms, angles, angles, layer, step.slots, step.plan, None)


def launch_mixture() -> None:
    """As a layer of a small Qwen3 mixture does, for one token, for some or for a prompt."""
    expert = ExpertWeights(torch.zeros(1024, 1024).bfloat16(), torch.zeros(1024, 512).bfloat16())
    weights = MixtureWeights(torch.zeros(8, 1024).bfloat16(), [expert] * 8, 4, normalize=True)
    given: list[tuple[WeightFormat, tuple[int, ...]]] = [("native", (1, 512)), ("int8", (9,)), ("int4", (1, 512))]
    for fmt, counts in given:
        mixture = triton_kernels().mixture(weights, fmt)
        for tokens in counts:
            mixture(torch.zeros(tokens, 1024).bfloat16())


def launch_gpt_oss() -> None:
    """As a layer of gpt-oss does for one token and for a prompt: attention with sinks, experts in MXFP4."""
    kernels, sinks, angles = triton_kernels(), torch.zeros(64), torch.zeros(1, 32)
    kept, device = torch.zeros(16, 8, 64).bfloat16(), torch.device("cpu")
    state = RowState.empty(8, 2560, 100, 16, 100, device)
    step = kernels.rows().begin(state, torch.arange(1))
    parts = torch.zeros(1, 80, 64).bfloat16().split([64, 8, 8], dim=1)
    kernels.attend(*parts, None, angles, angles, KVLayer(kept, kept), step.slots, step.plan, 128, sinks=sinks)
    batch = AttentionBatch([300, 1], [310, 1100], [list(range(20)), list(range(70))], torch.zeros(301).long(), 16)
    q, plan = torch.zeros(301, 64, 64).bfloat16(), kernels.plan(batch, device)
    kernels.paged_attention(q, KVLayer(kept, kept), plan, None, sinks)

    def drawn(outputs: int) -> Mxfp4Weight:
        return Mxfp4Weight(*(torch.zeros(outputs, 90, *last, dtype=torch.uint8) for last in ((16,), ())))

    expert = Mxfp4Expert(drawn(5760), drawn(2880))
    zeros = torch.zeros(4, 5760 + 2880 + 2880 + 1).bfloat16()
    router, gate_up_bias, down_bias, bias = (t.contiguous() for t in zeros.split([2880, 5760, 2880, 1], dim=1))
    weights = MixtureWeights(
        router, (), 4, True, None, None, bias.flatten(), gate_up_bias, down_bias, 7.0,
    )  # fmt: skip
    mixture = kernels.mxfp4_mixture(weights, [expert] * 4)
    for tokens in (1, 300):
        mixture(torch.zeros(tokens, 2880).bfloat16())


def launch_linear() -> None:
    """As a projection of Qwen3-0.6B does, of one token, of some and of a prompt's."""
    kernels, x = triton_kernels(), torch.zeros(1, 1024).bfloat16()
    plain = kernels.linear(torch.zeros(2048, 1024).bfloat16(), None, "native")
    normed, _ = kernels.add_rms_norm(x, x.clone(), x[0], 1e-6, plain)
    plain(normed)
    kernels.feed_forward(Mlp(plain, plain), normed)
    for fmt in ("int8", "int4"):
        layer = triton_kernels().linear(torch.zeros(1024, 1024).bfloat16(), None, fmt)
        for tokens in (1, 4, 300):
            layer(torch.zeros(tokens, 1024).bfloat16())


def launch_low_rank() -> None:
    """Layers of Qwen3-0.6B with four adapters of rank 16 beside them, for one row, for some and for prompts."""
    kernels, rows = triton_kernels(), AdapterRows(4, torch.device("cpu"))

    def layer(inputs: int, outputs: int, rank: int) -> Linear:
        stack = Stack.of(*(torch.zeros(5, rank, width).bfloat16() for width in (inputs, outputs)))
        base = kernels.linear(torch.zeros(outputs, inputs).bfloat16(), None, "native")
        return kernels.adapted(base, stack, rows.every)

    mlp, norm = Mlp(layer(1024, 6144, 32), layer(3072, 1024, 16)), torch.zeros(1024).bfloat16()
    for tokens in (1, 128):
        rows.place([1], [tokens], [])
        x = torch.zeros(tokens, 1024).bfloat16()
        normed, _ = kernels.add_rms_norm(x, x.clone(), norm, 1e-6, mlp.gate_up)
        kernels.feed_forward(mlp, normed)
    for tokens in (300, 4096):
        rows.place([1], [tokens], [])
        mlp.gate_up(torch.zeros(tokens, 1024).bfloat16())


def launch_decoding() -> None:
    """As a step of four rows does with the vocabulary of Qwen3-0.6B, and as the sampler does without rows."""
    kernels = triton_kernels()
    state = RowState.empty(8, 2560, 151_936, 16, 100, torch.device("cpu"))
    step = kernels.rows().begin(state, torch.arange(4))
    kept = torch.zeros(16, 8, 128).bfloat16()
    kernels.paged_attention(torch.zeros(4, 16, 128).bfloat16(), KVLayer(kept, kept), step.plan, None)
    logits, wide = torch.zeros(4, 151_936).bfloat16(), torch.ones(4).double()
    chosen, logprobs = kernels.rows().choose(logits, state, torch.arange(4), step.keys)
    kernels.rows().advance(state, torch.arange(4), chosen, logprobs, torch.zeros(2, 4).double())
    kernels.likeliest(logits)
    kernels.drawing()(logits, wide.float(), torch.zeros(4, dtype=torch.int64), wide, wide, step.keys)


def launch_fp8() -> None:
    """A norm and a layer behind it, for one token, some and a prompt; a gate; experts; rows that come as they are."""
    from headgate.engine.kernels.triton.linear import StoredLinear
    from headgate.engine.kernels.triton.stored import Stored

    kernels, weight = triton_kernels(), torch.zeros(1024).bfloat16()
    for blocks in (False, True):
        kept = Fp8Weight.of(torch.zeros(1024, 1024), blocks=blocks)
        layer = StoredLinear(Stored.of_fp8(kept), None)
        for tokens in (1, 4, 300):
            layer(kernels.rms_norm(torch.zeros(tokens, 1024).bfloat16(), weight, 1e-6, layer))
        kernels.swiglu(torch.zeros(4, 6144).bfloat16(), layer)
        layer(torch.zeros(1, 1024).bfloat16())
        expert = Fp8Expert(kept, Fp8Weight.of(torch.zeros(1024, 512), blocks=blocks))
        weights = MixtureWeights(torch.zeros(8, 1024).bfloat16(), (), 4, normalize=True)
        assert kernels.fp8 is not None
        kernels.fp8.mixture(weights, [expert] * 8, None)(torch.zeros(512, 1024).bfloat16())


def launch_fp8_cache() -> None:
    """Heads written, and attention of a decoded token and of a prompt."""
    kernels, angles, slots = triton_kernels(), torch.zeros(4, 64), torch.zeros(4, dtype=torch.int64)
    kept = torch.zeros(16, 8, 128).to(torch.float8_e4m3fn)
    layer = KVLayer(kept, kept, *torch.zeros(2, 16, 8))
    q, k = torch.zeros(4, 16, 128).bfloat16(), torch.zeros(4, 8, 128).bfloat16()
    kernels.rotate_and_write(q, k, k, None, angles, angles, layer, slots)
    batch = AttentionBatch([300, 1], [310, 1100], [list(range(20)), list(range(70))], slots, 16)
    kernels.paged_attention(torch.zeros(301, 16, 128).bfloat16(), layer, kernels.plan(batch, torch.device("cpu")), None)


def test_fp8_compiles_for_the_gpus_that_have_it(tmp_path: Path) -> None:
    with compiling(90, tmp_path) as compiled:
        launch_fp8_cache()
    assert [kernel.name for kernel in compiled] == ["_place", "_attend", "_attend"]
    with compiling(90, tmp_path) as compiled:
        launch_fp8()
    experts = ["_route", "_sort", "_round", "_product", "_round", "_product", "_weigh"]
    layers = ["_few", "_norm", "_few", "_norm", "_rows", "_gate", "_few"]
    assert [kernel.name for kernel in compiled] == [*layers, *experts] * 2
    assert all(kernel.metadata.shared <= SHARED[90] for kernel in compiled)
    tiles = [kernel for kernel in compiled if kernel.name in ("_rows", "_product")]
    # Tiles of 64 rows and more are multiplied as they are, by the instruction that came with these GPUs.
    assert sum("wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3" in kernel.asm["ptx"] for kernel in tiles) == 6


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize(
    ("launch", "names"),
    [
        (launch_row_kernels, ["_enter", "_norm", "_norm", "_gate", "_gate", "_place", "_place"]),
        (launch_attention, ["_attend"] * 4),
        (launch_decode_attention, ["_begin", "_decode"] * 3),
        (launch_mixture, [*FEW_EXPERTS, *EXPERTS * 2, "_route", *PAIRS, *EXPERTS]),
        (launch_gpt_oss, ["_begin", "_decode", "_attend", "_attend", "_route", *PAIRS, *EXPERTS]),
        (launch_linear, ["_few"] * 5 + ["_rows", "_one_row", "_rows", "_rows"]),
        (
            launch_low_rank,
            [
                *["_shrink", "_few", "_expand"] * 2,
                *["_norm", "_shrink", "_expand", "_shrink", "_expand"],
                *["_shrink_tile", "_expand_tile"] * 2,
            ],
        ),
        (
            launch_decoding,
            ["_begin", "_attend", *SAMPLED, "_advance", "_survey", "_choose", *SAMPLED],
        ),
    ],
    ids=["rows", "attention", "attention of a token", "mixture", "gpt-oss", "linear", "low rank", "decoding"],
)
def test_what_is_launched_compiles(
    launch: Callable[[], None], names: list[str], capability: int, tmp_path: Path
) -> None:
    with compiling(capability, tmp_path) as compiled:
        launch()
    assert [kernel.name for kernel in compiled] == names
    for kernel in compiled:
        assert f".target sm_{capability}" in kernel.asm["ptx"]
        assert kernel.asm["cubin"]
        assert kernel.metadata.shared <= SHARED[capability]


def test_attention_fits_gpus_with_little_shared_memory(tmp_path: Path) -> None:
    kernels, device = triton_kernels(), torch.device("cpu")
    batch = AttentionBatch([300], [310], [list(range(20))], torch.zeros(300).long(), 16)
    state = RowState.empty(8, 2560, 100, 16, 100, device)
    with compiling(89, tmp_path) as compiled:
        for dim, dtype in ((128, torch.bfloat16), (64, torch.float32), (256, torch.float32)):
            kept = torch.zeros(16, 4, dim).to(dtype)
            kernels.paged_attention(
                torch.zeros(300, 8, dim).to(dtype), KVLayer(kept, kept), kernels.plan(batch, device), None
            )
        kept, angles = torch.zeros(16, 4, 128).bfloat16(), torch.zeros(1, 64)
        parts = torch.zeros(1, 16, 128).bfloat16().split([8, 4, 4], dim=1)
        step = kernels.rows().begin(state, torch.arange(1))
        kernels.attend(*parts, None, angles, angles, KVLayer(kept, kept), step.slots, step.plan, None)
    assert [kernel.name for kernel in compiled] == ["_attend"] * 3 + ["_begin", "_decode"]
    assert all(kernel.metadata.shared <= SHARED[89] for kernel in compiled)


@pytest.mark.parametrize(
    ("capability", "compiler", "untried", "why"),
    [
        ((9, 0), True, "", ""),
        ((10, 0), True, "NVIDIA X, of compute capability 10.0", ""),
        ((8, 0), True, "NVIDIA X, of compute capability 8.0", ""),
        ((7, 5), True, "", "need compute capability 8.0, and this GPU has 7.5"),
        ((9, 0), False, "", "Triton needs a C compiler"),
        (None, True, "", "torch sees no CUDA device"),
    ],
)
def test_unasked_they_are_chosen_where_they_may_run_and_to_be_tried_where_they_never_did(
    capability: tuple[int, int] | None, untried: str, why: str, *, compiler: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: capability is not None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA X")
    monkeypatch.setattr(shutil, "which", lambda name: name if compiler else None)
    chosen = choose_kernels("auto", torch.device("cuda"))
    assert chosen.native == (not why)
    assert why in chosen.why
    assert chosen.untried == untried
    assert (type(chosen.kernels) is type(triton_kernels())) == chosen.native


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ('__version__ = "0.6.4"', "Triton; FlashInfer 0.6.4 is tried for long prompts"),
        ('raise ImportError("no such library")', "Triton"),
    ],
    ids=["as it should be", "broken"],
)
def test_flashinfer_is_taken_up_where_it_is_installed(
    source: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flashinfer.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "flashinfer", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(shutil, "which", lambda name: name)
    assert choose_kernels("auto", torch.device("cuda")).why == why
    assert choose_kernels("triton", torch.device("cuda")).why == "Triton"
    sys.modules.pop("flashinfer", None)


def test_they_are_chosen_where_they_are_asked_for_and_can_run() -> None:
    assert type(choose_kernels("triton", torch.device("cuda")).kernels) is type(triton_kernels())
    with pytest.raises(ValueError, match="the device is cpu; use auto"):
        choose_kernels("triton", torch.device("cpu"))
