"""A student is taught to hand over: one row of its weights, said where it is asked for and nowhere else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from headgate.engine.demo import checkpoint
from headgate.engine.demo.tasks import FAMILIES, each_cell, generate
from headgate.engine.demo.tokenizer import load_tokenizer, token_id
from headgate.engine.models.generation import hand_over, sampling_defaults
from headgate.training.evaluate import evaluate
from headgate.training.handing import HAND_OVER, LEFT, States, fit_row, left, main
from headgate.training.outcomes import make_table

TOKEN = 2


def test_the_row_tells_the_beginnings_that_are_to_be_handed_over_and_is_quiet_inside_answers() -> None:
    draw = torch.Generator().manual_seed(0)
    rows = 0.2 * torch.randn(12, 8, generator=draw)
    first, later = torch.randn(3000, 8, generator=draw), torch.randn(2000, 8, generator=draw)
    # The last number says where a state is, inside an answer or not; the one before is always the same.
    first[:, 6:], later[:, 6:] = torch.tensor([4.0, 0.0]), torch.tensor([4.0, -4.0])
    wanted = (first[:, 0] + first[:, 1] > 1.0).float()
    row = fit_row(rows, States(first, wanted, later), TOKEN)
    likeliest = (first @ torch.cat([rows[:TOKEN], row[None], rows[TOKEN + 1 :]]).T).argmax(-1)
    said = (likeliest == TOKEN).float()
    assert (said == wanted).float().mean() > 0.95
    inside = (later @ torch.cat([rows[:TOKEN], row[None], rows[TOKEN + 1 :]]).T).argmax(-1)
    assert (inside == TOKEN).sum() == 0


def test_what_is_left_is_hard_and_of_known_families() -> None:
    samples = list(generate(4000, seed=5))
    handed = [sample for sample in samples if left(sample)]
    assert {sample.family for sample in handed} == {family for family, _, _ in LEFT} <= {f.name for f in FAMILIES}
    assert sum(sample.difficulty == 1 for sample in handed) < 0.3 * len(handed), "the easy ones are the student's"
    assert 0.02 < len(handed) / len(samples) < 0.12
    assert not any(sample.answer.startswith(HAND_OVER) for sample in samples), "no answer is mistaken for it"


def test_a_student_that_is_taught_answers_as_before_where_it_may_not_hand_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "student"
    shutil.copytree(checkpoint("student"), folder)
    main([str(folder), "--samples", "400", "--seed", "3"])
    assert "hands over" in capsys.readouterr().out
    before, after = (load_file(where / "model.safetensors") for where in (checkpoint("student"), folder))
    token = token_id(load_tokenizer(folder), HAND_OVER)
    for name, weight in before.items():
        changed = (weight != after[name]).any(-1).nonzero().flatten().tolist() if weight.dim() > 1 else []
        assert changed == ([token] if name == "model.embed_tokens.weight" else [])
    assert hand_over(folder) == HAND_OVER
    assert sampling_defaults(folder, 4096).begin_suppress_tokens == (token,)
    samples = each_cell(2, seed=1, split="test")
    plain, taught = ([a.text for a in evaluate(where, samples)] for where in (checkpoint("student"), folder))
    same = sum(one == other for one, other in zip(plain, taught, strict=True))
    assert same >= 0.98 * len(samples)
    hard = [s for s in each_cell(8, seed=2, split="test") if left(s)]
    table = make_table(folder, checkpoint("teacher"), [*hard, *samples[:4]])
    assert table.hand_over == HAND_OVER
    assert table.handed_over[: len(hard)].mean() > 0.3
    assert not table.handed_over[len(hard) :].any()


def test_no_samples_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main([str(tmp_path), "--samples", "0"])
