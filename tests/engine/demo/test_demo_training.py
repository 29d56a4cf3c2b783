import json
import math
from itertools import islice

import pytest
import torch

from headgate.engine.demo import checkpoint
from headgate.engine.demo.data import Cursor, collate, stream
from headgate.engine.demo.distill import distillation_loss, student_loss
from headgate.engine.demo.pair import Shape, build, export, prepare
from headgate.engine.demo.tokenizer import load_tokenizer
from headgate.engine.demo.train import NonFiniteLossError, TrainSettings, answer_logits, rate_at, teacher_loss, train

pytest.importorskip("transformers")

TINY_EXPERTS = Shape(hidden=32, layers=1, heads=2, kv_heads=1, mlp=16, head_dim=16, experts=4, active=2)
TINY = Shape(hidden=16, layers=1, heads=1, kv_heads=1, mlp=16, head_dim=16)


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(checkpoint("student"))


def test_shipped_folders_are_complete_and_small() -> None:
    total = 0
    for name in ("teacher", "student"):
        folder = checkpoint(name)
        names = {path.name for path in folder.iterdir()}
        assert names == {
            "README.md", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
            "tokenizer_config.json",
        }  # fmt: skip
        total += sum(path.stat().st_size for path in folder.iterdir())
        generation = json.loads((folder / "generation_config.json").read_text())
        assert generation["do_sample"] is False
        assert generation["eos_token_id"] == [2, 0]
    assert total <= 14_000_000


def test_unknown_checkpoint_is_refused() -> None:
    with pytest.raises(ValueError, match="'large' is unknown; known: teacher, student"):
        checkpoint("large")


def test_student_is_smaller_than_teacher_in_active_weights() -> None:
    sizes = {}
    for name in ("teacher", "student"):
        config = json.loads((checkpoint(name) / "config.json").read_text())
        hidden, head = config["hidden_size"], config["head_dim"]
        attention = 2 * hidden * head * (config["num_attention_heads"] + config["num_key_value_heads"])
        width = config.get("moe_intermediate_size", 0) * config.get("num_experts_per_tok", 0)
        mlp = 3 * hidden * (width or config["intermediate_size"])
        sizes[name] = config["num_hidden_layers"] * (attention + mlp) + hidden * config["vocab_size"]
    assert sizes["student"] < 0.5 * sizes["teacher"]


def test_distillation_loss_equals_a_hand_computed_value() -> None:
    student = torch.tensor([[math.log(3.0), 0.0]])
    teacher = torch.tensor([[2 * math.log(3.0), 0.0]])
    # At T = 2 the student's odds are sqrt(3) : 1 and the teacher's 3 : 1; without T the student gives 3/4 to token 0.
    root = math.sqrt(3.0)
    kl = 0.75 * math.log(0.75 / (root / (root + 1))) + 0.25 * math.log(0.25 / (1 / (root + 1)))
    expected = 0.7 * 4 * kl + 0.3 * -math.log(0.75)
    loss = distillation_loss(student, teacher, torch.tensor([0]), temperature=2.0, soft=0.7)
    assert loss.item() == pytest.approx(expected, rel=1e-6)
    # Rows are averaged, and a student equal to its teacher keeps only the hard part.
    both = distillation_loss(
        student.repeat(3, 1), teacher.repeat(3, 1), torch.zeros(3).long(), temperature=2.0, soft=0.7
    )
    assert both.item() == pytest.approx(expected, rel=1e-6)
    equal = distillation_loss(student, student, torch.tensor([1]), temperature=2.0, soft=0.7)
    assert equal.item() == pytest.approx(0.3 * -math.log(0.25), rel=1e-6)


def test_batches_mark_exactly_the_answer_tokens() -> None:
    batch = collate([([5, 6, 7, 2], [False, False, True, True]), ([5, 2], [False, True])], pad=0)
    assert batch.ids.tolist() == [[5, 6, 7, 2], [5, 2, 0, 0]]
    assert batch.mask.tolist() == [[True] * 4, [True, True, False, False]]
    # A hidden state predicts its successor, so each position is one before its target.
    assert batch.positions.tolist() == [1, 2, 4]
    assert batch.targets.tolist() == [7, 2, 2]


