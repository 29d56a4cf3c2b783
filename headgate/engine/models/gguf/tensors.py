"""The tensors of a model's GGUF files, by the names that a checkpoint of the same model has for them."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from headgate.engine.errors import CheckpointError
from headgate.engine.models.adapters.files import Adapter
from headgate.engine.models.architectures import read_spec
from headgate.engine.models.gguf.config import ARCHITECTURE, FREQUENCIES, LONG, SHORT
from headgate.engine.models.gguf.file import GgufTensor, read_gguf
from headgate.engine.models.gguf.names import Named, gguf_names
from headgate.engine.models.gguf.stacks import ExpertStacks
from headgate.engine.models.spec import DecoderSpec
from headgate.engine.models.weights.quantization import Packing
from headgate.engine.models.weights.tensors import read_json
from headgate.engine.quant.ggml import BLOCK_TYPES, PLAIN_TYPES, GgmlWeight

_NEIGHBOURS = frozenset({"llama", "granite", "granitemoe", "smollm3", "arcee"})
"""Of these llama.cpp turns features next to each other: outputs of queries and keys are in another order."""
_ASIDE = (FREQUENCIES, LONG, SHORT)
"""What config.json says instead."""


class GgufTensors:
    """Implements Tensors: those of the GGUF files in a folder. Each is to be used; what is left is an error."""

    def __init__(self, folder: Path) -> None:
        """Open the files of `folder`, beside which its config.json says what they are; no tensor is read.

        Raises:
            CheckpointError: a file is missing or damaged.
        """
        self.folder = folder
        self.packing: Packing | None = None
        self.adapter: Adapter | None = None
        self.parameters = 0
        self._links = sorted(folder.glob("*.gguf"))
        self._model = read_gguf([_meant(link) for link in self._links])
        self._spec: DecoderSpec = read_spec(read_json(folder / "config.json"))
        self._neighbours = self._model.metadata.get(ARCHITECTURE) in _NEIGHBOURS
        there = self._model.tensors
        self._names = {each.name: each for each in gguf_names(self._spec, _AnyBlock(there))}
        self._named = {name: each for name, each in self._names.items() if each.gguf in there}
        self._stacks = ExpertStacks(self._model, self._spec) if self._spec.names.interleaved_experts else None
        self._used: set[str] = set()

    @property
    def files(self) -> list[Path]:
        """The model's files, by the names that they have in the folder, whatever their own are."""
        return self._links

    def parameters_named(self, unread: Sequence[str]) -> int:
        """Numbers in all weights of the files, used or not, but for names that begin with one of `unread`."""
        left = {each.gguf for each in self._named.values() if each.name.startswith(tuple(unread))}
        counted = (t.shape for name, t in self._model.tensors.items() if name not in left and name not in _ASIDE)
        return sum(map(math.prod, counted))

    def __contains__(self, name: str) -> bool:
        return name in self._named or (self._stacks is not None and name in self._stacks)

    def dtype(self, name: str) -> torch.dtype | None:
        """Of what `get` gives; None where there is no such tensor."""
        if self._stacks is not None and name in self._stacks:
            return self._stacks.dtype(name)
        return PLAIN_TYPES.get(self._tensor(name).kind, torch.float32) if name in self._named else None

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor that is there."""
        tensor = self._tensor(name)
        return tensor.shape if self._named[name].expert is None else tensor.shape[1:]

    def get(
        self,
        name: str,
        shape: tuple[int, ...],
        *,
        dtype: torch.dtype | None = None,
        parameters: int | None = None,
        of: str | None = None,  # noqa: ARG002  a tensor has no parts that are released with it
    ) -> Tensor:
        """See Tensors. Plain ones are still memory-mapped, if their outputs are in their place; others are float32."""
        if self._stacks is not None and name in self._stacks:
            self._use(name, math.prod(shape) if parameters is None else parameters)
            return self._stacks.get(name, shape, dtype)
        tensor = self._checked(name, shape)
        if dtype is not None and dtype != self.dtype(name):
            raise self._wrong(name, f"has dtype {self.dtype(name)}, {dtype} is needed")
        self._use(name, math.prod(shape) if parameters is None else parameters)
        if tensor.kind in BLOCK_TYPES:
            rows = (1, math.prod(shape)) if len(shape) < 2 else (math.prod(shape[:-1]), shape[-1])
            found = self._packed(name, tensor, rows).expand(torch.float32).view(shape)
        else:
            found = self._octets(name, tensor).view(PLAIN_TYPES[tensor.kind]).view(shape)
            order = self._order(name, shape[0])
            found = found if order is None else found[order]
        if self._spec.norm_offset and name.endswith("norm.weight"):
            # llama.cpp's weights of norms are those that are computed with.
            return found.float() - self._spec.norm_offset
        return found

    def packed(self, name: str, shape: tuple[int, int]) -> GgmlWeight | None:
        """The matrix in its blocks, still memory-mapped; None where it is plain.

        Raises:
            CheckpointError: it is missing or of another shape.
        """
        tensor = self._checked(name, shape)
        if tensor.kind in PLAIN_TYPES:
            return None
        self._use(name, math.prod(shape))
        return self._packed(name, tensor, shape)

    def equal(self, one: str, other: str) -> bool:
        """Whether two tensors that are there hold the same numbers in the same type. Neither is used by that."""
        first, second = self._tensor(one), self._tensor(other)
        if (first.kind, first.shape) != (second.kind, second.shape):
            return False
        alike = torch.equal(self._octets(one, first), self._octets(other, second))
        self.release(one)
        self.release(other)
        return alike

    def release(self, name: str) -> None:
        """See Tensors. The pages are mapped again when they are read."""
        parts = [self._span(name, self._tensor(name))] if name in self._named else []
        for path, start, nbytes in parts or (self._stacks.spans(name) if self._stacks is not None else []):
            if hasattr(mmap, "MADV_DONTNEED") and nbytes:
                page = start // mmap.PAGESIZE * mmap.PAGESIZE
                self._model.files[path].madvise(mmap.MADV_DONTNEED, page, start + nbytes - page)

    def refuse_leftovers(self, *, unread: Sequence[str]) -> None:
        """See Tensors."""
        used = {self._named[name].gguf for name in self._used if name in self._named}
        partly = {each.gguf for name, each in self._named.items() if name not in self._used}
        skipped = {each.gguf for name, each in self._named.items() if name.startswith(tuple(unread))}
        if self._stacks is not None:
            used |= self._stacks.used(self._used)
        left = sorted((self._model.tensors.keys() - (used - partly)) - skipped - {*_ASIDE})
        if left:
            raise CheckpointError(
                f"{self._model.tensors[left[0]].path}: tensor {left[0]!r} and {len(left) - 1} more belong to no part "
                f"of the architecture {self._spec.architecture}"
            )

    def _use(self, name: str, parameters: int) -> None:
        if name not in self._used:
            self._used.add(name)
            self.parameters += parameters

    def _tensor(self, name: str) -> GgufTensor:
        return self._model.tensors[self._named[name].gguf]

    def _checked(self, name: str, shape: tuple[int, ...]) -> GgufTensor:
        named = self._names.get(name)
        if named is not None and named.expert is not None:
            assert self._spec.experts is not None
            shape = (self._spec.experts.count, *shape)
        if name not in self._named:
            first, *rest = self._model.files
            where = f"{first} and {len(rest)} more" if rest else f"{first}"
            wanted = name if named is None else named.gguf
            raise CheckpointError(f"{where}: tensor {wanted!r} is missing; the metadata means one of {shape}")
        tensor = self._tensor(name)
        # A matrix of one row is a vector in some files.
        if tensor.shape != shape and (1, *tensor.shape) != shape:
            raise self._wrong(name, f"has shape {tensor.shape}, the metadata means {shape}")
        return tensor

    def _packed(self, name: str, tensor: GgufTensor, shape: tuple[int, int]) -> GgmlWeight:
        outputs, inputs = shape
        kind = BLOCK_TYPES[tensor.kind]
        if inputs % kind.numbers:
            raise self._wrong(name, f"has {inputs} inputs; {kind.name} has blocks of {kind.numbers}")
        rows = self._octets(name, tensor).view(outputs, inputs // kind.numbers * kind.nbytes)
        called = f"{tensor.path}: tensor {self._named[name].gguf!r}"
        return GgmlWeight(called, kind, rows, self._order(name, outputs))

    def _order(self, name: str, outputs: int) -> Tensor | None:
        """Which output of the file each is."""
        if not (self._neighbours and self._named[name].turned):
            return None
        halves = torch.arange(outputs).view(-1, self._spec.head_dim // 2, 2)
        return halves.transpose(1, 2).flatten()

    def _octets(self, name: str, tensor: GgufTensor) -> Tensor:
        path, start, nbytes = self._span(name, tensor)
        if not nbytes:
            return torch.empty(0, dtype=torch.uint8)
        return torch.frombuffer(self._model.files[path], dtype=torch.uint8, count=nbytes, offset=start)

    def _span(self, name: str, tensor: GgufTensor) -> tuple[Path, int, int]:
        expert = self._named[name].expert
        if expert is None:
            return tensor.path, tensor.start, tensor.nbytes
        each = tensor.nbytes // tensor.shape[0]
        return tensor.path, tensor.start + expert * each, each

    def _wrong(self, name: str, what: str) -> CheckpointError:
        named: Named = self._named[name]
        return CheckpointError(f"{self._model.tensors[named.gguf].path}: tensor {named.gguf!r} {what}")


class _AnyBlock:
    """Names of what one of the blocks has: a tensor that a single one lacks is called as the others call it."""

    def __init__(self, there: Iterable[str]) -> None:
        self._parts = {name.split(".", 2)[-1] for name in there}

    def __contains__(self, name: object) -> bool:
        return str(name).split(".", 2)[-1] in self._parts


def _meant(link: Path) -> Path:
    """The file that somebody named, where the folder is one that was made for it: errors are to name that one."""
    target = link.readlink() if link.is_symlink() else link
    # Those of the hub's folders are relative, and lead to files that are called by their digests.
    return target if target.is_absolute() else link
