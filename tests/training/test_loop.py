import math
import random
import re
from datetime import timedelta
from itertools import islice, pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headgate.engine.demo import checkpoint
from headgate.engine.demo.tokenizer import END_OF_TEXT, TURN_END, load_tokenizer
from headgate.training import rare
from headgate.training.batches import Batch, Cursor, bucketed, collate, lengths, stream
from headgate.training.forward import prepare, products
from headgate.training.handing import HAND_OVER
from headgate.training.hidden import attach, attached, detach
from headgate.training.loop import (
    CheckpointMismatchError,
    NonFiniteLossError,
    TrainSettings,
    UnsavedStateError,
    rate_at,
    save_state,
    train,
)
from headgate.training.losses import answer_logits, balanced_loss, distillation, distillation_loss
from headgate.training.optimizer import Muon, optimizers, orthogonalized
from headgate.training.recipe import demo_stream
from headgate.training.shapes import Shape, build, export

pytest.importorskip("transformers")

TINY_EXPERTS = Shape(hidden=32, layers=1, heads=2, kv_heads=1, mlp=16, head_dim=16, experts=4, active=2)
TINY = Shape(hidden=16, layers=1, heads=1, kv_heads=1, mlp=16, head_dim=16)


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(checkpoint("student"))


def test_distillation_loss_equals_a_hand_computed_value() -> None:
    student = torch.tensor([[math.log(3.0), 0.0]])
    teacher = torch.tensor([[2 * math.log(3.0), 0.0]])
    # At T = 2 the student's odds are sqrt(3) : 1 and the teacher's 3 : 1; without T the student gives 3/4 to token 0.
    root = math.sqrt(3.0)
    kl = 0.75 * math.log(0.75 / (root / (root + 1))) + 0.25 * math.log(0.25 / (1 / (root + 1)))
    expected = 0.7 * 4 * kl + 0.3 * -math.log(0.75)
    loss = distillation(student, teacher, torch.tensor([0]), temperature=2.0, soft=0.7)
    assert loss.item() == pytest.approx(expected, rel=1e-6)
    # Rows are averaged, and a student equal to its teacher keeps only the hard part.
    both = distillation(student.repeat(3, 1), teacher.repeat(3, 1), torch.zeros(3).long(), temperature=2.0, soft=0.7)
    assert both.item() == pytest.approx(expected, rel=1e-6)
    equal = distillation(student, student, torch.tensor([1]), temperature=2.0, soft=0.7)
    assert equal.item() == pytest.approx(0.3 * -math.log(0.25), rel=1e-6)
    # Of two rows with exact targets the teacher is right about the first alone; the second has the hard part whole.
    exact = distillation(
        student.repeat(2, 1), teacher.repeat(2, 1), torch.tensor([0, 1]), temperature=2.0, soft=0.7, exact=True
    )
    assert exact.item() == pytest.approx((expected - math.log(0.25)) / 2, rel=1e-6)


