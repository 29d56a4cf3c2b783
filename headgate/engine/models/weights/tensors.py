"""A checkpoint's tensors by name: memory-mapped safetensors, one file or sharded, and let go of when they were used."""

from __future__ import annotations

import json
import math
import mmap
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from headgate.engine.errors import CheckpointError
from headgate.engine.models.weights.quantization import Packing

if TYPE_CHECKING:
    from headgate.engine.models.adapters.files import Adapter

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

WORDS = (".qweight", ".weight_packed")
"""Ends of the names of packed codes: of GPTQ and AWQ, and of compressed-tensors."""
_PARTS = (".qzeros", ".scales", ".g_idx", ".weight_shape", ".weight_zero_point", ".weight_g_idx")
BLOCKS, BLOCK_SCALES = "_blocks", "_scales"
"""Ends of the names of all experts' matrices in MXFP4."""
WHOLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_SCALES = ("_scale", "_scale_inv")
# Of these, scales of activations, keys and values are what a checkpoint would have them rounded by: here each token
# brings its own.
_UNUSED = (
    *(".inv_freq", ".masked_bias", ".input_scale", ".activation_scale", ".input_zero_point", ".output_scale"),
    *(".k_scale", ".v_scale"),
)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        CheckpointError: the file is missing, damaged, or holds something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path}: the file is missing; a model is a Hugging Face folder that has it") from None
    except (OSError, ValueError, RecursionError) as error:
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
    packing: Packing | None
    """How some of the weights are packed, if config.json says so: whoever reads it puts it here."""
    adapter: Adapter | None
    """What is added to matrices when they are read; whoever wants that puts it here."""
    parameters: int
    """How many the tensors stand for that were got so far."""

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

    def get(
        self,
        name: str,
        shape: tuple[int, ...],
        *,
        dtype: torch.dtype | None = None,
        parameters: int | None = None,
        of: str | None = None,
    ) -> Tensor:
        """The tensor.

        Args:
            name: its name.
            shape: the one it must have.
            dtype: the one it must have; without it any of floating point will do.
            parameters: how many of the model's it stands for; as many as it has numbers, if that is not said.
            of: the weight that it is a part of, and is released with.

        Raises:
            CheckpointError: it is missing, of another shape or of another dtype.
        """
        ...

    def equal(self, one: str, other: str) -> bool:
        """Whether two tensors that are there hold the same numbers in the same dtype. Neither is used by that."""
        ...

    def release(self, name: str) -> None:
        """Give the memory back that reading the tensor, or the parts of the weight, took; they can still be read."""
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
        self._parts: dict[str, list[str]] = {}
        self.packing: Packing | None = None
        self.adapter: Adapter | None = None
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
        """Numbers in all weights of the files, used or not, but for names that begin with one of `unread`."""
        counted = (shape for name, shape in self.shapes.items() if not name.startswith(tuple(unread)))
        return sum(math.prod(shape) for shape in counted)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of all weights by name, in that order: packed ones are the matrices that they stand for.

        Raises:
            CheckpointError: a packed one lacks what tells its shape.
        """
        aside = (*_SCALES, *_UNUSED, *_PARTS)
        found = {name: place.shape for name, place in self._places.items() if not name.endswith((*aside, *WORDS))}
        for name in self._places:
            if name.endswith(WORDS):
                module = name.rpartition(".")[0]
                found[f"{module}.weight"] = self._packed_shape(module, name)
            elif name.endswith(BLOCKS) and (stack := name.removesuffix(BLOCKS)) + BLOCK_SCALES in self:
                experts, outputs, *inputs = found.pop(name)
                del found[stack + BLOCK_SCALES]
                # Two in a byte, and as transformers has them.
                found[stack] = experts, 2 * math.prod(inputs), outputs
        return dict(sorted(found.items()))

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

    def get(
        self,
        name: str,
        shape: tuple[int, ...],
        *,
        dtype: torch.dtype | None = None,
        parameters: int | None = None,
        of: str | None = None,
    ) -> Tensor:
        """See Tensors. It is still memory-mapped."""
        place = self._places.get(name)
        if place is None:
            where = ", ".join(p.name for p in self.files)
            raise CheckpointError(f"{self.folder}: tensor {name!r} is missing from {where}")
        if place.shape != shape:
            raise CheckpointError(f"{place.path}: tensor {name!r} has shape {place.shape}, config.json means {shape}")
        found = _DTYPES.get(place.dtype)
        if found is None or (found != dtype if dtype is not None else not found.is_floating_point):
            wanted = dtype or "floating point"
            raise CheckpointError(f"{place.path}: tensor {name!r} has dtype {found or place.dtype}, {wanted} is needed")
        count = (place.stop - place.start) // found.itemsize
        if name not in self._used:
            self._used.add(name)
            self.parameters += count if parameters is None else parameters
            if of is not None:
                self._parts.setdefault(of, []).append(name)
        if not count:
            return torch.empty(shape, dtype=found)
        return torch.frombuffer(self._files[place.path], dtype=found, count=count, offset=place.start).view(shape)

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
        """See Tensors. The pages are mapped again when they are read."""
        for place in [self._places[part] for part in self._parts.get(name, [name])]:
            if hasattr(mmap, "MADV_DONTNEED") and place.stop > place.start:
                start = place.start // mmap.PAGESIZE * mmap.PAGESIZE
                self._files[place.path].madvise(mmap.MADV_DONTNEED, start, place.stop - start)

    def refuse_leftovers(self, *, unread: Sequence[str]) -> None:
        """Weights that nothing used would mean that the model is not what it was trained as.

        `unread`: what the names begin with that may be left.

        Raises:
            CheckpointError: there are some; one is named.
        """
        unused = sorted(n for n in self._places.keys() - self._used if not n.endswith(_UNUSED))
        unused = [name for name in unused if not name.startswith(tuple(unread))]
        # The first programs for GPTQ wrote zeros where a layer has no bias.
        left = [n for n in unused if not n.endswith(".bias") or self._bytes(self._places[n]).any()]
        if left:
            raise CheckpointError(
                f"{self._places[left[0]].path}: tensor {left[0]!r} and {len(left) - 1} more belong to no part of the "
                "architecture that config.json names"
            )

    def _packed_shape(self, module: str, words: str) -> tuple[int, int]:
        """Outputs and inputs of a matrix, by its tensors alone."""
        if words.endswith(".weight_packed"):
            at = f"{module}.weight_shape"
            dtype = torch.int32 if self.dtype(at) == torch.int32 else torch.int64
            outputs, inputs = self.get(at, (2,), dtype=dtype, parameters=0).tolist()
            self.release(at)
            return outputs, inputs
        named = words, f"{module}.scales", f"{module}.qzeros"
        shapes = [self._places[at].shape for at in named if at in self and len(self._places[at].shape) == 2]
        if len(shapes) < len(named):
            wanted = f"{words!r} and {named[1]!r} and {named[2]!r} of two dimensions"
            raise CheckpointError(f"{self._places[words].path}: it takes {wanted} to tell a shape")
        (rows, columns), (_, outputs), (_, of_zeros) = shapes
        # AWQ's words go along the outputs as those of its zeros do; one of GPTQ has as many codes as one of zeros has.
        return outputs, rows if columns == of_zeros else rows * round(outputs / max(1, of_zeros))

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
