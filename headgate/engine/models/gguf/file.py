"""GGUF, llama.cpp's file of a model: metadata by key, and tensors by name, memory-mapped.

    magic "GGUF", version uint32, number of tensors uint64, number of keys uint64
    of each key:    its name, a type, a value
    of each tensor: its name, dimensions (the one that is next to each other first), ggml's type, offset of its data
    from the next multiple of `general.alignment` on: the data

All little-endian. Source: `docs/gguf.md` of ggml, versions 2 and 3. A file may be damaged or made to harm: each number
is held against what is left of the file before anything is made of it.
"""

from __future__ import annotations

import math
import mmap
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headgate.engine.errors import CheckpointError
from headgate.engine.quant.ggml import BLOCK_TYPES, OTHER_TYPES, PLAIN_TYPES

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_ALIGNMENT = "general.alignment"
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MOST_DIMENSIONS = 4
_LEAST_KEY, _LEAST_TENSOR = 8 + 4 + 1, 8 + 4 + 4 + 8
"""Bytes of the shortest entries."""
_SPLIT = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A tensor of a file.

    Attributes:
        path: of the file.
        kind: ggml's number of the type, one of PLAIN_TYPES or BLOCK_TYPES.
        shape: as torch has it, the dimension whose numbers lie next to each other last.
        start: of its data in the file, in bytes.
        nbytes: of its data.
    """

    path: Path
    kind: int
    shape: tuple[int, ...]
    start: int
    nbytes: int

    @property
    def type_name(self) -> str:
        """Of its type."""
        return BLOCK_TYPES[self.kind].name if self.kind in BLOCK_TYPES else str(PLAIN_TYPES[self.kind])


@dataclass(frozen=True, slots=True)
class GgufModel:
    """What a model's files hold.

    Attributes:
        metadata: of the first file.
        tensors: of all of them, by name.
        files: all of them, mapped.
    """

    metadata: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]
    files: Mapping[Path, mmap.mmap]


def is_gguf(path: Path) -> bool:
    """Whether a file begins as GGUF does, whatever its name is. OSError where it cannot be read."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def parts_of(path: Path) -> list[Path]:
    """The files of the model whose first one is `path`: of a split one ("-00001-of-00003.gguf") all of them.

    Raises:
        CheckpointError: it is another than the first.
    """
    split = _SPLIT.fullmatch(path.name)
    if split is None:
        return [path]
    if int(split["number"]) != 1:
        first = f"{split['stem']}-00001-of-{split['count']}.gguf"
        raise CheckpointError(f"{path}: is not the first file of a split model; name {first}")
    count = int(split["count"])
    return [path.with_name(f"{split['stem']}-{n:05}-of-{count:05}.gguf") for n in range(1, count + 1)]


def read_gguf(paths: Sequence[Path]) -> GgufModel:
    """Open the files of a model; no tensor is read.

    Raises:
        CheckpointError: naming the file that is missing or damaged, and what is wrong with it.
    """
    metadata: dict[str, Any] = {}
    tensors: dict[str, GgufTensor] = {}
    files: dict[Path, mmap.mmap] = {}
    for number, path in enumerate(paths):
        try:
            with path.open("rb") as file:
                # Private: what is mapped here is never written, and no other process sees it if it were.
                files[path] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        except FileNotFoundError:
            raise CheckpointError(f"{path}: the file is missing") from None
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{path}: not a readable GGUF file: {error}") from error
        reader = _Reader(path, files[path])
        own = reader.metadata()
        stated = own.get("split.count", len(paths))
        if stated not in (len(paths), 0) or own.get("split.no", number) != number:
            raise CheckpointError(
                f"{path}: is file {own.get('split.no', number)} of {stated} by its own account; "
                f"file {number} of {len(paths)} is needed"
            )
        if number == 0:
            metadata = own
        for name, tensor in reader.tensors(own).items():
            if name in tensors:
                raise CheckpointError(f"{path}: the tensor {name!r} is there twice")
            tensors[name] = tensor
    return GgufModel(metadata, tensors, files)


