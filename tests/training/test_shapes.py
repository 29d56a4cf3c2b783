"""What a model takes over from a checkpoint of other sizes."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from headgate.engine.demo.tokenizer import train_tokenizer
from headgate.training.shapes import Shape, build, export, load_weights

pytest.importorskip("transformers")

NARROW = Shape(hidden=64, layers=2, heads=4, kv_heads=2, mlp=64, head_dim=16)
WIDE = replace(NARROW, heads=6, kv_heads=3, mlp=96)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(seed=0, samples=2_000)


@pytest.fixture(scope="module")
def narrow(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("narrow") / "narrow"
    export(build(NARROW, tokenizer, seed=1), tokenizer, folder, "")
    return folder


def test_a_wider_model_begins_as_the_narrow_one_and_learns_with_all_it_has(tokenizer: Tokenizer, narrow: Path) -> None:
    same, wide = build(NARROW, tokenizer, seed=2), build(WIDE, tokenizer, seed=2)
    assert load_weights(same, narrow)
    assert load_weights(wide, narrow)
    ids = torch.randint(3, 300, (2, 30), generator=torch.Generator().manual_seed(3))
    logits = wide(ids).logits
    assert torch.allclose(logits, same(ids).logits, atol=1e-4)
    torch.autograd.backward(torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()))
    layer = wide.model.layers[1]
    for added in (layer.self_attn.o_proj.weight.grad[:, 64:], layer.mlp.down_proj.weight.grad[:, 64:]):
        assert (added.abs().sum(dim=0) > 0).all()


@pytest.mark.parametrize(
    "shape",
    [replace(NARROW, hidden=80), replace(NARROW, kv_heads=4), replace(NARROW, mlp=32), replace(NARROW, layers=3)],
    ids=["hidden size", "heads a group", "narrower", "deeper"],
)
def test_other_sizes_are_refused(tokenizer: Tokenizer, narrow: Path, shape: Shape) -> None:
    with pytest.raises(ValueError, match="narrow cannot be started from"):
        load_weights(build(shape, tokenizer, seed=1), narrow)
