"""Checkpoints in the fp8 formats of Hugging Face folders, made of plain ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from packed_checkpoints import write_shards
from safetensors.torch import load_file, save_file

from headgate.engine.quant.fp8 import Fp8Weight

BLOCKS: dict[str, Any] = {
    "quant_method": "fp8",
    "fmt": "e4m3",
    "activation_scheme": "dynamic",
    "weight_block_size": [128, 128],
}
ROWS: dict[str, Any] = {
    "quant_method": "compressed-tensors",
    "format": "float-quantized",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True, "dynamic": False},
            "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True},
        }
    },
}
ONE: dict[str, Any] = {"quant_method": "fp8", "activation_scheme": "static"}
"""A scale for each tensor, and one for its activations."""


def write_fp8(plain: Path, folder: Path, scheme: dict[str, Any], *, shards: int = 1) -> tuple[Path, Path]:
    """`folder`/fp8, in the format of a scheme above, and `folder`/twin, with the values that its weights stand for.

    All but embedding, head and routers becomes fp8.
    """
    low, expanded = folder / "fp8", folder / "twin"
    for target in (low, expanded):
        shutil.copytree(plain, target)
        (target / "model.safetensors").unlink()
    kept: dict[str, torch.Tensor] = {}
    values: dict[str, torch.Tensor] = {}
    for name, tensor in load_file(plain / "model.safetensors").items():
        kept[name] = values[name] = tensor
        if not name.endswith("_proj.weight"):
            continue
        weight = Fp8Weight.of(tensor, blocks=scheme is BLOCKS)
        if scheme is ONE:
            scale = tensor.abs().max().float() / 448
            weight = Fp8Weight((tensor / scale).to(torch.float8_e4m3fn), scale.repeat(tensor.shape[0]))
            kept[f"{name}_scale"], kept[name.replace(".weight", ".input_scale")] = scale, torch.ones(())
        elif scheme is BLOCKS:
            kept[f"{name}_scale_inv"] = weight.scales
        else:
            kept[f"{name}_scale"] = weight.scales.unsqueeze(1)
        kept[name], values[name] = weight.values, weight.expand(tensor.dtype)
    save_file(values, expanded / "model.safetensors")
    write_shards(kept, low, shards)
    config = json.loads((plain / "config.json").read_text())
    (low / "config.json").write_text(json.dumps({**config, "quantization_config": scheme}))
    return low, expanded