class _Reader:
    """Goes through the head of a file once."""

    def __init__(self, path: Path, content: mmap.mmap) -> None:
        """CheckpointError where it is not one, or of another version."""
        self._path, self._content, self._at = path, content, 0
        if self._bytes(len(MAGIC), "the magic") != MAGIC:
            raise self._wrong("does not begin with 'GGUF'")
        version = self._number("I", "the version")
        if version not in _VERSIONS:
            swapped = version & 0xFFFF == 0 and version >> 24
            what = f"is of version {version}" if not swapped else "is big-endian"
            raise self._wrong(f"{what}; little-endian files of version 2 and 3 are read")
        self._tensor_count = self._count("Q", _LEAST_TENSOR, "tensors")
        self._key_count = self._count("Q", _LEAST_KEY, "keys")

    def metadata(self) -> dict[str, Any]:
        """All values by key."""
        found: dict[str, Any] = {}
        for _ in range(self._key_count):
            key = self._string("a key")
            if key in found:
                raise self._wrong(f"has the key {key!r} twice")
            found[key] = self._value(self._number("I", f"the type of {key!r}"), key)
        return found

    def tensors(self, metadata: Mapping[str, Any]) -> dict[str, GgufTensor]:
        """All tensors by name, once the metadata is read."""
        alignment = metadata.get(_ALIGNMENT, 32)
        if not isinstance(alignment, int) or alignment < 8 or alignment & (alignment - 1) or alignment > 1 << 20:
            raise self._wrong(f"has {_ALIGNMENT} {alignment!r}; it must be a power of two from 8 on")
        read = [self._tensor() for _ in range(self._tensor_count)]
        start = -(-self._at // alignment) * alignment
        found: dict[str, GgufTensor] = {}
        for name, kind, shape, offset in read:
            nbytes = self._nbytes(name, kind, shape)
            if offset % alignment or start + offset + nbytes > len(self._content):
                raise self._wrong(
                    f"has the tensor {name!r} at {offset}, {nbytes} bytes long; "
                    f"there are {max(0, len(self._content) - start)} bytes of data, in steps of {alignment}"
                )
            if name in found:
                raise self._wrong(f"has the tensor {name!r} twice")
            found[name] = GgufTensor(self._path, kind, shape, start + offset, nbytes)
        return found

    def _tensor(self) -> tuple[str, int, tuple[int, ...], int]:
        name = self._string("a tensor's name")
        dimensions = self._number("I", f"the dimensions of {name!r}")
        if not 1 <= dimensions <= _MOST_DIMENSIONS:
            raise self._wrong(f"has the tensor {name!r} of {dimensions} dimensions; 1 to {_MOST_DIMENSIONS} are read")
        shape = tuple(self._number("Q", f"the shape of {name!r}") for _ in range(dimensions))
        if 0 in shape:
            raise self._wrong(f"has the tensor {name!r} of {shape[::-1]}, which is empty")
        kind, offset = self._number("I", f"the type of {name!r}"), self._number("Q", f"the place of {name!r}")
        return name, kind, shape[::-1], offset

    def _nbytes(self, name: str, kind: int, shape: tuple[int, ...]) -> int:
        numbers = math.prod(shape)
        if kind in PLAIN_TYPES:
            return numbers * PLAIN_TYPES[kind].itemsize
        block = BLOCK_TYPES.get(kind)
        if block is None:
            named = OTHER_TYPES.get(kind, f"type {kind}")
            known = ", ".join(["F32", "F16", "BF16", *(each.name for each in BLOCK_TYPES.values())])
            raise self._wrong(f"has the tensor {name!r} in {named}, which is not supported; {known} are")
        if shape[-1] % block.numbers:
            raise self._wrong(f"has the tensor {name!r} of {shape}: {block.name} has blocks of {block.numbers}")
        return numbers // block.numbers * block.nbytes

    def _value(self, kind: int, key: str) -> Any:
        if kind == _STRING:
            return self._string(f"the value of {key!r}")
        if kind == _ARRAY:
            return self._array(key)
        if kind not in _NUMBERS:
            raise self._wrong(f"has a value of the unknown type {kind} for {key!r}")
        return self._number(_NUMBERS[kind], f"the value of {key!r}")

    def _array(self, key: str) -> list[Any]:
        kind = self._number("I", f"the type of {key!r}")
        if kind == _STRING:
            count = self._count("Q", 8, f"strings of {key!r}")
            return [self._string(f"a string of {key!r}") for _ in range(count)]
        if kind not in _NUMBERS:
            raise self._wrong(f"has an array of the unknown type {kind} for {key!r}")
        form = _NUMBERS[kind]
        count = self._count("Q", struct.calcsize(f"<{form}"), f"numbers of {key!r}")
        return list(struct.unpack(f"<{count}{form}", self._bytes(count * struct.calcsize(f"<{form}"), key)))

    def _count(self, form: str, each: int, what: str) -> int:
        """Of things that take so many bytes at least."""
        count: int = self._number(form, f"the number of {what}")
        if count * each > len(self._content) - self._at:
            raise self._wrong(f"says that there are {count} {what}, which do not fit its {len(self._content)} bytes")
        return count

    def _number(self, form: str, what: str) -> Any:
        (value,) = struct.unpack(f"<{form}", self._bytes(struct.calcsize(f"<{form}"), what))
        return value

    def _string(self, what: str) -> str:
        try:
            return self._bytes(self._count("Q", 1, f"bytes of {what}"), what).decode()
        except UnicodeDecodeError as error:
            raise self._wrong(f"has {what} that is no UTF-8: {error.reason}") from None

    def _bytes(self, count: int, what: str) -> bytes:
        if count > len(self._content) - self._at:
            raise self._wrong(f"ends within {what}, after {len(self._content)} bytes")
        self._at += count
        return self._content[self._at - count : self._at]

    def _wrong(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self._path}: the GGUF file {what}")
