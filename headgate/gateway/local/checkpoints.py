"""Where the checkpoints of the configured models lie, and what else they say."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from headgate.engine.demo import checkpoint
from headgate.engine.errors import CheckpointError
from headgate.engine.models.generation import hand_over
from headgate.engine.models.hub import locate, locate_adapter
from headgate.engine.models.identity import checkpoint_identity
from headgate.gateway.configuration.models import ModelSection


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


def adapter_path(section: ModelSection) -> Path | None:
    """The folder of a model's adapter, downloaded first if it is a hub id; None where it has none.

    Raises:
        CheckpointError: there is no such folder, and no hub that gives it.
    """
    if section.adapter is None:
        return None
    try:
        return locate_adapter(section.adapter)
    except CheckpointError as error:
        raise CheckpointError(f"the adapter of the model '{section.id}': {error}") from None


def model_identity(section: ModelSection) -> str:
    """`checkpoint_identity` of a configured model, its adapter included.

    Raises:
        CheckpointError: as `model_path` and `adapter_path`.
    """
    identity, adapter = checkpoint_identity(model_path(section)), adapter_path(section)
    return (
        identity if adapter is None else sha256(f"{identity}{checkpoint_identity(adapter)}".encode()).hexdigest()[:16]
    )


def configured_hand_over(section: ModelSection) -> str:
    """How an answer of a model begins that leaves the request to the large one: as configured, else its checkpoint's.

    Raises:
        CheckpointError: as `model_path`.
    """
    return hand_over(model_path(section)) if section.hand_over is None else section.hand_over or ""
