"""Triton's fp8 layers, and what rounds rows for them, in its interpreter, against the same rounding in plain torch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from fp8_checkpoints import BLOCKS, write_fp8
from test_experts import make, tokens
from triton_cases import in_the_interpreter, right_fp8, triton_kernels

from headgate.bench.checkpoints import SHAPES, write_shape
from headgate.engine.kernels.interface import AttentionBatch, Fp8Layers
from headgate.engine.kernels.mixture import Fp8Expert, MixtureWeights, ReferenceMixture
from headgate.engine.kv.store import KVStore
from headgate.engine.models.loader import load_decoder
from headgate.engine.quant.fp8 import Fp8Weight, round_activations
from headgate.engine.quant.linear import Linear

pytestmark = [in_the_interpreter, pytest.mark.usefixtures(right_fp8.__name__)]

BOTH = pytest.mark.parametrize("blocks", [False, True], ids=["rows", "blocks"])


def fp8_layers() -> Fp8Layers:
    layers = triton_kernels().fp8
    assert layers is not None
    return layers


class Plain:
    """The layer in plain torch."""

    nbytes = 0

    def __init__(self, weight: Fp8Weight, *, rounds: bool) -> None:
        self._weight, self._rounds = weight, rounds

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return expected_product(x, self._weight, None, rounds=self._rounds).to(x.dtype)


def as_rounded(x: torch.Tensor, *, blocks: bool) -> torch.Tensor:
    values, scales = round_activations(x, blocks=blocks)
    return values.double() * (scales.repeat_interleave(128, 1)[:, : x.shape[1]] if blocks else scales).double()


def expected_product(x: torch.Tensor, weight: Fp8Weight, bias: torch.Tensor | None, *, rounds: bool) -> torch.Tensor:
    y = (as_rounded(x, blocks=weight.blocks) if rounds else x.double()) @ weight.expand(torch.float64).T
    return y if bias is None else y + bias


def near(got: torch.Tensor, expected: torch.Tensor, most: float = 2e-3) -> None:
    """Triton divides a little differently than torch: an element may be rounded to the neighbour, by a sixteenth."""
    assert got.isfinite().all()
    assert (got.double() - expected.double()).norm() <= most * expected.double().norm()


@BOTH
@pytest.mark.parametrize("count", [1, 3, 20, 70])
def test_linear(count: int, *, blocks: bool) -> None:
    generator = torch.Generator().manual_seed(count)
    weight = Fp8Weight.of(torch.randn(150, 200, generator=generator) / 14, blocks=blocks)
    bias = torch.randn(150, generator=generator).half()
    x = torch.randn(count, 200, generator=generator).half()
    layer = fp8_layers().linear(weight, bias)
    near(layer(x), expected_product(x, weight, bias, rounds=count > fp8_layers().unrounded))
    assert layer.nbytes == 150 * 200 + (4 * 2 * 2 if blocks else 4 * 150) + 2 * 150


@BOTH
@pytest.mark.parametrize("count", [5, 40])
def test_inputs_of_few_tiles_are_shared_out(count: int, *, blocks: bool) -> None:
    generator = torch.Generator().manual_seed(count)
    weight = Fp8Weight.of(torch.randn(140, 1200, generator=generator) / 35, blocks=blocks)
    layer = fp8_layers().linear(weight, None)
    for _ in range(2):  # the second time finds what the first one left
        x = torch.randn(count, 1200, generator=generator)
        near(layer(x), expected_product(x, weight, None, rounds=True))


@BOTH
def test_large_weights_take_rounded_rows_from_two_on(monkeypatch: pytest.MonkeyPatch, *, blocks: bool) -> None:
    from headgate.engine.kernels.triton import few

    monkeypatch.setattr(few, "SMALL", 200 * 150)
    generator = torch.Generator().manual_seed(2)
    weight = Fp8Weight.of(torch.randn(150, 200, generator=generator) / 14, blocks=blocks)
    layer = fp8_layers().linear(weight, None)
    for count in (1, 2, 4):
        x = torch.randn(count, 200, generator=generator).half()
        assert fp8_layers().rounds(weight, count) == (count > 1)
        near(layer(x), expected_product(x, weight, None, rounds=count > 1))


@BOTH
def test_what_comes_before_leaves_rows_rounded(*, blocks: bool) -> None:
    kernels, generator = triton_kernels(), torch.Generator().manual_seed(3)
    x, residual, scale = (torch.randn(*shape, generator=generator).half() for shape in ((5, 200), (5, 200), (200,)))
    gate_up = torch.randn(5, 2 * 1300, generator=generator).half()
    narrow, wide = (
        fp8_layers().linear(Fp8Weight.of(torch.randn(40, inputs, generator=generator), blocks=blocks), None)
        for inputs in (200, 1300)
    )
    for rounded, plain in (
        (kernels.rms_norm(x, scale, 1e-6, narrow), kernels.rms_norm(x, scale, 1e-6)),
        (
            kernels.add_rms_norm(x, residual.clone(), scale, 1e-6, narrow)[0],
            kernels.add_rms_norm(x, residual.clone(), scale, 1e-6)[0],
        ),
        (kernels.swiglu(gate_up, wide), kernels.swiglu(gate_up)),
        (kernels.geglu(gate_up, wide), kernels.geglu(gate_up)),
    ):
        assert torch.equal(rounded.exact, plain)
        layer = narrow if plain.shape[1] == 200 else wide
        assert torch.equal(layer(rounded), layer(plain))
        runs = rounded.scales[:, :5].t()
        values, scales = round_activations(plain, blocks=blocks)
        torch.testing.assert_close(runs, scales)
        assert (rounded.values[:5].float() != values.float()).float().mean() < 0.01


@BOTH
@pytest.mark.parametrize(("count", "shared"), [(1, 0), (17, 128)])
def test_experts(count: int, shared: int, *, blocks: bool) -> None:
    weights = make(128, 128, 3, 2, shared=shared, dtype=torch.float16)

    def kept(weight: torch.Tensor) -> Fp8Weight:
        return Fp8Weight.of(weight, blocks=blocks)

    experts = [Fp8Expert(kept(each.gate_up), kept(each.down)) for each in weights.experts]
    given = weights.shared
    of_all = Fp8Expert(kept(given.gate_up), kept(given.down)) if given is not None else None
    mixture = fp8_layers().mixture(
        MixtureWeights(weights.router, (), 2, True, None, weights.shared_gate), experts, of_all
    )
    x = tokens(weights, count)

    def plain(weight: torch.Tensor) -> Linear:
        return Plain(kept(weight), rounds=count > fp8_layers().unrounded)

    expected = ReferenceMixture(weights, plain)(x)
    near(mixture(x), expected, 1e-2)
    kernels, ones = triton_kernels(), torch.ones(128).half()
    normed = kernels.rms_norm(x, ones, 1e-6)
    near(mixture(kernels.rms_norm(x, ones, 1e-6, mixture)), ReferenceMixture(weights, plain)(normed), 1e-2)
    each = 256 * 128 + 128 * 128 + (4 * (2 + 1) if blocks else 4 * (256 + 128))
    assert mixture.expert_nbytes == each


def test_what_is_not_finite_stays_visible() -> None:
    x = torch.ones(3, 256)
    x[1, 7] = float("nan")
    for blocks in (False, True):
        layer = fp8_layers().linear(Fp8Weight.of(torch.ones(16, 256), blocks=blocks), None)
        got = layer(x)
        assert got[1].isnan().all()
        assert got[[0, 2]].isfinite().all()


def test_torch_multiplies_where_it_can() -> None:
    from headgate.engine.kernels.triton.stock import StockProduct, stock_works

    cpu = torch.device("cpu")
    # By blocks it is Hopper's alone.
    assert (stock_works("fp8 rows", cpu), stock_works("fp8 blocks", cpu)) == (True, False)
    generator = torch.Generator().manual_seed(0)
    weight = Fp8Weight.of(torch.randn(48, 64, generator=generator), blocks=False)
    x, bias = torch.randn(65, 64, generator=generator).bfloat16(), torch.ones(48).bfloat16()
    assert (StockProduct(weight)(x, bias).double() - expected_product(x, weight, bias, rounds=True)).abs().max() < 0.2
    many = fp8_layers().linear(weight, bias)(x)
    assert torch.equal(many, StockProduct(weight)(x, bias))


def test_a_checkpoint_stays_fp8(tmp_path: Path) -> None:
    shape = SHAPES["qwen3-moe"] | {
        "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 128,
        "moe_intermediate_size": 128, "num_experts": 3, "num_experts_per_tok": 2, "vocab_size": 40,
        "intermediate_size": 128, "mlp_only_layers": [0],
    }  # fmt: skip
    low, twin = write_fp8(write_shape("plain", shape, tmp_path, spread=0.1), tmp_path, BLOCKS)
    found = []
    for folder in (low, twin):
        decoder = load_decoder(folder, triton_kernels(), dtype="float32").decoder
        store = KVStore(decoder.spec, 2, 8, torch.float32, torch.device("cpu"))
        # More tokens than stay unrounded, but for the last layer's, of which only these rows are computed.
        batch = AttentionBatch([6], [6], [[0]], torch.arange(6), 8)
        tokens, rows = torch.arange(6), torch.tensor([0, 2])
        found.append((decoder.weight_bytes, decoder.forward(tokens, torch.arange(6), batch, store.layers, rows)))
    (bytes_low, got), (bytes_twin, expected) = found
    assert bytes_low < 0.4 * bytes_twin
    assert 0.005 < (got - expected).norm() / expected.norm() < 0.1
