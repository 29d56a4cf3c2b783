"""The experts of gpt-oss in a GGUF file, as its published checkpoint has them: gates and ups in turns, in MXFP4."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from headgate.engine.errors import CheckpointError
from headgate.engine.models.gguf.file import GgufModel
from headgate.engine.models.spec import DecoderSpec
from headgate.engine.models.weights.tensors import BLOCK_SCALES, BLOCKS
from headgate.engine.quant.ggml import BLOCK_TYPES
from headgate.engine.quant.mxfp4 import GROUP

_MXFP4 = next(number for number, kind in BLOCK_TYPES.items() if kind.name == "MXFP4")
_BIAS = "_bias"


class ExpertStacks:
    """Tensors that InterleavedExperts asks for; each is made anew when it is."""

    def __init__(self, model: GgufModel, spec: DecoderSpec) -> None:
        """CheckpointError where experts are there in another type, or not as stacks."""
        self._model = model
        self._sources: dict[str, list[str]] = {}
        """The file's tensors of each stack, without "weight" or "bias"."""
        for number in range(spec.layers):
            at = f"model.layers.{number}.{spec.names.experts}"
            parts = [f"blk.{number}.ffn_{part}_exps" for part in ("gate", "up", "down")]
            for part in parts:
                tensor = model.tensors.get(f"{part}.weight")
                if tensor is None or tensor.kind != _MXFP4 or len(tensor.shape) != 3:
                    found = "missing" if tensor is None else f"in {tensor.type_name} of {tensor.shape}"
                    raise self._wrong(f"the tensor '{part}.weight' is {found}; three dimensions in MXFP4 are read")
            self._sources[f"{at}.{spec.names.expert_gate}"] = parts[:2]
            self._sources[f"{at}.{spec.names.expert_down}"] = parts[2:]

    def __contains__(self, name: str) -> bool:
        stack, end = _split(name)
        return bool(end) and stack in self._sources

    def dtype(self, name: str) -> torch.dtype:
        """Of what `get` gives."""
        return torch.float32 if name.endswith(_BIAS) else torch.uint8

    def get(self, name: str, shape: tuple[int, ...], dtype: torch.dtype | None) -> Tensor:
        """Blocks, scales or biases of all experts.

        Raises:
            CheckpointError: they are missing, or of another shape or type.
        """
        stack, end = _split(name)
        found = [self._part(source, end) for source in self._sources[stack]]
        whole = torch.stack(found, dim=2).flatten(1, 2) if len({part.shape for part in found}) == 1 else found[0]
        if tuple(whole.shape) != shape or (dtype or whole.dtype) != whole.dtype:
            wanted = f"{shape} in {dtype}" if dtype else f"{shape}"
            raise self._wrong(
                f"the tensors {' and '.join(self._sources[stack])} make {tuple(whole.shape)} in {whole.dtype}; "
                f"{wanted} is needed"
            )
        return whole

    def spans(self, name: str) -> list[tuple[Path, int, int]]:
        """Where the files have what a stack is made of."""
        tensors = [self._model.tensors[f"{source}.weight"] for source in self._sources.get(name, ())]
        return [(tensor.path, tensor.start, tensor.nbytes) for tensor in tensors]

    def used(self, names: Iterable[str]) -> set[str]:
        """The file's tensors of those stacks whose parts are among `names`."""
        found = set()
        for name in names:
            stack, end = _split(name)
            part = "bias" if end == _BIAS else "weight"
            found |= {f"{source}.{part}" for source in self._sources.get(stack, ())}
        return found

    def _part(self, source: str, end: str) -> Tensor:
        tensor = self._model.tensors.get(f"{source}.{'bias' if end == _BIAS else 'weight'}")
        if tensor is None or (end == _BIAS and tensor.kind != 0):
            raise self._wrong(f"the tensor '{source}.bias' in F32 is missing")
        file = self._model.files[tensor.path]
        octets = torch.frombuffer(file, dtype=torch.uint8, count=tensor.nbytes, offset=tensor.start)
        if end == _BIAS:
            return octets.view(torch.float32).view(tensor.shape)
        experts, outputs, inputs = tensor.shape
        blocks = octets.view(experts, outputs, inputs // GROUP, -1)
        if end == BLOCK_SCALES:
            return blocks[..., 0]
        # All lower halves before the upper ones here, and neighbours in a byte there.
        codes = torch.cat((blocks[..., 1:] & 15, blocks[..., 1:] >> 4), dim=-1)
        return codes[..., ::2] | (codes[..., 1::2] << 4)

    def _wrong(self, what: str) -> CheckpointError:
        return CheckpointError(f"{next(iter(self._model.files))}: {what}")


def _split(name: str) -> tuple[str, str]:
    """A stack's name, and what is wanted of it."""
    end = next((end for end in (BLOCKS, BLOCK_SCALES, _BIAS) if name.endswith(end)), "")
    return name.removesuffix(end), end
