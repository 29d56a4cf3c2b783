"""A model's source is a folder or a hub id; whatever is neither is refused without a network."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.utils import filter_repo_objects
from tiny_models import MakeCheckpoint

from headgate.engine.errors import CheckpointError, UnknownArchitecture
from headgate.engine.models.hub import locate, locate_adapter

COMMIT = "a" * 40
TEXTS = {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model"}
SHARDS = {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}
INDEX = "model.safetensors.index.json"
NEVER_READ = {
    "README.md",
    "consolidated.safetensors",
    "model-00001-of-00009.safetensors",
    "original/params.json",
    "original/model.safetensors",
    "onnx/config.json",
    "pytorch_model.bin",
    "modeling.py",
}


class Hub:
    """One repository, as `snapshot_download` gives it."""

    def __init__(self, snapshots: Path, files: Iterable[str], config: dict[str, Any]) -> None:
        self.fetched: list[set[str]] = []
        self.revisions: list[str | None] = []
        self._folder = snapshots / COMMIT
        self._contents = dict.fromkeys(files, "{}")
        if "config.json" in self._contents:
            self._contents["config.json"] = json.dumps(config)
        if INDEX in self._contents:
            self._contents[INDEX] = json.dumps({"weight_map": {name: name for name in SHARDS}})

    def download(
        self, repository: str, *, revision: str | None, allow_patterns: list[str], ignore_patterns: str | None
    ) -> str:
        assert repository == "owner/name"
        wanted = filter_repo_objects(self._contents, allow_patterns=allow_patterns, ignore_patterns=ignore_patterns)
        self.fetched.append(set(wanted))
        self.revisions.append(revision)
        for name in self.fetched[-1]:
            (self._folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self._folder / name).write_text(self._contents[name])
        return str(self._folder)


@pytest.fixture
def config(make_checkpoint: MakeCheckpoint) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((make_checkpoint("qwen3") / "config.json").read_text())
    return content


@pytest.mark.parametrize(
    ("weights", "read"),
    [
        ({"model.safetensors"}, {"model.safetensors"}),
        ({INDEX, *SHARDS}, {INDEX, *SHARDS}),
        ({"model.safetensors", INDEX, *SHARDS}, {"model.safetensors", INDEX}),
    ],
)
def test_only_what_is_read_is_downloaded(
    weights: set[str], read: set[str], config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    templates = {"chat_template.jinja", "additional_chat_templates/tool_use.jinja"}
    hub = Hub(tmp_path, {*TEXTS, *templates, *weights, *NEVER_READ}, config)
    monkeypatch.setattr("huggingface_hub.snapshot_download", hub.download)
    assert locate("owner/name@v1") == tmp_path / COMMIT
    assert hub.fetched[0] == {"config.json"}
    assert set().union(*hub.fetched) == {*TEXTS, *templates, *read}
    # Nothing of another commit, though "v1" may move meanwhile.
    assert hub.revisions == ["v1", COMMIT, COMMIT]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"architectures": ["OtherForCausalLM"], "model_type": "other"},
            "owner/name: config.json: architecture 'OtherForCausalLM' is not known, nor is model_type 'other'",
        ),
        ({"quantization_config": {"quant_method": "hqq"}}, "owner/name: config.json: quantization_config 'hqq'"),
    ],
)
def test_what_cannot_be_served_costs_no_download(
    change: dict[str, Any], message: str, config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = Hub(tmp_path, {*TEXTS, "model.safetensors"}, config | change)
    monkeypatch.setattr("huggingface_hub.snapshot_download", hub.download)
    with pytest.raises(CheckpointError, match=message) as refusal:
        locate("owner/name")
    assert isinstance(refusal.value, UnknownArchitecture) == ("architectures" in change)
    assert hub.fetched == [{"config.json"}]
    # Its texts may be wanted all the same.
    assert locate("owner/name", weights=False) == tmp_path / COMMIT
    assert hub.fetched[1:] == [TEXTS]


def test_a_folder_is_itself(tmp_path: Path) -> None:
    assert locate(str(tmp_path)) == tmp_path


def test_a_hub_id_is_looked_up_in_the_cache(
    make_checkpoint: MakeCheckpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The layout that huggingface_hub keeps, offline.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    repository = tmp_path / "models--owner--name"
    snapshot = repository / "snapshots" / COMMIT
    shutil.copytree(make_checkpoint("qwen3", shard="100KB"), snapshot)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    assert locate("owner/name") == snapshot
    with pytest.raises(CheckpointError, match="owner/other: no such folder, and the hub does not give it"):
        locate("owner/other")


def test_of_an_adapter_two_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {"adapter_config.json", "adapter_model.safetensors"}
    hub = Hub(tmp_path, {*wanted, "tokenizer.json", "optimizer.pt", "checkpoint-9/adapter_model.safetensors"}, {})
    monkeypatch.setattr("huggingface_hub.snapshot_download", hub.download)
    assert locate_adapter("owner/name@v1") == tmp_path / COMMIT
    assert (hub.fetched, hub.revisions) == ([wanted], ["v1"])
    assert locate_adapter(str(tmp_path)) == tmp_path
    with pytest.raises(CheckpointError, match="no/such/folder: no such folder, and no hub id"):
        locate_adapter("no/such/folder")


def test_nonsense_is_refused() -> None:
    with pytest.raises(CheckpointError, match="no/such/folder: no such folder or GGUF file, and no hub id"):
        locate("no/such/folder")