def test_stream_continues_at_a_cursor_across_chunks(tokenizer) -> None:
    whole = list(islice(stream(tokenizer, seed=3, tokens=512, chunk=32), 12))
    assert {cursor.chunk for _, cursor in whole} != {0}
    for place in (0, 4, 9):
        resumed = list(islice(stream(tokenizer, seed=3, tokens=512, start=whole[place][1], chunk=32), 2))
        for (batch, cursor), (expected, at) in zip(resumed, whole[place + 1 :], strict=False):
            assert cursor == at
            assert torch.equal(batch.ids, expected.ids)
            assert torch.equal(batch.positions, expected.positions)
    assert Cursor() == Cursor(0, 0)
    for batch, _ in whole:
        assert batch.ids.numel() <= 512 or batch.ids.shape[0] == 1


def test_rate_rises_then_falls_to_zero() -> None:
    settings = TrainSettings(steps=100, rate=1.0, warmup=10)
    rates = [rate_at(step, settings) for step in range(101)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == rates[9] == 1.0
    assert rates[55] == pytest.approx(0.5)
    assert rates[100] == 0.0
    assert rates[9:] == sorted(rates[9:], reverse=True)


class _StopError(Exception):
    pass


@pytest.mark.parametrize("kind", ["teacher", "student"])
def test_interrupted_training_resumes_to_the_same_weights(tokenizer, tmp_path, kind) -> None:
    settings = TrainSettings(steps=3, tokens=256, warmup=1, save_every=1)
    frozen = prepare(build(TINY_EXPERTS, tokenizer, seed=5))

    def run(name: str, report=None):
        model = prepare(build(TINY_EXPERTS if kind == "teacher" else TINY, tokenizer, seed=0))
        loss = teacher_loss() if kind == "teacher" else student_loss(frozen)
        return model, train(model, tokenizer, loss, settings, tmp_path / name, report=report)

    def stop_in_step_two(step: int, _loss: float, _speed: float) -> None:
        if step == 2:
            raise _StopError

    with pytest.raises(_StopError):
        run("cut.pt", stop_in_step_two)
    resumed, losses = run("cut.pt")
    whole, expected = run("whole.pt")
    assert losses == expected
    assert len(losses) == 3
    for name, weight in whole.state_dict().items():
        assert torch.equal(weight, resumed.state_dict()[name]), name
    assert {path.name for path in tmp_path.iterdir()} == {"cut.pt", "whole.pt"}


def test_non_finite_loss_stops_with_the_step(tokenizer, tmp_path) -> None:
    model = build(TINY, tokenizer, seed=0)
    settings = TrainSettings(steps=3, tokens=256)
    with pytest.raises(NonFiniteLossError, match="step 0: loss is nan"):
        train(
            model, tokenizer, lambda model, batch: answer_logits(model, batch).sum() * float("nan"), settings,
            tmp_path / "state.pt",
        )  # fmt: skip
    assert not (tmp_path / "state.pt").exists()


@pytest.mark.parametrize("shape", [TINY_EXPERTS, TINY], ids=["experts", "dense"])
def test_training_functions_compute_what_transformers_computes(tokenizer, shape) -> None:
    model = build(shape, tokenizer, seed=1).eval()
    batch, _ = next(stream(tokenizer, seed=0, tokens=200, chunk=8))
    with torch.no_grad():
        plain = model(input_ids=batch.ids, attention_mask=batch.mask.long()).logits.flatten(0, 1)[batch.positions]
        fast = answer_logits(prepare(model), batch)
    assert torch.allclose(fast, plain, atol=1e-5)


def test_export_writes_a_loadable_bf16_folder_and_replaces_the_old_one(tokenizer, tmp_path) -> None:
    from transformers import AutoModelForCausalLM

    model = prepare(build(TINY_EXPERTS, tokenizer, seed=2))
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "stale.txt").write_text("old")
    export(model, tokenizer, folder)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert not (folder / "stale.txt").exists()
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    assert loaded.dtype == torch.bfloat16
    assert loaded.generation_config.eos_token_id == [2, 0]
    for name, weight in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weight.to(torch.bfloat16)), name
    assert next(model.parameters()).dtype == torch.float32


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
