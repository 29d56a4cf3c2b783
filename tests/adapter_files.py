"""LoRA adapters of random factors, in PEFT's files."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

RANK, ALPHA = 4, 10
QV = ("self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj")


def write_adapter(
    base: Path,
    folder: Path,
    targets: tuple[str, ...] = QV,
    whole: tuple[str, ...] = (),
    *,
    rank: int = RANK,
    seed: int = 5,
    **stated: Any,
) -> tuple[Path, dict[str, Tensor]]:
    """An adapter of random factors in PEFT's files, and the whole matrices that it makes of those of the checkpoint."""
    weights = load_file(base / "model.safetensors")
    generator = torch.Generator().manual_seed(seed)
    tensors: dict[str, Tensor] = {}
    merged: dict[str, Tensor] = {}
    for name, weight in weights.items():
        module = name.removesuffix(".weight")
        if module.endswith(targets):
            down = torch.randn(rank, weight.shape[1], generator=generator) / 8
            up = torch.randn(weight.shape[0], rank, generator=generator) / 8
            tensors[f"base_model.model.{module}.lora_A.weight"] = down
            tensors[f"base_model.model.{module}.lora_B.weight"] = up
            alpha = (stated.get("alpha_pattern") or {}).get(module.rpartition(".")[2], ALPHA)
            scale = alpha / (math.sqrt(rank) if stated.get("use_rslora") else rank)
            merged[name] = (weight.double() + scale * up.double() @ down.double()).float()
        elif module in whole:
            merged[name] = tensors[f"base_model.model.{name}"] = torch.randn(weight.shape, generator=generator) / 8
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": ALPHA, "bias": "none", "init_lora_weights": True}
    (folder / "adapter_config.json").write_text(json.dumps({**config, "target_modules": [*targets], **stated}))
    return folder, merged


def stating(**changes: Any) -> Callable[[Path], None]:
    """Has an adapter's configuration say these."""

    def edit(folder: Path) -> None:
        path = folder / "adapter_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return edit


def with_tensors(change: Callable[[dict[str, Tensor]], object]) -> Callable[[Path], None]:
    """Changes an adapter's tensors."""

    def edit(folder: Path) -> None:
        tensors = load_file(folder / "adapter_model.safetensors")
        change(tensors)
        save_file(tensors, folder / "adapter_model.safetensors")

    return edit
