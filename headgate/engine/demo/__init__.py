"""The bundled model pair: task generator, training recipe, weights."""

from pathlib import Path
from typing import Literal


def checkpoint(name: Literal["teacher", "student"]) -> Path:
    """The folder of a shipped model: a Hugging Face checkpoint with tokenizer and chat template.

    Raises `ValueError` for another name.
    """
    if name not in ("teacher", "student"):
        raise ValueError(f"demo checkpoint {name!r} is unknown; known: teacher, student")
    return Path(__file__).parent / name
