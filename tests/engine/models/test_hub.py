"""A model's source is a folder or a hub id; whatever is neither is refused without a network."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.engine.errors import CheckpointError
from headgate.engine.models.hub import locate


def test_a_folder_is_itself(tmp_path: Path) -> None:
    assert locate(str(tmp_path)) == tmp_path


def test_a_hub_id_is_looked_up_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The layout that huggingface_hub keeps, offline.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    repository = tmp_path / "models--owner--name"
    snapshot = repository / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("a" * 40)
    (snapshot / "config.json").write_text("{}")
    assert locate("owner/name") == snapshot
    with pytest.raises(CheckpointError, match="owner/other: no such folder, and the hub does not give it"):
        locate("owner/other")


def test_nonsense_is_refused() -> None:
    with pytest.raises(CheckpointError, match="no/such/folder: no such folder, and no hub id"):
        locate("no/such/folder")
