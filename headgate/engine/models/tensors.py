"""A checkpoint's tensors by name: memory-mapped safetensors, one file or sharded, and let go of when they were used."""

from __future__ import annotations

import json
import math
import mmap
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from headgate.engine.errors import CheckpointError

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}

WHOLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_SCALES = ("_scale", "_scale_inv")
# Of these, activations' own scales are what a checkpoint would have them rounded by: here each token brings its own.
_UNUSED = (".inv_freq", ".masked_bias", ".input_scale", ".activation_scale")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        CheckpointError: the file is missing, damaged, or holds something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path}: the file is missing; a model is a Hugging Face folder that has it") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: must hold a JSON object, holds {type(content).__name__}")
    return content


def shards(index: Path) -> list[str]:
    """The names of the weight files that an index lists, sorted.

    Raises:
        CheckpointError: the index is damaged.
    """
    names = read_json(index).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise CheckpointError(f"{index}: weight_map must be an object of tensor names to file names")
    return sorted(set(names.values()))


class Tensors(Protocol):
    """The tensors of a checkpoint by name, each to be used."""

    folder: Path
    parameters: int
    """Numbers in the tensors that were got so far."""

    @property
    def files(self) -> list[Path]:
        """The weight files."""
        ...

    def __contains__(self, name: str) -> bool: ...

    def dtype(self, name: str) -> torch.dtype | None:
        """The tensor's, None where there is no such tensor or torch has no such dtype."""
        ...

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor that is there."""
        ...

    def get(self, name: str, shape: tuple[int, ...], *, counts: bool = True) -> Tensor:
        """The tensor. `counts`: its numbers are parameters.

        Raises:
            CheckpointError: it is missing, of another shape, or not floating point.
        """
        ...

    def equal(self, one: str, other: str) -> bool:
        """Whether two tensors that are there hold the same numbers in the same dtype. Neither is used by that."""
        ...

    def release(self, name: str) -> None:
        """Give the memory back that reading the tensor took; it can still be read."""
        ...

    def refuse_leftovers(self, *, unread: Sequence[str]) -> None:
        """Weights that nothing used would mean that the model is not what it was trained as.

        `unread`: what the names begin with that may be left.

        Raises:
            CheckpointError: there are some; one is named.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a tensor lies: in bytes from the start of its file."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


