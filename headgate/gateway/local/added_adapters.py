"""Adapters that an administrator has added to those of the configuration, in a file of the data folder."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import Field, ValidationError

from headgate.gateway.configuration.document import ConfigError
from headgate.gateway.configuration.models import AdapterSection
from headgate.gateway.configuration.section import ModelId
from headgate.gateway.settings import Settings
from headgate.gateway.storage.folder import default_folder

FILE = "adapters.json"


class AddedAdapter(AdapterSection):
    """One of them, and which model it is of."""

    of: ModelId = Field(description="The id of a model of this server.")

    @property
    def section(self) -> AdapterSection:
        """As the configuration would have it."""
        return AdapterSection(**self.model_dump(exclude={"of"}))


def with_added(settings: Settings, added: Iterable[AddedAdapter]) -> Settings:
    """The settings as if they named these. What they name themselves goes first."""
    taken = {model.id for model in settings.named} | {settings.embeddings.id}
    new = [each for each in added if each.id not in taken]
    models = tuple(
        model.model_copy(update={"adapters": (*model.adapters, *(a.section for a in new if a.of == model.id))})
        for model in settings.models
    )
    return settings.model_copy(update={"models": models})


def read_added(settings: Settings, environ: Mapping[str, str]) -> list[AddedAdapter]:
    """Those of the configured data folder.

    Raises:
        ConfigError: the file is damaged.
    """
    named = settings.storage.folder
    if named is None:
        return []
    try:
        path = (default_folder(environ) if named == "auto" else Path(named)) / FILE
        content = path.read_bytes()
    except OSError:  # no home, no folder, no file; who may not read it may not use the folder, and is told so
        return []
    try:
        return [AddedAdapter(**entry) for entry in json.loads(content)]
    except (ValueError, TypeError, ValidationError) as error:
        why = " ".join(str(error).split())
        raise ConfigError(
            [f"{path}: cannot be used: {why}; without it the server starts without what it adds"]
        ) from None


def write_added(folder: Path, added: Iterable[AddedAdapter]) -> None:
    """Replace the file at once; OSError where the disk does not take it."""
    entries = [each.model_dump(mode="json", exclude_none=True) for each in added]
    beside = folder / f".{FILE}.new"
    with beside.open("w", encoding="utf-8") as file:
        json.dump(entries, file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(folder / FILE)
