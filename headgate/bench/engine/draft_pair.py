"""A synthetic pair of models, of which the small one is mostly right about the large one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

from headgate.bench.checkpoints import SHAPES, write_shape

_VOCABULARY = 32000
"""Few enough that the head is a small part of the small model, too."""
_LAYERS = 4
"""Of the small model, those with which the large one begins."""
_FADED = 0.02
"""What the large model's further layers add to its stream, times this: they cost as much, and change few tokens."""


def write_pair(folder: Path) -> tuple[Path, Path]:
    """Checkpoints of Qwen3-0.6B's shape with a vocabulary of 32,000, and of its first four layers: large and small."""
    drawn = write_shape("drawn", {**SHAPES["qwen3-0.6b"], "vocab_size": _VOCABULARY}, folder)
    tensors = load_file(drawn / "model.safetensors")
    large = {name: (tensor * _FADED if _fades(name) else tensor) for name, tensor in tensors.items()}
    small = {name: tensor for name, tensor in tensors.items() if _layer(name) < _LAYERS}
    return _write(folder / "large", drawn, large, {}), _write(
        folder / "small", drawn, small, {"num_hidden_layers": _LAYERS}
    )


def _layer(name: str) -> int:
    """The layer of a tensor; -1 of those that are of none."""
    parts = name.split(".")
    return int(parts[2]) if parts[1] == "layers" else -1


def _fades(name: str) -> bool:
    return _layer(name) >= _LAYERS and name.endswith(("o_proj.weight", "down_proj.weight"))


def _write(target: Path, like: Path, tensors: Mapping[str, Tensor], other: Mapping[str, int]) -> Path:
    target.mkdir()
    for file in like.glob("*.json"):
        shutil.copy(file, target)
    config = json.loads((like / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, **other}))
    save_file(dict(tensors), target / "model.safetensors")
    return target
