"""The bundled model pair: task generator, tokenizer, weights. `headgate.training` makes the weights."""

from pathlib import Path
from typing import Literal

Name = Literal["teacher", "student", "undistilled"]


def checkpoint(name: Name) -> Path:
    """The folder of a shipped model: a Hugging Face checkpoint with tokenizer and chat template.

    `undistilled` is the student trained without the teacher, there to measure what distillation brings.
    Raises `ValueError` for another name.
    """
    if name not in ("teacher", "student", "undistilled"):
        raise ValueError(f"demo checkpoint {name!r} is unknown; known: teacher, student, undistilled")
    return Path(__file__).parent / name
