"""The guides point to what is there: files, tests by name, other guides and their headings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from stack_files import ROOT

GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SOURCES = [ROOT, *(ROOT / "headgate" / place for place in ("", "gateway", "engine"))]
"""Where paths of sources may begin."""


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_links_lead_somewhere(guide: Path) -> None:
    for page, _, anchor in re.findall(r"\]\(([\w./-]*)(#([\w-]+))?\)", guide.read_text()):
        target = (guide.parent / page) if page else guide
        assert target.exists(), page
        assert not anchor or anchor in anchors(target), f"{page}#{anchor}"


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_files_and_tests_that_are_named_are_there(guide: Path) -> None:
    text = guide.read_text()
    for path in re.findall(r"`([a-z_]+/[\w./-]+\.(?:py|cpp|h|inc))`", text):
        assert any((place / path).exists() for place in SOURCES), path
    for path, test in re.findall(r"`((?:tests|headgate|config|docs)/[\w./-]+\.\w+)(?:::(\w+))?`", text):
        # Made by the reader, or one of several.
        if path.startswith("config/teams/") or "FILE" in path:
            continue
        assert (ROOT / path).exists(), path
        assert not test or f"def {test}(" in (ROOT / path).read_text(), f"{path}::{test}"
