import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from headgate.engine.demo.tasks import each_cell
from headgate.engine.demo.tokenizer import train_tokenizer
from headgate.engine.engine import Engine
from headgate.engine.models.generation import hand_over
from headgate.engine.settings import EngineSettings, ModelSpec
from headgate.training import evaluate, rare, recipe
from headgate.training.card import Training, card
from headgate.training.evaluate import Answer
from headgate.training.handing import HAND_OVER
from headgate.training.loop import TrainSettings
from headgate.training.shapes import Shape

AutoConfig = pytest.importorskip("transformers").AutoConfig

EXPERTS = Shape(hidden=64, layers=2, heads=4, kv_heads=2, mlp=32, head_dim=16, experts=4, active=2, induction=True)
DENSE = Shape(hidden=64, layers=2, heads=4, kv_heads=2, mlp=64, head_dim=16, induction=True)
DEEPER = replace(DENSE, layers=3)


trained = cache(partial(train_tokenizer, samples=2_000))


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """The recipe with tiny models, small chunks, short answers and a tokenizer of few samples."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipe, "TEACHER", EXPERTS)
        patch.setattr(recipe, "ASSISTANT", DEEPER)
        patch.setattr(recipe, "STUDENT", DENSE)
        patch.setattr(recipe, "CHUNK", 128)
        patch.setattr(recipe, "SAMPLES", 300)
        patch.setattr(rare, "SAMPLES", 300)
        patch.setattr(evaluate, "LONGEST_ANSWER", 16)
        patch.setattr(recipe, "train_tokenizer", trained)
        yield


OPTIONS = ["--steps-teacher", "2", "--steps-student", "2", "--samples", "1", "--threads", "1", "--no-compile"]
TEACHER_ALONE = ["--only", "teacher", *OPTIONS]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a whole run."""
    folder = tmp_path_factory.mktemp("recipe") / "first"
    recipe.main(["--out", str(folder), *OPTIONS])
    return folder


def test_the_recipe_makes_its_folders_and_a_plot_and_has_nothing_to_do_again(first: Path) -> None:
    for name in recipe.STAGES:
        text = (first / name / "README.md").read_text()
        assert f"# Headgate demo {'student' if name == 'undistilled' else name}" in text
        assert "| sentiment |" in text
        assert ("- Handing over: " in text) == (name in ("student", "undistilled"))
        assert (hand_over(first / name) == HAND_OVER) == (name in ("student", "undistilled"))
        state = torch.load(first / f"{name}.pt", weights_only=True)
        assert state["step"] == len(state["losses"]) == 2
    assert (first / "loss.png").stat().st_size > 5_000
    engine = Engine(EngineSettings(threads=1))
    engine.load(*(ModelSpec(name, first / name) for name in recipe.STAGES))
    assert {engine.models[name].info.architecture for name in recipe.STAGES} == {
        "Qwen3MoeForCausalLM",
        "Qwen3ForCausalLM",
    }

    before = {path: path.stat().st_mtime_ns for path in first.rglob("*.safetensors")}
    recipe.main(["--out", str(first), *OPTIONS])
    assert {path: path.stat().st_mtime_ns for path in first.rglob("*.safetensors")} == before


def test_a_run_goes_on_from_the_weights_of_another(first: Path, tmp_path: Path) -> None:
    second = tmp_path / "second"
    recipe.main(["--out", str(second), "--weights", str(first), *TEACHER_ALONE])
    losses = [torch.load(folder / "teacher.pt", weights_only=True)["losses"] for folder in (first, second)]
    # The same data, so that only the weights can make a difference.
    assert losses[1][0] != losses[0][0]
    assert "Started with the weights of an earlier run" in (second / "teacher" / "README.md").read_text()
    assert (second / "teacher" / "tokenizer.json").read_text() == (first / "teacher" / "tokenizer.json").read_text()


def test_a_folder_of_a_run_with_another_seed_or_start_is_not_gone_on_with(
    first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second = tmp_path / "second"
    shutil.copytree(first, second)
    for more, named in ((["--seed", "1"], "--seed 1"), (["--weights", str(first)], f"--seed 0 and --weights {first}")):
        with pytest.raises(SystemExit) as left:
            recipe.main(["--out", str(second), *more, *TEACHER_ALONE])
        assert left.value.code == 2
        assert f"teacher.pt is the state of a run with --seed 0, not with {named}; delete it" in capsys.readouterr().err


def test_a_run_may_end_half_way_between_its_start_and_its_end(first: Path, tmp_path: Path) -> None:
    second = tmp_path / "second"
    recipe.main(["--out", str(second), "--weights", str(first), "--mean", *TEACHER_ALONE])
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


def test_a_student_goes_on_with_what_taught_it(first: Path, tmp_path: Path) -> None:
    kept, taught, alone = tmp_path / "kept", tmp_path / "taught", tmp_path / "alone"
    shutil.copytree(first, kept)
    again = ["--weights", str(kept), "--seed", "7", "--only", "student", *OPTIONS]
    recipe.main(["--out", str(taught), *again])
    assert sorted(path.name for path in taught.iterdir()) == ["loss.png", "student", "student.pt"]
    # Where no assistant was kept, as in what is shipped, the teacher itself teaches.
    shutil.rmtree(kept / "assistant")
    recipe.main(["--out", str(alone), *again])
    losses = [torch.load(folder / "student.pt", weights_only=True)["losses"] for folder in (taught, alone)]
    assert losses[0][0] != losses[1][0]
    for folder, who in ((taught, "assistant"), (alone, "teacher")):
        assert f"KL({who} || student)" in (folder / "student" / "README.md").read_text()


def test_a_student_may_start_with_the_first_layers_of_a_deeper_one(first: Path, tmp_path: Path) -> None:
    deeper, second = tmp_path / "deeper", tmp_path / "second"
    for name, of in (("teacher", "teacher"), ("student", "assistant")):
        shutil.copytree(first / of, deeper / name)
    recipe.main(["--out", str(second), "--weights", str(deeper), "--only", "student", *OPTIONS])
    assert "first layers of an earlier run's deeper model" in (second / "student" / "README.md").read_text()
    assert "difference of hidden states" in (second / "student" / "README.md").read_text()
    assert AutoConfig.from_pretrained(second / "student").num_hidden_layers == DENSE.layers


def test_weights_of_another_shape_are_no_start(first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe, "TEACHER", DENSE)
    with pytest.raises(ValueError, match="cannot be started from"):
        recipe.main(["--out", str(tmp_path / "second"), "--weights", str(first), *TEACHER_ALONE])


@pytest.mark.parametrize("option", ["--steps-teacher", "--steps-student", "--samples", "--threads"])
def test_options_below_one_are_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        recipe.main([option, "0"])
    assert f"{option} is 0; it must be at least 1" in capsys.readouterr().err


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
