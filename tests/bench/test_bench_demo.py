"""`headgate bench demo` end to end on random checkpoints: what it accounts for, not how good or fast the models are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tiny_models import MakeCheckpoint, write_tokenizer

from headgate.bench.ceilings import Ceilings
from headgate.bench.cli import bench
from headgate.bench.demo import report as demo_report
from headgate.bench.demo.measure import NAMES, DemoFigures, Measured
from headgate.engine.demo.tasks import FAMILIES, Message, Sample, each_cell
from headgate.engine.front.model_info import ModelInfo
from headgate.engine.models.generation import SamplingDefaults
from headgate.training.evaluate import Answer

MACHINE = Ceilings("a machine", 1, 1e9, {"float32": 1e9, "bfloat16": 1e9})


@pytest.fixture
def models(make_checkpoint: MakeCheckpoint, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Options that name three random models; answers are short and the ceilings, which nothing here uses, made up."""
    monkeypatch.setattr("headgate.training.evaluate.LONGEST_ANSWER", 2)
    monkeypatch.setattr("headgate.bench.ceilings.measure", lambda *_, **__: MACHINE)
    options = []
    for seed, name in enumerate(NAMES):
        architecture = "qwen3-moe" if name == "teacher" else "qwen3"
        folder = make_checkpoint(
            architecture, seed=seed, max_position_embeddings=2048, num_hidden_layers=1, mlp_only_layers=[]
        )
        write_tokenizer(folder)
        options += [f"--{name}", str(folder)]
    return options


