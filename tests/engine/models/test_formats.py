"""Which layers of a model have the bits it was asked for, and which have more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tiny_models import MakeCheckpoint
from torch import Tensor

from headgate.engine.kernels.mixture import Mixture, MixtureWeights
from headgate.engine.kernels.reference import ReferenceKernels
from headgate.engine.models.architectures import read_spec
from headgate.engine.models.loader import load_decoder
from headgate.engine.models.weights.formats import layer_formats
from headgate.engine.quant.linear import Linear, WeightFormat

SHAPE: Mapping[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
MIXTURE = {"architectures": ["Qwen3MoeForCausalLM"], "num_experts": 4, "num_experts_per_tok": 2}
MIXTURE |= {"moe_intermediate_size": 32, "norm_topk_prob": True}


@pytest.mark.parametrize(
    ("layers", "wide"),
    [(1, {0}), (3, {0, 1, 2}), (8, {0, 1, 6, 7}), (17, {0, 1, 2, 14, 15, 16}), (28, {0, 1, 2, 3, 24, 25, 26, 27})],
)
def test_attention_of_the_first_and_last_layers_has_eight_bits(layers: int, wide: set[int]) -> None:
    found = layer_formats(read_spec({**SHAPE, "num_hidden_layers": layers}), "int4", int8=True)
    assert len(found.attention) == layers
    assert {number for number, fmt in enumerate(found.attention) if fmt == "int8"} == wide
    assert set(found.attention) <= {"int4", "int8"}
    assert found.others == "int4"


def test_beside_experts_the_attention_of_all_layers_has() -> None:
    found = layer_formats(read_spec({**SHAPE, **MIXTURE, "num_hidden_layers": 30}), "int4", int8=True)
    assert list(found.attention) == ["int8"] * 30
    assert found.others == "int4"


@pytest.mark.parametrize(("fmt", "int8"), [("int4", False), ("int8", True), ("native", True)])
def test_otherwise_every_layer_has_what_was_asked_for(fmt: WeightFormat, int8: bool) -> None:
    found = layer_formats(read_spec({**SHAPE, "num_hidden_layers": 30}), fmt, int8=int8)
    assert {*found.attention, found.others} == {fmt}


class Asked(ReferenceKernels):
    """Keeps what it is asked for: the shapes and formats of layers and the formats of mixtures, in order."""

    def __init__(self) -> None:
        self.layers: list[tuple[tuple[int, ...], WeightFormat]] = []
        self.mixtures: list[WeightFormat] = []

    def linear(
        self, weight: Tensor, bias: Tensor | None, fmt: WeightFormat, importance: Tensor | None = None
    ) -> Linear:
        self.layers.append((tuple(weight.shape), fmt))
        return super().linear(weight, bias, fmt, importance)

    def mixture(self, weights: MixtureWeights, fmt: WeightFormat) -> Mixture:
        self.mixtures.append(fmt)
        return ReferenceKernels().mixture(weights, fmt)


def test_a_checkpoint_is_loaded_so(make_checkpoint: MakeCheckpoint) -> None:
    attention, mlp, head = [(256, 64), (64, 128)], [(192, 64), (64, 96)], (320, 64)
    wide = [(shape, "int8") for shape in attention]
    dense, mixed = Asked(), Asked()
    load_decoder(make_checkpoint("qwen3", num_hidden_layers=5), dense, fmt="int4")
    middle = [(shape, "int4") for shape in attention]
    after = [(shape, "int4") for shape in mlp]
    assert sorted(dense.layers) == sorted([*wide * 4, *middle, *after * 5, (head, "int4")])
    assert not dense.mixtures
    load_decoder(make_checkpoint("qwen3-moe"), mixed, fmt="int4")
    # Its first layer has no experts.
    assert sorted(mixed.layers) == sorted([*wide, *after, *wide, *wide, (head, "int4")])
    assert mixed.mixtures == ["int4", "int4"]
