"""What tells one checkpoint from another wherever it lies, without reading all of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate.engine.models.adapters.files import Adapter
from headgate.engine.models.weights.tensors import Tensors

if TYPE_CHECKING:
    from hashlib import _Hash as Hash

_WHOLE = frozenset({".json", ".jinja", ".model"})
_WEIGHTS = frozenset({".safetensors", ".gguf"})
_PAGE = 4096
_PAGES = 64


def checkpoint_identity(folder: Path) -> str:
    """A digest of what a checkpoint computes, 16 hexadecimal digits: the same for a copy, another after more training.

    Configuration, tokenizer and chat templates are read whole; of each file of weights its size, its first and its last
    page and 62 pages between them, so that a hundred gigabytes take milliseconds. Weights that differ only elsewhere
    are not told apart, which training never makes.
    """
    digest = sha256()
    for path in sorted([*folder.iterdir(), *folder.glob("additional_chat_templates/*.jinja")]):
        if path.suffix in _WEIGHTS:
            size = path.stat().st_size
            digest.update(f"{path.name}:{size}".encode())
            with path.open("rb") as file:
                for page in range(_PAGES):
                    file.seek(max(0, size - _PAGE) * page // (_PAGES - 1))
                    digest.update(file.read(_PAGE))
        elif path.suffix in _WHOLE and path.is_file():
            digest.update(f"{path.relative_to(folder).as_posix()}:".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def revision(config: Mapping[str, Any], source: Tensors) -> str:
    """Hex digest of a configuration and weights that changes when their files' names, shapes, sizes or times do."""
    digest = sha256(json.dumps(config, sort_keys=True).encode())
    _add(digest, source.files)
    if source.adapter is not None:
        digest.update(source.adapter.identity.encode())
        _add(digest, source.adapter.files)
    return digest.hexdigest()


def adapted_revision(base: str, adapter: Adapter) -> str:
    """The `revision` of a model whose own is `base`, with an adapter."""
    return sha256(f"{base}{adapter.content}".encode()).hexdigest()


def _add(digest: Hash, files: Sequence[Path]) -> None:
    for path in files:
        # The header names every tensor with shape and offsets; size and time stand for the rest without reading it.
        stat = path.stat()
        digest.update(f"{path.name}:{stat.st_size}:{stat.st_mtime_ns}".encode())
        with path.open("rb") as file:
            digest.update(file.read(1 << 16))
