"""Groups of questions that nobody generated: one question in several wordings, and texts that are close to it but need
another answer. The comparator and the model learn from them what templates cannot show."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "written"
LATER = Path(__file__).parent / "later"
"""Groups that were written after the rule was fitted: nothing was fitted on them, no bar counts them."""


@dataclass(frozen=True, slots=True)
class Group:
    """One question.

    Attributes:
        name: of its file and its place there.
        same: the wordings; one answer serves them all.
        near: kind and text of what needs another answer than the question, and than each other.
    """

    name: str
    same: tuple[str, ...]
    near: tuple[tuple[str, str], ...]


def written_groups(folder: Path = FOLDER) -> list[Group]:
    """The groups of all files of a folder.

    Raises:
        ValueError: a line is none of `q`, `p` and `n:kind` with a text behind a tab.
    """
    groups: list[Group] = []
    for path in sorted(folder.glob("*.txt")):
        for at, block in enumerate(path.read_text(encoding="utf-8").strip().split("\n\n")):
            same, near = [], []
            for line in block.splitlines():
                mark, _, text = line.partition("\t")
                if mark in ("q", "p") and text:
                    same.append(text)
                elif mark.startswith("n:") and text:
                    near.append((mark[2:], text))
                else:
                    raise ValueError(f"{path.name}: {line!r}; q, p or n:kind, a tab and a text are accepted")
            groups.append(Group(f"{path.stem} {at}", tuple(same), tuple(near)))
    return groups