def test_demo_bench_accounts_for_every_answer(models: list[str], tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    arguments = ["demo", "--samples", "1", "--timed", "1", "--rounds", "1", "--dialogues", "3", "--json", str(out)]
    result = CliRunner().invoke(bench, [*arguments, *models], catch_exceptions=False)
    assert result.exit_code == 0
    for part in (
        "out_of_domain",
        "student - undistilled",
        "level 1, student / teacher",
        "decode at batch 8, ms/token",
        "beyond training: right answers in % on level 4",
        "level 3 of these families",
    ):
        assert part in result.output
    assert result.output.count("  user: ") == 3
    assert result.output.count("  undistilled (") == 3

    content = json.loads(out.read_text())
    assert list(content["models"]) == list(NAMES)
    assert (content["samples"], content["split"], content["asked"]) == (1, "test", sum(f.levels for f in FAMILIES))
    for model in content["models"].values():
        assert model["overall"]["count"] == content["asked"]
        for grouping in model["by_level"].values(), model["by_family"].values(), model["by_family_and_level"]:
            assert sum(group["count"] for group in grouping) == content["asked"]
        assert model["overall"]["low"] <= model["overall"]["accuracy"] <= model["overall"]["high"]
        assert model["decode_token_s"]["1"] > 0 < model["decode_token_s"]["8"]
        assert 0 <= model["ended"]["out_of_domain"] <= 1
        assert list(model["seconds_per_right"]) == list(model["device_s_per_right"]) == ["all", "1", "2", "3"]
        assert model["file_bytes"] > 4 * model["parameters"]
        # Apart from everything above: what was asked there has levels 1 to 3 only.
        assert list(model["by_level"]) == ["1", "2", "3"]
        harder = model["beyond_training"]
        assert harder["level"] == 4
        assert harder["overall"]["count"] == sum(group["count"] for group in harder["by_family"].values())
        assert list(harder["by_family"]) == [f.name for f in FAMILIES if f.beyond]
        assert harder["level_below_of_the_same_families"]["count"] == harder["overall"]["count"]
        assert 0 <= harder["ended"] <= 1
    assert content["models"]["teacher"]["active_parameters"] < content["models"]["teacher"]["parameters"]
    assert content["student_minus_undistilled"]["overall"]["count"] == content["asked"]
    assert content["student_minus_undistilled"]["beyond_training"]["count"] == sum(f.beyond for f in FAMILIES)


def test_demo_bench_has_no_level_beyond_training_outside_the_test_split(models: list[str], tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    arguments = ["demo", "--samples", "1", "--timed", "1", "--rounds", "1", "--split", "calibration"]
    result = CliRunner().invoke(bench, [*arguments, "--json", str(out), *models], catch_exceptions=False)
    assert result.exit_code == 0
    assert "beyond training" not in result.output
    content = json.loads(out.read_text())
    assert content["student_minus_undistilled"]["beyond_training"] is None
    assert all(model["beyond_training"] is None for model in content["models"].values())


def test_demo_bench_draws_its_figures(models: list[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    arguments = ["demo", "--samples", "1", "--timed", "1", "--rounds", "1", "--seed", "1"]
    result = CliRunner().invoke(bench, [*arguments, "--plot", str(tmp_path / "plots"), *models], catch_exceptions=False)
    assert result.exit_code == 0
    pictures = sorted((tmp_path / "plots").iterdir())
    assert [path.name for path in pictures] == [
        "accuracy_by_cost.png",
        "accuracy_by_family.png",
        "accuracy_by_level.png",
    ]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--samples", "0"], "0 is not in the range x>=1"),
        (["--split", "train"], "'train' is not one of 'test', 'calibration'"),
        (["--teacher", "no/such/folder"], "Directory 'no/such/folder' does not exist"),
    ],
)
def test_demo_bench_refuses_bad_options(models: list[str], options: list[str], message: str) -> None:
    result = CliRunner().invoke(bench, ["demo", *models, *options])
    assert result.exit_code == 2
    assert message in result.output


def test_demo_bench_names_the_folder_that_is_no_checkpoint(models: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(bench, ["demo", "--samples", "1", *models, "--student", str(tmp_path)])
    assert result.exit_code == 1
    assert str(tmp_path) in result.output
    assert "is missing" in result.output


def _sample(family: str, level: int, number: int = 0) -> Sample:
    return Sample((Message("user", f"question {number}"),), "yes", family, level, "c", "test")


def _model(right: list[bool], alone: list[list[bool]]) -> Measured:
    """Answers to one sample of each level in turn: 2 s of wall clock and 1 s on the device each."""
    info = ModelInfo(
        "m", "p", "a", 64, 300, 10, 5, 20, 0.0, 0, 0, 4, "bfloat16", "native", "cpu", "", SamplingDefaults()
    )

    def answers(verdicts: list[bool]) -> list[Answer]:
        return [
            Answer(
                _sample("facts" if place % 3 else "out_of_domain", place % 3 + 1, place),
                "",
                verdict,
                verdict,
                5,
                seconds=2.0,
                device_s=1.0,
            )
            for place, verdict in enumerate(verdicts)
        ]

    return Measured("student", info, 1, answers(right), [answers(r) for r in alone], {1: [3.0, 1.0, 2.0], 8: [0.5]})


def test_costs_are_all_seconds_over_right_answers() -> None:
    model = _model([True, False, False, True, False, False], [[True, True, False], [True, False, False]])
    assert model.device_s_per_right() == 6 / 2
    assert model.device_s_per_right(1) == 2 / 2
    assert model.device_s_per_right(2) is None
    assert model.seconds_per_right() == (6 / 2 + 6 / 1) / 2
    # A round without a right answer has no cost; the median is over the others.
    assert model.seconds_per_right(2) == 2.0
    assert model.seconds_per_right(3) is None
    assert model.decode_token_s(1) == 2.0
    assert model.ended() == pytest.approx(1 / 3)


def test_ratios_without_a_right_answer_are_not_made_up() -> None:
    figures = DemoFigures({name: _model([False] * 6, [[False] * 3]) for name in NAMES}, MACHINE)
    content = demo_report.as_json(demo_report.Asked(2, 0, "test", 1, 1), figures)
    ratios = content["student_to_teacher"]
    assert ratios == {"accuracy_level_1": None, "decode_s": {"1": 1.0, "8": 1.0}}


def test_dialogues_are_spread_over_families_and_levels() -> None:
    answers = [Answer(sample, "", False, True, 1) for sample in each_cell(2, seed=0, split="test")]
    chosen = [answers[place].sample for place in demo_report.spread(answers, len(FAMILIES))]
    assert [sample.family for sample in chosen] == [family.name for family in FAMILIES]
    assert {sample.difficulty for sample in chosen} == {1, 2, 3}
    few = [answers[place].sample.family for place in demo_report.spread(answers, 3)]
    assert len(set(few)) == 3
    everything = demo_report.spread(answers, 10_000)
    assert sorted(everything) == list(range(len(answers)))
