"""The guides point to what is there: files, tests by name, other guides and their headings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from stack_files import ROOT

GUIDES = [ROOT / "docs" / f"{name}.md" for name in (
    "quickstart", "deployment", "running-models", "clients", "operations", "threat-model",
)]  # fmt: skip


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
    named = re.findall(r"`((?:tests|headgate|config|docs)/[\w./-]+\.\w+)(?:::(\w+))?`", guide.read_text())
    for path, test in named:
        # Made by the reader, or one of several.
        if path.startswith("config/teams/") or "FILE" in path:
            continue
        assert (ROOT / path).exists(), path
        assert not test or f"def {test}(" in (ROOT / path).read_text(), f"{path}::{test}"
