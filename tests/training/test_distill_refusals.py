"""Every way in which `headgate distill` refuses."""

from __future__ import annotations

import fcntl
import json
import shutil
import sys
from pathlib import Path

import pytest
from distilling import Distil, conversation, refused, write_lines
from gguf_files import write_gguf
from tiny_models import MakeCheckpoint, write_tokenizer


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_output_that_is_not_ours_is_left_alone(kind: str, place: Path, distil: Distil) -> None:
    if kind == "folder":
        (place / "out").mkdir()
        (place / "out" / "thesis.tex").touch()
    else:
        (place / "out").touch()
    refused(distil(), f"--out {place / 'out'}: exists and is no result of headgate distill; name another folder")
    assert not (place / "out.training").exists()


def test_state_folder_that_is_not_ours_or_in_use_is_left_alone(place: Path, distil: Distil) -> None:
    state = place / "out.training"
    state.mkdir()
    (state / "notes.txt").touch()
    refused(distil(), "out.training: is not the state of headgate distill")
    (state / "notes.txt").unlink()
    with (state / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused(distil(), "another process is training it")


def test_models_and_tokenizer_that_do_not_fit(place: Path, distil: Distil, make_checkpoint: MakeCheckpoint) -> None:
    config = json.loads((place / "student.json").read_text())
    (place / "wide.json").write_text(json.dumps({**config, "vocab_size": 400}))
    refused(distil(student_config=place / "wide.json"), "wide.json: vocab_size is 400, the teacher's is 320")
    (place / "gpt.json").write_text(json.dumps({**config, "architectures": ["GPT2LMHeadModel"]}))
    refused(distil(student_config=place / "gpt.json"), "--student-config", "'GPT2LMHeadModel' is not known", "Qwen3")
    (place / "odd.json").write_text(json.dumps({**config, "rms_norm_eps": "much"}))
    refused(distil(student_config=place / "odd.json"), "--student-config", "odd.json: rms_norm_eps must be a positive")
    (place / "bad.json").write_text(json.dumps({**config, "use_cache": "perhaps"}))
    refused(distil(student_config=place / "bad.json"), "--student-config", "bad.json: transformers refuses it")
    refused(distil(student_config=place / "none.json"), "none.json: the file is missing")
    refused(distil(teacher=place / "nothing"), "--teacher", "no such folder")
    shutil.copytree(make_checkpoint("qwen2"), place / "plain")
    write_tokenizer(place / "plain")
    write_gguf(place / "plain", place / "teacher.gguf")
    refused(distil(teacher=place / "teacher.gguf"), "--teacher", "a GGUF file is served, not trained from")

    small = make_checkpoint("qwen2", vocab_size=128)
    refused(
        distil(teacher=small, student_config=small, tokenizer=place / "teacher"),
        "tokenizer.json: has token id 315, the teacher's vocab_size is 128",
    )
    bare = make_checkpoint("qwen2", seed=77)  # no other test gives this one a tokenizer
    refused(distil(tokenizer=bare), "--tokenizer", "tokenizer.json: the file is missing")


def test_teacher_with_missing_or_damaged_weights(place: Path, distil: Distil) -> None:
    config = place / "teacher" / "config.json"
    content = json.loads(config.read_text())
    config.write_text(json.dumps({**content, "num_hidden_layers": 4}))
    refused(distil(), "--teacher", "missing keys: model.layers.3")
    config.write_text(json.dumps({**content, "architectures": ["FalconForCausalLM"]}))
    refused(distil(), "--teacher", "'FalconForCausalLM' is not known")
    config.write_text(json.dumps(content))
    (place / "teacher" / "model.safetensors").write_bytes(b"short")
    refused(distil(), "--teacher", "cannot be loaded")
    assert not (place / "out.training").exists()


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"messages": ', "not valid JSON"),
        ("[1]", "holds a JSON list; an object is accepted"),
        ('{"text": "x"}', "prompt is None; 'messages', or 'prompt' and 'completion' as strings"),
        ('{"prompt": "a", "completion": 3}', "completion is 3"),
        ('{"messages": [], "split": "train"}', "messages is empty"),
        ('{"messages": [{"content": "a"}]}', "messages[0].role is None"),
        ('{"messages": [{"role": "user"}]}', "messages[0].content is missing"),
        ('{"messages": [{"role": "user", "content": "a"}], "tools": 3}', "tools is '3'; a list of objects"),
        ('{"messages": [{"role": "user", "content": "a"}], "prompt": "b"}', "one form is accepted"),
        ('{"prompt": "a", "completion": "b", "split": 4}', "split is 4"),
        ('{"messages": [{"role": "assistant", "content": [{"type": "image"}]}]}', "parts of type 'text'"),
    ],
)
def test_invalid_line(line: str, problem: str, place: Path, distil: Distil) -> None:
    data = place / "data.jsonl"
    data.write_text(data.read_text() + "\n" + line + "\n")
    refused(distil(), "data.jsonl:32: ", problem)


