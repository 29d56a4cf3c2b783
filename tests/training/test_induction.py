"""Models that start with heads which copy."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from headgate.engine.demo import checkpoint
from headgate.engine.demo.tokenizer import load_tokenizer
from headgate.training.shapes import Shape, build

pytest.importorskip("transformers")

TINY_EXPERTS = Shape(hidden=32, layers=1, heads=2, kv_heads=1, mlp=16, head_dim=16, experts=4, active=2)
TINY = Shape(hidden=16, layers=1, heads=1, kv_heads=1, mlp=16, head_dim=16)


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(checkpoint("student"))


@pytest.mark.parametrize("shape", [TINY_EXPERTS, TINY], ids=["experts", "dense"])
def test_a_fresh_head_raises_the_logit_of_the_token_it_attends_to(tokenizer, shape) -> None:
    model = build(shape, tokenizer, seed=3)
    embeddings = model.model.embed_tokens.weight.detach()[1:]  # the first is padding, all zero
    for layer in model.model.layers:
        values = layer.self_attn.v_proj.weight.detach()
        group = shape.heads // shape.kv_heads
        for head in range(shape.heads):
            kv = values[head // group * shape.head_dim :][: shape.head_dim]
            output = layer.self_attn.o_proj.weight.detach()[:, head * shape.head_dim :][:, : shape.head_dim]
            # The diagonal of E O V E^T: what attending to each token adds to its own logit.
            assert ((embeddings @ output) * (embeddings @ kv.T)).sum(dim=1).min() > 0
    same = build(shape, tokenizer, seed=3).state_dict()
    assert all(torch.equal(weight, same[name]) for name, weight in model.state_dict().items())


COPYING = Shape(hidden=128, layers=2, heads=4, kv_heads=2, mlp=64, induction=True)


def test_a_model_started_with_induction_heads_copies_untrained(tokenizer) -> None:
    model = build(COPYING, tokenizer, seed=0)
    torch.manual_seed(0)
    words = torch.randint(300, 3000, (8, 24))
    # Twice the same random tokens: in the second half each token has occurred before, with its successor.
    with torch.no_grad():
        model.set_attn_implementation("eager")
        output = model(input_ids=torch.cat((words, words), dim=1), output_attentions=True)
    previous, found = output.attentions[0][:, 0], output.attentions[1][:, 0]
    assert previous.diagonal(offset=-1, dim1=1, dim2=2).mean() > 0.9
    # From place 24 + n the head looks at place n + 1.
    assert found.diagonal(offset=-23, dim1=1, dim2=2)[:, 1:].mean() > 0.9
    guesses = output.logits[:, 24:-1].argmax(-1)
    plain = build(dataclasses.replace(COPYING, induction=False), tokenizer, seed=0)(torch.cat((words, words), dim=1))
    right = (guesses == words[:, 1:]).float().mean()
    assert right > 0.5
    assert right > 5 * (plain.logits[:, 24:-1].argmax(-1) == words[:, 1:]).float().mean()


def test_induction_heads_need_room(tokenizer) -> None:
    with pytest.raises(ValueError, match=r"need 2 layers .* has 1 layers and hidden size 16 with heads of 16"):
        build(dataclasses.replace(TINY, induction=True), tokenizer, seed=0)
