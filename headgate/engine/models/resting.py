"""Weights that leave the memory they are computed from for a while, and come back as they were."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, MethodType
from typing import Protocol

import torch
from torch import Tensor, UntypedStorage

from headgate.engine.errors import CheckpointError
from headgate.engine.models.adapters.decoder import AdaptedDecoder, LoadedAdapter
from headgate.engine.models.language_model import LanguageModel
from headgate.engine.models.loader import LoadedDecoder, return_freed_memory


class Resting(Protocol):
    """A model's weights, there or away. One thread at a time."""

    def leave(self) -> None:
        """Give the memory back. Nothing happens where they are away; where it fails, they are still there."""
        ...

    def back(self) -> LanguageModel:
        """The decoder of the same weights. Where it fails, they are still away."""
        ...


class ReadAgain:
    """Of a model on the CPU. It is given up, and read again from the checkpoint or its quantised copy, which are
    mapped: what the system still has of the files costs no reading.
    """

    def __init__(self, loaded: LoadedDecoder, load: Callable[[], LoadedDecoder]) -> None:
        """`load` does again what gave `loaded`, but for adapters."""
        self._decoder: LanguageModel | None = loaded.decoder
        self._revision = loaded.revision
        self._load = load
        self._adapters: Mapping[int, LoadedAdapter] = {}

    def leave(self) -> None:
        """See Resting. Adapters for rows stay: they are small, and in their folders may be others by then."""
        if isinstance(self._decoder, AdaptedDecoder):
            self._adapters = self._decoder.loaded
        self._decoder = None
        return_freed_memory()

    def back(self) -> LanguageModel:
        """See Resting. CheckpointError where the checkpoint is not the one that was loaded first."""
        if self._decoder is None:
            loaded = self._load()
            if loaded.revision != self._revision:
                raise CheckpointError("the checkpoint has changed since the server started; a restart serves the new")
            if isinstance(loaded.decoder, AdaptedDecoder):
                loaded.decoder.tune(loaded.decoder.tuned_by(self._adapters))
            self._decoder = loaded.decoder
        return self._decoder


class Parked:
    """Of a model on a GPU: meanwhile they are in pinned memory of the host."""

    def __init__(self, decoder: LanguageModel) -> None:
        self._decoder = decoder
        self._away: list[tuple[UntypedStorage, Tensor]] = []

    def leave(self) -> None:
        """See Resting."""
        if self._away:
            return
        # All copies first: where the host has no memory for one of them, nothing has happened.
        self._away = [(storage, _copy(storage)) for storage in storages(self._decoder)]
        for storage, _ in self._away:
            storage.resize_(0)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def back(self) -> LanguageModel:
        """See Resting. The tensors are the same objects, at other addresses."""
        try:
            for storage, host in self._away:
                storage.resize_(host.nbytes)
                _bytes_of(storage).copy_(host)
        except BaseException:
            for storage, _ in self._away:
                storage.resize_(0)
            raise
        self._away = []
        return self._decoder


def storages(decoder: LanguageModel) -> list[UntypedStorage]:
    """The memory of all that a decoder keeps, each once; what is mapped from a file is not among it."""
    found = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in _tensors(decoder.kept, set())}
    return [storage for storage in found.values() if storage.nbytes() and storage.resizable()]


def _tensors(part: object, seen: set[int]) -> Iterator[Tensor]:
    """All tensors of a part of a decoder: layers are objects of ours, in part with functions that hold some."""
    if id(part) in seen:
        return
    seen.add(id(part))
    if isinstance(part, Tensor):
        if not part.is_mkldnn:  # which has its memory to itself
            yield part
        return
    for inner in _parts_of(part):
        yield from _tensors(inner, seen)


def _parts_of(part: object) -> Iterator[object]:
    if isinstance(part, dict):
        yield from part.values()
    elif isinstance(part, (list, tuple)):
        yield from part
    elif isinstance(part, functools.partial):
        yield from (part.func, *part.args, *part.keywords.values())
    elif isinstance(part, MethodType):
        yield part.__self__
    elif isinstance(part, FunctionType):
        yield from (cell.cell_contents for cell in part.__closure__ or ())
    elif type(part).__module__.startswith("headgate."):
        yield from vars(part).values() if hasattr(part, "__dict__") else ()
        slots = (name for kind in type(part).__mro__ for name in getattr(kind, "__slots__", ()))
        yield from (getattr(part, name) for name in slots if hasattr(part, name))


def _copy(storage: UntypedStorage) -> Tensor:
    host = torch.empty(storage.nbytes(), dtype=torch.uint8, pin_memory=storage.device.type == "cuda")
    return host.copy_(_bytes_of(storage))


def _bytes_of(storage: UntypedStorage) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
