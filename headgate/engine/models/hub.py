"""Where a model's files are: a folder, a GGUF file, or what is downloaded once from the Hugging Face hub."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from headgate.engine.errors import CheckpointError
from headgate.engine.models.adapters import files as adapter
from headgate.engine.models.gguf.file import parts_of
from headgate.engine.models.gguf.folder import gguf_folder, is_made
from headgate.engine.models.loading import check_config
from headgate.engine.models.weights.tensors import INDEX, WHOLE, shards

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(@[\w./-]+)?")
_GGUF_ID = re.compile(rf"(?P<repository>{_HUB_ID.pattern}):(?P<file>[\w./-]+\.gguf)")
_CONFIG = "config.json"
_TEXTS = ("*.json", "*.jinja", "tokenizer.model")
_NAMED_TEMPLATES = "additional_chat_templates/*.jinja"
# A star of the hub's patterns stands for slashes, too: folders hold the same weights for other programs.
_FOLDERS = "*/*"


def locate_adapter(source: str) -> Path:
    """The folder of a LoRA adapter, as `locate`."""
    if (folder := _folder(source)) is not None:
        return folder
    if not _HUB_ID.fullmatch(source):
        raise CheckpointError(f"{source}: no such folder, and no hub id of the form owner/name")
    repository, _, revision = source.partition("@")
    return _fetch(source, repository, revision, [adapter.CONFIG, adapter.WEIGHTS])


def locate(source: str, *, weights: bool = True) -> Path:
    """The folder of `source`: a path, or a hub id such as "Qwen/Qwen3-0.6B", with "@revision" if need be.

    A path may be that of a GGUF file, and a hub id be followed by ":" and the name of one: see `gguf_folder`. A hub
    repository is downloaded to huggingface_hub's cache, or found there; HF_HUB_OFFLINE=1 and HF_TOKEN are obeyed. Its
    config.json comes first, so that what cannot be served costs no download. Without `weights` only what says how to
    read and write texts is wanted, whatever the model.

    Raises:
        CheckpointError: there is no such folder or file, and the hub cannot give it, or gives what cannot be served.
    """
    if (folder := _folder(source)) is not None:
        files = sorted(file.name for file in folder.glob("*.gguf"))
        # A config.json says nothing here: repositories have one beside all the files that were made of a model.
        plain = any((folder / name).exists() for name in (WHOLE, INDEX))
        if files and not plain and not is_made(folder):
            raise CheckpointError(f"{source}: a folder of GGUF files; name one of them: {', '.join(files[:5])}")
        return folder
    if (file := _file(source)) is not None:
        return gguf_folder(file)
    if (named := _GGUF_ID.fullmatch(source)) is not None:
        return _fetch_gguf(source, named["repository"], named["file"])
    if not _HUB_ID.fullmatch(source) or source.endswith(".gguf"):
        raise CheckpointError(
            f"{source}: no such folder or GGUF file, and no hub id of the form owner/name or owner/name:file.gguf"
        )
    repository, _, revision = source.partition("@")
    if not weights:
        return _fetch(source, repository, revision, _TEXTS, without=_FOLDERS)
    folder = _fetch(source, repository, revision, [_CONFIG])
    if (folder / _CONFIG).is_file():
        try:
            check_config(folder)
        except CheckpointError as error:
            raise type(error)(f"{source}: {error}") from error
    # The commit from here on: the rest is of the same one, and the hub is not asked again which it is.
    commit = folder.name
    _fetch(source, repository, commit, [*_TEXTS, WHOLE], without=_FOLDERS)
    index = folder / INDEX
    parts = shards(index) if index.is_file() and not (folder / WHOLE).is_file() else []
    # With the configuration, which is there: the hub's library warns where nothing matches.
    return _fetch(source, repository, commit, [_CONFIG, _NAMED_TEMPLATES, *parts])


def _folder(source: str) -> Path | None:
    try:
        folder = Path(source).expanduser()
        return folder if folder.is_dir() else None
    except (OSError, RuntimeError) as error:  # it is too long, nobody may look, there is no such user
        raise CheckpointError(f"{source[:200]}: no folder that can be read: {error}") from error


def _file(source: str) -> Path | None:
    path = Path(source).expanduser()
    return path if path.is_file() else None


def _fetch_gguf(source: str, repository: str, file: str) -> Path:
    name, _, revision = repository.partition("@")
    parts = [path.as_posix() for path in parts_of(Path(file))]
    return gguf_folder(_fetch(source, name, revision, parts) / file)


def _fetch(source: str, repository: str, revision: str, files: Sequence[str], without: str | None = None) -> Path:
    # Imported here: it takes a third of a second, and most starts do not need it.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(
            snapshot_download(
                repository, revision=revision or None, allow_patterns=list(files), ignore_patterns=without
            )
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise CheckpointError(f"{source}: no such folder, and the hub does not give it: {reason}") from error
