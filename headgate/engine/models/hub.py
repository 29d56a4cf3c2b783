"""Where a model's files are: a folder, or a repository of the Hugging Face hub that is downloaded once."""

from __future__ import annotations

import re
from pathlib import Path

from headgate.engine.errors import CheckpointError

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(@[\w./-]+)?")
_FILES = ["*.json", "*.safetensors", "*.jinja", "tokenizer.model"]


def locate(source: str) -> Path:
    """The folder of `source`: a path, or a hub id such as "Qwen/Qwen3-0.6B", with "@revision" if need be.

    A hub repository is downloaded to huggingface_hub's cache, or found there; HF_HUB_OFFLINE=1 and HF_TOKEN are obeyed.

    Raises:
        CheckpointError: there is no such folder, and the hub cannot give it.
    """
    folder = Path(source).expanduser()
    if folder.is_dir():
        return folder
    if not _HUB_ID.fullmatch(source):
        raise CheckpointError(f"{source}: no such folder, and no hub id of the form owner/name")
    # Imported here: it takes a third of a second, and most starts do not need it.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    repository, _, revision = source.partition("@")
    try:
        return Path(snapshot_download(repository, revision=revision or None, allow_patterns=_FILES))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise CheckpointError(f"{source}: no such folder, and the hub does not give it: {reason}") from error
