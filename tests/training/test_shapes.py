"""What a model takes over from a checkpoint of other sizes."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from headgate.engine.demo import checkpoint
from headgate.engine.demo.tokenizer import load_tokenizer
from headgate.training.shapes import Shape, build, export, load_weights

pytest.importorskip("transformers")

WIDE = Shape(hidden=64, layers=2, heads=4, kv_heads=2, mlp=96, head_dim=16)
NARROW = replace(WIDE, mlp=64)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer(checkpoint("student"))


@pytest.fixture(scope="module")
def wide(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of whose neurons every third hardly says anything."""
    folder = tmp_path_factory.mktemp("wide") / "wide"
    model = build(WIDE, tokenizer, seed=1)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.mlp.down_proj.weight[:, ::3] *= 1e-6
    export(model, tokenizer, folder, "")
    return folder


def test_a_model_with_narrower_mlps_begins_with_the_neurons_that_say_most(tokenizer: Tokenizer, wide: Path) -> None:
    same, narrow = build(WIDE, tokenizer, seed=2), build(NARROW, tokenizer, seed=2)
    assert load_weights(same, wide)
    assert load_weights(narrow, wide)
    ids = torch.randint(3, 300, (2, 30), generator=torch.Generator().manual_seed(3))
    assert torch.allclose(narrow(ids).logits, same(ids).logits, atol=1e-4)


@pytest.mark.parametrize(
    "shape",
    [replace(WIDE, hidden=80), replace(WIDE, kv_heads=4), replace(WIDE, mlp=128), replace(WIDE, layers=3)],
    ids=["hidden size", "heads", "wider", "deeper"],
)
def test_other_sizes_are_refused(tokenizer: Tokenizer, wide: Path, shape: Shape) -> None:
    with pytest.raises(ValueError, match="wide cannot be started from"):
        load_weights(build(shape, tokenizer, seed=1), wide)
