"""Where the checkpoints of the configured models lie, and what else they say."""

from __future__ import annotations

from pathlib import Path

from headgate.engine.demo import checkpoint
from headgate.engine.errors import CheckpointError
from headgate.engine.models.generation import hand_over
from headgate.engine.models.hub import locate
from headgate.gateway.settings import ModelSection


def model_path(section: ModelSection) -> Path:
    """The folder of a model, downloaded first if it is a hub id; `demo:` paths are the bundled pair.

    Raises:
        CheckpointError: there is no such folder, and no hub that gives it.
    """
    match section.path:
        case "demo:student":
            return checkpoint("student")
        case "demo:teacher":
            return checkpoint("teacher")
        case path:
            try:
                return locate(path)
            except CheckpointError as error:
                raise CheckpointError(f"the path of the model '{section.id}': {error}") from None


def configured_hand_over(section: ModelSection) -> str:
    """How an answer of a model begins that leaves the request to the large one: as configured, else its checkpoint's.

    Raises:
        CheckpointError: as `model_path`.
    """
    return hand_over(model_path(section)) if section.hand_over is None else section.hand_over or ""
