import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from headgate.engine.demo.tasks import each_cell
from headgate.engine.demo.tokenizer import train_tokenizer
from headgate.engine.engine import Engine, EngineSettings, ModelSpec
from headgate.engine.models.generation import hand_over
from headgate.training import rare, recipe
from headgate.training.card import Training, card
from headgate.training.evaluate import Answer
from headgate.training.handing import HAND_OVER
from headgate.training.loop import TrainSettings
from headgate.training.shapes import Shape

AutoConfig = pytest.importorskip("transformers").AutoConfig

EXPERTS = Shape(hidden=64, layers=2, heads=4, kv_heads=2, mlp=32, head_dim=16, experts=4, active=2, induction=True)
DENSE = Shape(hidden=64, layers=2, heads=4, kv_heads=2, mlp=64, head_dim=16, induction=True)
DEEPER = replace(DENSE, layers=3)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe with tiny models, small chunks and a tokenizer of few samples."""
    monkeypatch.setattr(recipe, "TEACHER", EXPERTS)
    monkeypatch.setattr(recipe, "ASSISTANT", DEEPER)
    monkeypatch.setattr(recipe, "STUDENT", DENSE)
    monkeypatch.setattr(recipe, "CHUNK", 128)
    monkeypatch.setattr(recipe, "SAMPLES", 300)
    monkeypatch.setattr(rare, "SAMPLES", 300)
    monkeypatch.setattr(recipe, "train_tokenizer", lambda seed: train_tokenizer(seed=seed, samples=2_000))


OPTIONS = ["--steps-teacher", "2", "--steps-student", "2", "--samples", "1", "--threads", "1", "--no-compile"]


@pytest.mark.usefixtures("small")
def test_the_recipe_makes_its_folders_and_a_plot_and_has_nothing_to_do_again(tmp_path: Path) -> None:
    recipe.main(["--out", str(tmp_path), *OPTIONS])
    for name in recipe.STAGES:
        text = (tmp_path / name / "README.md").read_text()
        assert f"# Headgate demo {'student' if name == 'undistilled' else name}" in text
        assert "| sentiment |" in text
        assert ("- Handing over: " in text) == (name in ("student", "undistilled"))
        assert (hand_over(tmp_path / name) == HAND_OVER) == (name in ("student", "undistilled"))
        state = torch.load(tmp_path / f"{name}.pt", weights_only=True)
        assert state["step"] == len(state["losses"]) == 2
    assert (tmp_path / "loss.png").stat().st_size > 5_000
    engine = Engine(EngineSettings(threads=1))
    engine.load(*(ModelSpec(name, tmp_path / name) for name in recipe.STAGES))
    assert {engine.models[name].info.architecture for name in recipe.STAGES} == {
        "Qwen3MoeForCausalLM",
        "Qwen3ForCausalLM",
    }

    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}
    recipe.main(["--out", str(tmp_path), *OPTIONS])
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")} == before


@pytest.mark.usefixtures("small")
def test_a_run_goes_on_from_the_weights_of_another(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    teacher = ["--only", "teacher", *OPTIONS]
    recipe.main(["--out", str(first), *teacher])
    recipe.main(["--out", str(second), "--weights", str(first), *teacher])
    losses = [torch.load(folder / "teacher.pt", weights_only=True)["losses"] for folder in (first, second)]
    # The same data, so that only the weights can make a difference.
    assert losses[1][0] != losses[0][0]
    assert "Started with the weights of an earlier run" in (second / "teacher" / "README.md").read_text()
    assert (second / "teacher" / "tokenizer.json").read_text() == (first / "teacher" / "tokenizer.json").read_text()


@pytest.mark.usefixtures("small")
def test_a_folder_of_a_run_with_another_seed_or_start_is_not_gone_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    teacher = ["--only", "teacher", *OPTIONS]
    recipe.main(["--out", str(first), *teacher])
    shutil.copytree(first, second)
    for more, named in ((["--seed", "1"], "--seed 1"), (["--weights", str(first)], f"--seed 0 and --weights {first}")):
        with pytest.raises(SystemExit) as left:
            recipe.main(["--out", str(second), *more, *teacher])
        assert left.value.code == 2
        assert f"teacher.pt is the state of a run with --seed 0, not with {named}; delete it" in capsys.readouterr().err


@pytest.mark.usefixtures("small")
def test_a_run_may_end_half_way_between_its_start_and_its_end(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    teacher = ["--only", "teacher", *OPTIONS]
    recipe.main(["--out", str(first), *teacher])
    recipe.main(["--out", str(second), "--weights", str(first), "--mean", *teacher])
    start, mean = (load_file(folder / "teacher" / "model.safetensors") for folder in (first, second))
    end = torch.load(second / "teacher.pt", weights_only=True)["model"]
    wanted = (start["model.embed_tokens.weight"].float() + end["model.embed_tokens.weight"]) / 2
    assert torch.allclose(mean["model.embed_tokens.weight"].float(), wanted, rtol=2**-8)
    assert not torch.equal(end["model.embed_tokens.weight"].bfloat16(), mean["model.embed_tokens.weight"])
    assert "the mean of those and what they became" in (second / "teacher" / "README.md").read_text()


def test_a_mean_without_weights_to_start_from_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        recipe.main(["--mean"])
    assert "--mean" in capsys.readouterr().err


@pytest.mark.usefixtures("small")
def test_a_student_goes_on_with_what_taught_it(tmp_path: Path) -> None:
    first, taught, alone = tmp_path / "first", tmp_path / "taught", tmp_path / "alone"
    recipe.main(["--out", str(first), *OPTIONS])
    again = ["--weights", str(first), "--seed", "7", "--only", "student", *OPTIONS]
    recipe.main(["--out", str(taught), *again])
    assert sorted(path.name for path in taught.iterdir()) == ["loss.png", "student", "student.pt"]
    # Where no assistant was kept, as in what is shipped, the teacher itself teaches.
    shutil.rmtree(first / "assistant")
    recipe.main(["--out", str(alone), *again])
    losses = [torch.load(folder / "student.pt", weights_only=True)["losses"] for folder in (taught, alone)]
    assert losses[0][0] != losses[1][0]
    for folder, who in ((taught, "assistant"), (alone, "teacher")):
        assert f"KL({who} || student)" in (folder / "student" / "README.md").read_text()


@pytest.mark.usefixtures("small")
def test_a_student_may_start_with_the_first_layers_of_a_deeper_one(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    recipe.main(["--out", str(first), "--only", "assistant", *OPTIONS])
    shutil.copytree(first / "assistant", first / "student")
    recipe.main(["--out", str(second), "--weights", str(first), "--only", "student", *OPTIONS])
    assert "first layers of an earlier run's deeper model" in (second / "student" / "README.md").read_text()
    assert "difference of hidden states" in (second / "student" / "README.md").read_text()
    assert AutoConfig.from_pretrained(second / "student").num_hidden_layers == DENSE.layers


@pytest.mark.usefixtures("small")
def test_weights_of_another_shape_are_no_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    teacher = ["--only", "teacher", *OPTIONS]
    recipe.main(["--out", str(tmp_path / "first"), *teacher])
    monkeypatch.setattr(recipe, "TEACHER", DENSE)
    with pytest.raises(ValueError, match="cannot be started from"):
        recipe.main(["--out", str(tmp_path / "second"), "--weights", str(tmp_path / "first"), *teacher])


@pytest.mark.parametrize("option", ["--steps-teacher", "--steps-student", "--samples", "--threads"])
def test_options_below_one_are_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        recipe.main([option, "0"])
    assert f"{option} is 0; it must be at least 1" in capsys.readouterr().err


@pytest.mark.usefixtures("small")
def test_an_interrupted_run_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(recipe, "train", interrupted)
    with pytest.raises(SystemExit) as left:
        recipe.main(["--out", str(tmp_path), *OPTIONS])
    assert left.value.code == 130
    assert f"the same command continues from the last state in {tmp_path}" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_card_names_weak_families_and_what_training_was() -> None:
    samples = each_cell(2, seed=0, split="test")
    given = [Answer(s, s.answer, s.family != "lists", True, 5) for s in samples]
    settings = TrainSettings(50, rate=0.01)
    training = Training("student", DENSE, 1_500_000, 3, settings, 1000, 0.25, "cpu", instructor="assistant")
    text = card(training, given)
    right = sum(answer.right for answer in given)
    assert f"{right} of {len(given)} were right" in text
    assert "Under half right on level 1: lists." in text
    assert "1.50 million weights" in text
    assert "50 steps of 1000 tokens" in text
    assert "induction heads" in text
    assert "KL(assistant || student)" in text