class CheckpointTensors:
    """The tensors of a folder by name, whatever file they are in. Each is to be used; what is left is an error."""

    def __init__(self, folder: Path) -> None:
        """Open the files of `folder` and check their headers; no tensor is read.

        Raises:
            CheckpointError: a file is missing or is no safetensors file.
        """
        self.folder = folder
        self._files: dict[Path, mmap.mmap] = {}
        self._places: dict[str, _Place] = {}
        self._used: set[str] = set()
        self.parameters = 0
        for path in self._paths():
            try:
                # The library knows what a sound header is.
                with safe_open(path, framework="pt", device="cpu"):
                    pass
                with path.open("rb") as file:
                    # Private: what is mapped here is never written, and no other process sees it if it were.
                    self._files[path] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            except FileNotFoundError:
                raise CheckpointError(f"{path}: the file is missing") from None
            except (SafetensorError, OSError, ValueError) as error:
                raise CheckpointError(f"{path}: not a readable safetensors file: {error}") from error
            self._places.update(_places(path, self._files[path]))

    def parameters_named(self, unread: Sequence[str]) -> int:
        """Numbers in all tensors of the files, scales of others aside, and names that begin with one of `unread`."""
        counted = (n for n in self._places if not n.endswith(_SCALES) and not n.startswith(tuple(unread)))
        return sum(math.prod(self._places[name].shape) for name in counted)

    @property
    def weights(self) -> list[str]:
        """The names of all tensors, but for scales and what nobody uses."""
        return sorted(name for name in self._places if not name.endswith((*_SCALES, *_UNUSED)))

    @property
    def files(self) -> list[Path]:
        """The checkpoint's weight files."""
        return sorted(self._files)

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def dtype(self, name: str) -> torch.dtype | None:
        """The tensor's, None where there is no such tensor or torch has no such dtype."""
        place = self._places.get(name)
        return _DTYPES.get(place.dtype) if place is not None else None

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor that is there."""
        return self._places[name].shape

    def get(self, name: str, shape: tuple[int, ...], *, counts: bool = True) -> Tensor:
        """The tensor, still memory-mapped. `counts`: its numbers are parameters.

        Raises:
            CheckpointError: it is missing, of another shape, or not floating point.
        """
        place = self._places.get(name)
        if place is None:
            where = ", ".join(p.name for p in self.files)
            raise CheckpointError(f"{self.folder}: tensor {name!r} is missing from {where}")
        if place.shape != shape:
            raise CheckpointError(f"{place.path}: tensor {name!r} has shape {place.shape}, config.json means {shape}")
        dtype = _DTYPES.get(place.dtype)
        if dtype is None or not dtype.is_floating_point:
            raise CheckpointError(
                f"{place.path}: tensor {name!r} has dtype {dtype or place.dtype}, floating point is needed"
            )
        count = (place.stop - place.start) // dtype.itemsize
        if name not in self._used:
            self._used.add(name)
            self.parameters += count if counts else 0
        if not count:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(self._files[place.path], dtype=dtype, count=count, offset=place.start).view(shape)

    def equal(self, one: str, other: str) -> bool:
        """Whether two tensors that are there hold the same numbers in the same dtype. Neither is used by that."""
        places = self._places[one], self._places[other]
        if len({(place.dtype, place.shape, place.stop - place.start) for place in places}) > 1:
            return False
        alike = torch.equal(*(self._bytes(place) for place in places))
        self.release(one)
        self.release(other)
        return alike

    def release(self, name: str) -> None:
        """Give the memory back that reading the tensor took. It can still be read: the pages are mapped again then."""
        place = self._places[name]
        if hasattr(mmap, "MADV_DONTNEED") and place.stop > place.start:
            start = place.start // mmap.PAGESIZE * mmap.PAGESIZE
            self._files[place.path].madvise(mmap.MADV_DONTNEED, start, place.stop - start)

    def refuse_leftovers(self, *, unread: Sequence[str]) -> None:
        """Weights that nothing used would mean that the model is not what it was trained as.

        `unread`: what the names begin with that may be left.

        Raises:
            CheckpointError: there are some; one is named.
        """
        left = sorted(n for n in self._places.keys() - self._used if not n.endswith(_UNUSED))
        left = [name for name in left if not name.startswith(tuple(unread))]
        if left:
            raise CheckpointError(
                f"{self._places[left[0]].path}: tensor {left[0]!r} and {len(left) - 1} more belong to no part of the "
                "architecture that config.json names"
            )

    def _bytes(self, place: _Place) -> Tensor:
        if place.stop == place.start:
            return torch.empty(0, dtype=torch.uint8)
        file, size = self._files[place.path], place.stop - place.start
        return torch.frombuffer(file, dtype=torch.uint8, count=size, offset=place.start)

    def _paths(self) -> list[Path]:
        whole, index = self.folder / WHOLE, self.folder / INDEX
        # The whole file first, as in transformers: saving it over shards leaves their index behind.
        return [whole] if whole.exists() or not index.exists() else [self.folder / name for name in shards(index)]


def _places(path: Path, content: mmap.mmap) -> Iterator[tuple[str, _Place]]:
    (length,) = struct.unpack("<Q", content[:8])
    for name, entry in json.loads(content[8 : 8 + length]).items():
        if name != "__metadata__":
            start, stop = (8 + length + offset for offset in entry["data_offsets"])
            yield name, _Place(path, entry["dtype"], tuple(entry["shape"]), start, stop)