def test_data_that_cannot_be_used(place: Path, distil: Distil) -> None:
    refused(distil(data=place / "none.jsonl"), "none.jsonl: no such file")
    refused(distil(holdout="test"), "no lines of split 'test'; there are calibration (6 lines), train (24 lines)")
    refused(distil(holdout="train"), "--holdout is 'train', as --split is")
    silent = {"messages": [{"role": "user", "content": "say"}], "split": "train"}
    mute = write_lines(place / "mute.jsonl", silent, conversation(0, "calibration"))
    refused(distil(data=mute), "split 'train' has no answer tokens")
    refused(distil(tokens=8), "data.jsonl:1: the conversation has", "tokens, --tokens is 8")
    refused(distil(tokens=100), "--tokens is 100; a multiple of 8 is accepted")
    config = json.loads((place / "student.json").read_text())
    (place / "short.json").write_text(json.dumps({**config, "max_position_embeddings": 4}))
    refused(distil(student_config=place / "short.json"), "data.jsonl:1: ", "the student's context is 4")


def test_folder_of_data(place: Path, distil: Distil) -> None:
    folder = place / "data"
    folder.mkdir()
    lines = [{"prompt": "the quick brown", "completion": " fox"}] * 8
    write_lines(folder / "train.jsonl", *lines)
    refused(distil(data=folder), "calibration.jsonl is missing; there are train.jsonl (8 lines)")
    write_lines(folder / "calibration.jsonl", {**lines[0], "split": "train"})
    refused(distil(data=folder), "calibration.jsonl:1: split is 'train'; 'calibration' is accepted here")
    write_lines(folder / "calibration.jsonl")
    refused(distil(data=folder), "no lines of split 'calibration'")
    write_lines(folder / "calibration.jsonl", *lines[:1])
    assert distil(data=folder, steps=1).exit_code == 0


def test_templates_that_cannot_be_learned_from(place: Path, distil: Distil) -> None:
    path = place / "teacher" / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    turns = "{% for m in messages %}{{ m['role'] + m['content'] }}{% endfor %}"
    path.write_text(json.dumps({**settings, "chat_template": turns + "{% if add_generation_prompt %}?{% endif %}"}))
    refused(distil(), "data.jsonl:1: messages[1]: the chat template", "add_generation_prompt")
    path.write_text(json.dumps({**settings, "chat_template": None}))
    refused(distil(), "data.jsonl:1: 'messages' needs a chat template")


@pytest.mark.parametrize(
    ("option", "value", "accepted"),
    [
        ("rate", "nan", "a finite number"),
        ("rate", "inf", "a finite number"),
        ("temperature", "inf", "a finite number"),
        ("soft", "nan", "a finite number"),
        ("hidden", "inf", "a finite number"),
        ("seed", 2**64, "to 2^64 - 1"),
        ("out", "/", "a folder with a name"),
    ],
)
def test_options_that_mean_nothing(option: str, value: object, accepted: str, distil: Distil) -> None:
    refused(distil(**{option: value}), f"--{option} is {value}; ", accepted)


def test_loss_that_is_not_finite(place: Path, distil: Distil) -> None:
    refused(distil(rate=1e30), "loss is nan", "--rate below 1e+30", "another --out", code=1)
    assert not (place / "out").exists()


def test_without_transformers(distil: Distil, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    refused(distil(), "pip install 'headgate[train]'")
