"""LoRA adapters in PEFT's files: what fine-tuning adds to a checkpoint's matrices, added when they are read."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from headgate.engine.errors import CheckpointError
from headgate.engine.models.config import Config
from headgate.engine.models.weights.tensors import read_json
from headgate.engine.quant.fp8 import Fp8Weight
from headgate.engine.quant.ggml import GgmlWeight
from headgate.engine.quant.integers import IntegerWeight

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."
_FACTOR = re.compile(r"(?P<name>.*)\.lora_(?P<part>[AB])(\.default)?\.weight")
_TOLD = frozenset(
    {
        *("alpha_pattern", "auto_mapping", "base_model_name_or_path", "bias", "ensure_weight_tying", "exclude_modules"),
        *("fan_in_fan_out", "inference_mode", "init_lora_weights", "layers_pattern", "layers_to_transform"),
        *("lora_alpha", "lora_dropout", "megatron_core", "modules_to_save", "peft_type", "peft_version", "r"),
        *("qalora_group_size", "rank_pattern", "revision", "runtime_config", "target_modules", "target_parameters"),
        *("task_type", "use_rslora"),
    }
)
"""What an adapter_config.json may say: the tensors tell it as well, or it is read here."""
_FRESH = (None, True, False, "gaussian", "eva", "orthogonal")
"""Ways to begin training that leave the checkpoint's own weights as they are."""


@dataclass(frozen=True, slots=True)
class AdaptedWeight:
    """weight = base + scale * up @ down.

    Attributes:
        base: [outputs, inputs].
        down: [rank, inputs].
        up: [outputs, rank].
        scale: a factor.
    """

    base: Tensor | Fp8Weight | IntegerWeight | GgmlWeight
    down: Tensor
    up: Tensor
    scale: float

    def to(self, device: torch.device) -> AdaptedWeight:
        """The same there."""
        return AdaptedWeight(self.base.to(device), self.down.to(device), self.up.to(device), self.scale)

    def expand(self, dtype: torch.dtype) -> Tensor:
        """The weight in floating point, rounded once."""
        base = self.base.float() if isinstance(self.base, Tensor) else self.base.expand(torch.float32)
        return torch.addmm(base, self.up.float(), self.down.float(), alpha=self.scale).to(dtype)