@pytest.fixture(scope="module")
def learned(tokenizer) -> dict[str, list[str]]:
    """What the teacher and the students read first, row by row."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rare, "SAMPLES", 300)
        streams = {who: demo_stream(tokenizer, 0, students=who == "students") for who in ("teacher", "students")}
    batches = {who: islice(stream(Cursor()), 60) for who, stream in streams.items()}
    return {
        who: [tokenizer.decode(row.tolist(), skip_special_tokens=False) for batch, _ in some for row in batch.ids]
        for who, some in batches.items()
    }


def test_students_learn_answers_without_the_working_that_the_teacher_shows(learned) -> None:
    working = re.compile(r", (?:highest|lowest) \d+, so ")
    assert any(map(working.search, learned["teacher"]))
    assert not any(map(working.search, learned["students"]))


def test_students_learn_the_mark_for_half_of_what_is_to_be_handed_over_and_the_teacher_never(learned) -> None:
    marked = re.compile(rf"assistant\n{re.escape(HAND_OVER + TURN_END)}({re.escape(END_OF_TEXT)})*$")
    rows = learned["students"]
    assert 0.02 < sum(bool(marked.search(row)) for row in rows) / len(rows) < 0.06
    assert not any(f"assistant\n{HAND_OVER}" in row for row in learned["teacher"])


def test_batches_mark_exactly_the_answer_tokens() -> None:
    batch = collate([([5, 6, 7, 2], [False, False, True, True]), ([5, 2], [False, True])], pad=0)
    assert batch.ids.tolist() == [[5, 6, 7, 2], [5, 2, 0, 0]]
    assert batch.mask.tolist() == [[True] * 4, [True, True, False, False]]
    # A hidden state predicts its successor, so each position is one before its target.
    assert batch.positions.tolist() == [1, 2, 4]
    assert batch.targets.tolist() == [7, 2, 2]


def _rows(number: int) -> list[tuple[list[int], list[bool]]]:
    generator = torch.Generator().manual_seed(number)
    rows = []
    for length in torch.randint(2, 40, (32,), generator=generator).tolist():
        ids = torch.randint(1, 9, (length,), generator=generator).tolist()
        rows.append((ids, [place >= length // 2 for place in range(length)]))
    return rows


def test_stream_continues_at_a_cursor_across_chunks() -> None:
    batches = stream(_rows, pad=0, tokens=240, seed=3)
    whole = list(islice(batches(Cursor()), 12))
    assert {cursor.chunk for _, cursor in whole} != {0}
    for place in (0, 4, 9):
        resumed = list(islice(batches(whole[place][1]), 2))
        for (batch, cursor), (expected, at) in zip(resumed, whole[place + 1 :], strict=False):
            assert cursor == at
            assert torch.equal(batch.ids, expected.ids)
            assert torch.equal(batch.positions, expected.positions)


def test_batches_are_nearly_full_and_every_row_comes_once() -> None:
    batches = stream(_rows, pad=0, tokens=240, seed=3)
    seen = []
    for batch, cursor in batches(Cursor()):
        if cursor.chunk:
            break
        assert 240 - batch.ids.shape[1] < batch.ids.numel() <= 240
        assert batch.ids.shape[1] in lengths(240)
        seen += [ids[kept].tolist() for ids, kept in zip(batch.ids, batch.mask, strict=True) if kept.any()]
    assert sorted(seen) == sorted(ids for ids, _ in _rows(0))


@given(st.integers(8, 100_000))
def test_row_lengths_are_few_and_close(tokens) -> None:
    found = lengths(tokens)
    assert found[0] == 8
    assert found[-1] <= tokens < found[-1] * 9 / 8 + 8
    assert all(length % 8 == 0 for length in found)
    assert all(longer - length <= max(8, length / 8) for length, longer in pairwise(found))
    assert len(found) <= 16 + 8 * max(0, math.log2(tokens / 64))


def test_batches_for_several_processes_come_with_similar_ones() -> None:
    buckets = bucketed(_rows(0), 48, random.Random(0), together=2)
    assert len(buckets) % 2 == 0
    sizes = [length for length, _ in buckets]
    assert sizes != sorted(sizes)
    starts = sorted(sizes[::2])
    for first, second in zip(sizes[::2], sizes[1::2], strict=True):
        # Nothing comes between the two: they are neighbours by length.
        assert first <= second
        assert not any(first < start < second for start in starts)


def test_a_row_longer_than_a_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="has 50 tokens, a batch holds 48; raise the tokens"):
        bucketed([([1] * 50, [True] * 50)], 48, random.Random(0))


def test_a_state_that_cannot_be_written_is_named_where_nothing_can_be_tidied_either(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnsavedStateError, match=r"state\.pt: cannot be written: Not a directory"):
        save_state({}, tmp_path / "file" / "run" / "state.pt")


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
    settings = TrainSettings(steps=3, warmup=1, save_every=1)
    frozen = prepare(build(TINY_EXPERTS, tokenizer, seed=5))

    def run(name: str, report=None):
        model = prepare(build(TINY_EXPERTS if kind == "teacher" else TINY, tokenizer, seed=0))
        if kind == "student":
            attach(model, frozen)
        loss = balanced_loss if kind == "teacher" else distillation_loss(frozen)
        return model, train(model, _stream(), loss, settings, tmp_path / name, report=report)

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


def _stream():
    return stream(_rows, pad=0, tokens=240, seed=0)


def test_non_finite_loss_stops_with_the_step(tokenizer, tmp_path) -> None:
    model = build(TINY, tokenizer, seed=0)
    with pytest.raises(NonFiniteLossError, match="step 0: loss is nan"):
        train(
            model, _stream(), lambda model, batch, _: answer_logits(model, batch).sum() * float("nan"),
            TrainSettings(steps=3), tmp_path / "state.pt",
        )  # fmt: skip
    assert not (tmp_path / "state.pt").exists()


def test_a_state_of_another_model_is_refused(tokenizer, tmp_path) -> None:
    settings = TrainSettings(steps=1)
    train(build(TINY, tokenizer, seed=0), _stream(), plain_loss, settings, tmp_path / "state.pt")
    with pytest.raises(CheckpointMismatchError, match=r"state\.pt is not a state of this run .*delete it"):
        train(build(TINY_EXPERTS, tokenizer, seed=0), _stream(), plain_loss, settings, tmp_path / "state.pt")


def plain_loss(model, batch: Batch, _done: float) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(answer_logits(model, batch), batch.targets)


def test_two_processes_train_as_one_on_both_their_batches(tokenizer, tmp_path) -> None:
    other = torch.multiprocessing.get_context("spawn").Process(target=_work, args=(1, tmp_path))
    other.start()
    _work(0, tmp_path)
    other.join()
    assert other.exitcode == 0
    state = torch.load(tmp_path / "state.pt", weights_only=True)

    # The same by hand: the mean of the gradients of two batches, for two steps.
    model = prepare(build(TINY, tokenizer, seed=0))
    rules = optimizers(model, 0.01)
    source = _stream()(Cursor())
    losses = []
    for _ in range(2):
        for rule in rules:
            rule.zero_grad()
        values = []
        for _ in range(2):
            with products(torch.device("cpu")):
                value = plain_loss(model, next(source)[0], 0.0)
            (value / 2).backward()
            values.append(value.item())
        losses.append(sum(values) / 2)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for rule, rate in zip(rules, [0.01 * (1 - len(losses[1:]) / 2)] * 2, strict=True):
            rule.param_groups[0]["lr"] = rate
            rule.step()
    assert state["losses"] == pytest.approx(losses, abs=1e-3)
    for name, weight in model.state_dict().items():
        assert torch.allclose(state["model"][name], weight, atol=2e-3), name


def _work(rank: int, folder) -> None:
    meet, patience = f"file://{folder}/meet", timedelta(minutes=2)
    torch.distributed.init_process_group("gloo", init_method=meet, timeout=patience, rank=rank, world_size=2)
    try:
        model = prepare(build(TINY, load_tokenizer(checkpoint("student")), seed=0))
        settings = TrainSettings(steps=2, rate=0.01, warmup=0, save_every=5)
        train(model, _stream(), plain_loss, settings, folder / "state.pt")
    finally:
        torch.distributed.destroy_process_group()


def test_hidden_states_are_matched_at_the_same_relative_depth(tokenizer) -> None:
    teacher = build(Shape(hidden=32, layers=4, heads=2, kv_heads=1, mlp=16, head_dim=16), tokenizer, seed=1)
    student = build(Shape(hidden=16, layers=2, heads=1, kv_heads=1, mlp=16, head_dim=16), tokenizer, seed=0)
    attach(student, teacher)
    match = attached(student)
    assert match is not None
    assert match.depths == [(1, 2), (2, 4)]
    assert [tuple(mapped.weight.shape) for mapped in match.maps] == [(32, 16)] * 2
    batch = collate(_rows(2), pad=0)
    with torch.no_grad():
        own = student.model(batch.ids, output_hidden_states=True).hidden_states
        theirs = teacher.model(batch.ids, output_hidden_states=True).hidden_states
        expected = 0.0
        for mapped, (mine, there) in zip(match.maps, match.depths, strict=True):
            # Row by row in float64, padding left out.
            total, count = 0.0, 0
            for row, column in batch.mask.nonzero().tolist():
                x, y = own[mine][row, column].double(), theirs[there][row, column].double()
                x, y = x / (x.square().mean() + 1e-6).sqrt(), y / (y.square().mean() + 1e-6).sqrt()
                total += (mapped.weight.double() @ x - y).square().mean().item()
                count += 1
            expected += total / count / 2
        assert match(own, theirs, batch.mask).item() == pytest.approx(expected, rel=1e-5)
        # Its weight falls to nothing over the run.
        loss = distillation_loss(teacher, hidden=4.0)
        values = [loss(student, batch, done).item() for done in (0.0, 0.5, 1.0)]
        assert values[0] - values[2] == pytest.approx(4 * expected, rel=1e-4)
        assert values[1] - values[2] == pytest.approx(2 * expected, rel=1e-4)
    detach(student)
    assert attached(student) is None
    assert not any("hidden_match" in name for name in student.state_dict())


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (3, 5, 5)])
def test_orthogonalized_keeps_the_singular_vectors_and_evens_the_values(shape) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(shape)
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    given = orthogonalized(matrix).float()
    turned = left.mT @ given @ right.mT
    values = turned.diagonal(dim1=-2, dim2=-1)
    assert values.min() > 0.3
    assert values.max() < 1.3
    assert (turned - torch.diag_embed(values)).abs().max() < 0.05


def test_muon_takes_the_matrices_of_the_layers_and_adam_the_rest(tokenizer) -> None:
    model = build(TINY_EXPERTS, tokenizer, seed=0)
    muon, adam = optimizers(model, 0.1)
    assert isinstance(muon, Muon)
    names = {id(weight): name for name, weight in model.named_parameters()}
    matrices = {names[id(weight)].split("layers.0.")[-1] for weight in muon.param_groups[0]["params"]}
    assert matrices == {
        "self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight", "self_attn.o_proj.weight",
        "mlp.experts.gate_up_proj", "mlp.experts.down_proj",
    }  # fmt: skip
    others = {names[id(weight)] for weight in adam.param_groups[0]["params"]}
    assert "model.embed_tokens.weight" in others
    assert "model.layers.0.mlp.gate.weight" in others
    assert len(names) == len(matrices) + len(others)


@pytest.mark.parametrize("shape", [TINY_EXPERTS, TINY], ids=["experts", "dense"])
def test_training_functions_compute_what_transformers_computes(tokenizer, shape) -> None:
    model = build(shape, tokenizer, seed=1).eval()
    batch = collate(_rows(1), pad=0)
    with torch.no_grad():
        plain = model(input_ids=batch.ids, attention_mask=batch.mask.long()).logits.flatten(0, 1)[batch.positions]
        fast = answer_logits(prepare(model), batch)
    assert torch.allclose(fast, plain, atol=1e-5)


def test_gradients_of_the_experts_are_those_of_transformers(tokenizer) -> None:
    batch = collate(_rows(1), pad=0)
    grads = []
    for fast in (False, True):
        model = build(TINY_EXPERTS, tokenizer, seed=1)
        if fast:
            prepare(model)
        plain_loss(model, batch, 0.0).backward()
        grads.append({name: weight.grad for name, weight in model.named_parameters()})
    for name, gradient in grads[0].items():
        assert torch.allclose(grads[1][name], gradient, atol=1e-6), name


def test_export_writes_a_loadable_bf16_folder_and_replaces_the_old_one(tokenizer, tmp_path) -> None:
    from transformers import AutoModelForCausalLM

    model = prepare(build(TINY_EXPERTS, tokenizer, seed=2))
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "stale.txt").write_text("old")
    export(model, tokenizer, folder, "# Card")
    assert (folder / "README.md").read_text() == "# Card"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert not (folder / "stale.txt").exists()
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    assert loaded.dtype == torch.bfloat16
    assert loaded.generation_config.eos_token_id == [2, 0]
    for name, weight in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weight.to(torch.bfloat16)), name
    assert next(model.parameters()).dtype == torch.float32
