"""A teacher, a student and data to distil with, and the command that does."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from distilling import Distil, conversation, write_lines
from tiny_models import MakeCheckpoint, write_tokenizer

from headgate.training import command


@pytest.fixture
def place(tmp_path: Path, make_checkpoint: MakeCheckpoint) -> Path:
    """A folder with `teacher` (a mixture of experts), `student.json` (a dense model) and `data.jsonl`."""
    shutil.copytree(make_checkpoint("qwen3-moe"), tmp_path / "teacher")
    write_tokenizer(tmp_path / "teacher")
    shutil.copy(make_checkpoint("llama3") / "config.json", tmp_path / "student.json")
    lines = [conversation(number, "train") for number in range(24)]
    write_lines(tmp_path / "data.jsonl", *lines, *(conversation(number, "calibration") for number in range(6)))
    return tmp_path


@pytest.fixture
def distil(place: Path) -> Distil:
    """Runs the command; keywords are options, those that are not given have small defaults."""

    def call(**options: object) -> Result:
        given: dict[str, object] = {
            "teacher": place / "teacher",
            "student_config": place / "student.json",
            "data": place / "data.jsonl",
            "out": place / "out",
            "steps": 4,
            "tokens": 128,
            **options,
        }
        arguments = [text for name, value in given.items() for text in (f"--{name.replace('_', '-')}", str(value))]
        return CliRunner().invoke(command.distill, [*arguments, "--device", "cpu", "--no-compile"])

    return call
