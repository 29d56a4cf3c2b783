"""What the guards know of English, as text files: openings of questions, set phrases, synonyms."""

from __future__ import annotations

from importlib.resources import files


def lines(name: str) -> list[str]:
    """The lines of one of the files, without comments and empty ones."""
    text = files(__package__).joinpath(name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]