class Adapter:
    """An adapter of one checkpoint. Each of its tensors is to be used; what is left is an error."""

    def __init__(self, folder: Path, stored: Callable[[str], str] = str) -> None:
        """Open the files of `folder`. `stored` gives the checkpoint's own name of a tensor.

        Raises:
            CheckpointError: a file is missing or damaged, or says what cannot be served; the message names the key.
        """
        self._path = folder / WEIGHTS
        try:
            there = (folder / CONFIG).is_file()
        except OSError as error:  # nobody may look into the folder
            raise CheckpointError(f"{folder / CONFIG}: cannot be read: {error}") from error
        if not there:
            raise CheckpointError(
                f"{folder / CONFIG}: the file is missing; an adapter is a folder of PEFT's that has it"
            )
        self._stated = read_json(folder / CONFIG)
        self._config = Config(self._stated, file=f"{folder / CONFIG}")
        _check(folder / CONFIG, self._stated)
        try:
            # Whole, and never mapped: whoever trains writes the file anew while it is read.
            content = self._path.read_bytes()
            self._tensors = load(content)
        except FileNotFoundError:
            raise CheckpointError(f"{self._path}: the file is missing") from None
        except (SafetensorError, OSError, KeyError) as error:
            raise CheckpointError(f"{self._path}: not a readable safetensors file: {error}") from error
        stated = sorted((key, repr(value)) for key, value in self._stated.items())
        self.content = blake2b(content, digest_size=32, key=sha256(f"{stated}".encode()).digest()).hexdigest()
        """Digest of all that it holds, wherever it lies."""
        self._whole: dict[str, str] = {}
        self._factors: dict[str, dict[str, str]] = {}
        self._modules: dict[str, str] = {}
        """Of what has factors, as the adapter itself calls it, and its patterns do."""
        for key in self._tensors:
            name = key.removeprefix(_PREFIX)
            factor = _FACTOR.fullmatch(name)
            if factor is None:
                self._whole[stored(name)] = key
            else:
                adapted = stored(f"{factor['name']}.weight")
                self._factors.setdefault(adapted, {})[factor["part"]] = key
                self._modules[adapted] = factor["name"]
        self._left = self._whole.keys() | self._factors.keys()
        if not self._left:
            raise CheckpointError(f"{self._path}: it has no tensors, so it adapts nothing")
        both = sorted(self._whole.keys() & self._factors.keys())
        if both:
            raise CheckpointError(f"{self._path}: of {both[0]!r} there are both lora_A and lora_B and a whole matrix")

    @property
    def files(self) -> list[Path]:
        """Its file of weights."""
        return [self._path]

    @property
    def identity(self) -> str:
        """Hex digest of where it lies and of how it is applied; its file of weights changes beside it."""
        stated = sorted((key, repr(value)) for key, value in self._stated.items())
        return sha256(f"{self._path.resolve()}{stated}".encode()).hexdigest()[:16]

    def adapts(self, *names: str) -> bool:
        """Whether it has something for one of these tensors."""
        return not self._left.isdisjoint(names)

    def applied(
        self, name: str, matrix: Tensor | Fp8Weight | IntegerWeight | GgmlWeight, shape: tuple[int, int]
    ) -> Tensor | Fp8Weight | IntegerWeight | GgmlWeight | AdaptedWeight:
        """What the checkpoint's tensor `name`, a `matrix` of that shape, is with the adapter.

        Raises:
            CheckpointError: a tensor of the adapter has another shape.
        """
        if name in self._whole:
            self._left -= {name}
            return self._tensor(self._whole[name], shape)
        factors = self.factors(name, shape)
        return matrix if factors is None else AdaptedWeight(matrix, *factors)

    def factors(self, name: str, shape: tuple[int, int]) -> tuple[Tensor, Tensor, float] | None:
        """What it adds to the tensor `name` [outputs, inputs]: down, up and scale of AdaptedWeight; None: nothing.

        Raises:
            CheckpointError: as `applied`.
        """
        self._left -= {name} - self._whole.keys()
        factors = self._factors.get(name)
        if factors is None:
            return None
        if factors.keys() != {"A", "B"}:
            raise CheckpointError(f"{self._path}: of {name!r} there is only lora_{next(iter(factors))}")
        found = tuple(self._tensors[factors["A"]].shape)
        rank = found[0] if found else 0
        if not rank:
            raise CheckpointError(f"{self._path}: tensor {factors['A']!r} is {found}; (rank, {shape[1]}) is needed")
        down, up = self._tensor(factors["A"], (rank, shape[1])), self._tensor(factors["B"], (shape[0], rank))
        return down, up, self._scale(self._modules[name], rank)

    def left(self, unread: Sequence[str]) -> list[str]:
        """Names of the checkpoint's tensors that it has something for and that nobody asked it of; as below."""
        return sorted(name for name in self._left if not name.startswith(tuple(unread)))

    def refuse_leftovers(self, *, unread: Sequence[str]) -> None:
        """A part of an adapter that nothing used would mean that the model is not what it was trained as.

        `unread`: what the names begin with that may be left.

        Raises:
            CheckpointError: there are some; one is named.
        """
        left = self.left(unread)
        if left:
            raise CheckpointError(
                f"{self._path}: the checkpoint has no {left[0]!r} that could be adapted, nor {len(left) - 1} more"
            )

    def _scale(self, module: str, rank: int) -> float:
        patterns = self._config.object("alpha_pattern")
        named = next((key for key in self._stated.get("alpha_pattern") or {} if _names(key, module)), None)
        alpha = self._config.number("lora_alpha") if named is None else patterns.number(named)
        return alpha / (math.sqrt(rank) if self._stated.get("use_rslora") else rank)

    def _tensor(self, key: str, shape: tuple[int, int]) -> Tensor:
        tensor = self._tensors[key]
        if tuple(tensor.shape) != shape or not tensor.dtype.is_floating_point:
            found = f"{tensor.dtype} {tuple(tensor.shape)}"
            raise CheckpointError(f"{self._path}: tensor {key!r} is {found}; floating point {shape} is needed")
        return tensor


def _names(pattern: str, module: str) -> bool:
    """Whether a key of a pattern means a module: its whole name, or the end of it behind a dot."""
    try:
        return re.fullmatch(rf"(.*\.)?({pattern})", module) is not None
    except re.error as error:
        raise CheckpointError(f"{CONFIG}: alpha_pattern has {pattern!r}, which is no regular expression") from error


def _check(path: Path, stated: Mapping[str, Any]) -> None:
    if stated.get("peft_type") != "LORA":
        raise CheckpointError(f"{path}: peft_type is {stated.get('peft_type')!r}; it must be 'LORA'")
    if stated.get("init_lora_weights") not in _FRESH:
        raise CheckpointError(
            f"{path}: init_lora_weights is {stated['init_lora_weights']!r}, which changes the checkpoint itself; "
            "convert the adapter to a plain one"
        )
    for key, value in stated.items():
        if (key == "bias" and value != "none") or (value and (key == "fan_in_fan_out" or key not in _TOLD)):
            raise CheckpointError(f"{path}: {key} is {value!r}, which is not supported")
