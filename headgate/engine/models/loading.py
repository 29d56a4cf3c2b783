"""The model of a checkpoint: our decoder where there is one for its architecture, else transformers' own code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from headgate.engine.errors import CheckpointError, UnknownArchitecture
from headgate.engine.kernels.interface import Kernels
from headgate.engine.models.adapters.files import Adapter
from headgate.engine.models.architectures import read_spec
from headgate.engine.models.guests.loading import OTHER_PARTS, guest_facts, load_guest
from headgate.engine.models.identity import revision
from headgate.engine.models.loader import Dtype, LoadedDecoder, load_decoder
from headgate.engine.models.opening import folder_tensors, open_checkpoint
from headgate.engine.models.weights.tensors import CheckpointTensors, Tensors, read_json
from headgate.engine.quant.linear import WeightFormat


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """What a checkpoint's files tell without its weights; counts and revision as of `LoadedDecoder`.

    `active_parameters`: all of them where transformers' own code would compute.
    """

    architecture: str
    context_length: int
    vocab_size: int
    parameters: int
    active_parameters: int
    revision: str


def check_config(folder: Path) -> None:
    """Refuse the checkpoint in `folder` if its config.json alone tells that it cannot be served.

    Raises:
        CheckpointError: naming the key.
    """
    try:
        read_spec(read_json(folder / "config.json"))
    except UnknownArchitecture:
        guest_facts(folder)


def read_facts(folder: Path, adapter: Path | None = None) -> CheckpointFacts:
    """The facts of the checkpoint in `folder`; no tensor is read, save a head beside the embedding that it should be,
    and those of an adapter.

    Raises:
        CheckpointError: naming the file that is missing or damaged.
    """
    try:
        opened = open_checkpoint(folder, folder_tensors)
    except UnknownArchitecture as error:
        if adapter is not None:
            raise _unadapted(error) from error
        facts, source = guest_facts(folder), CheckpointTensors(folder)
        parameters = source.parameters_named(OTHER_PARTS)
        return CheckpointFacts(
            facts.architecture,
            facts.context_length,
            facts.vocab_size,
            parameters,
            parameters,
            revision(read_json(folder / "config.json"), source),
        )
    if adapter is not None:
        opened.source.adapter = Adapter(adapter, opened.stored)
    spec, parameters = opened.spec, opened.source.parameters_named(opened.unread)
    return CheckpointFacts(
        spec.architecture,
        spec.context_length,
        spec.vocab_size,
        parameters,
        parameters - spec.idle_expert_parameters,
        revision(opened.config, opened.source),
    )


def load_model(
    folder: Path,
    kernels: Kernels,
    *,
    dtype: Dtype,
    fmt: WeightFormat,
    device: torch.device,
    context_length: int | None,
    keep_packed: bool,
    adapter: Path | None,
    adapters: Mapping[str, Path],
    progress: Callable[[int, int], None],
    tensors: Callable[[Path], Tensors],
) -> LoadedDecoder:
    """Load the checkpoint in `folder`; arguments as of `load_decoder`.

    Raises:
        CheckpointError: naming the file and the tensor or key that is missing, damaged, unexpected or misshapen.
    """
    try:
        return load_decoder(
            folder,
            kernels,
            dtype=dtype,
            fmt=fmt,
            device=device,
            context_length=context_length,
            keep_packed=keep_packed,
            adapter=adapter,
            adapters=adapters,
            progress=progress,
            tensors=tensors,
        )
    except UnknownArchitecture as error:
        if adapter is not None or adapters:
            raise _unadapted(error) from error
        return load_guest(folder, kernels, dtype=dtype, fmt=fmt, device=device)


def _unadapted(error: UnknownArchitecture) -> CheckpointError:
    return CheckpointError(f"{error}; others than these are served without an adapter")
