"""A checkpoint in vLLM's 8-bit format for CPUs: compressed-tensors, int8 weights, dynamic int8 activations."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file

from headgate.engine.quant.linear import quantize_rows

_SCHEME = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head", "re:.*mlp.gate$"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False},
            "input_activations": {
                "num_bits": 8,
                "type": "int",
                "symmetric": True,
                "strategy": "token",
                "dynamic": True,
            },
        }
    },
}


def write_w8a8(checkpoint: Path, target: Path) -> None:
    """Write `target`, a folder, from a bfloat16 checkpoint of one file. The head stays in bfloat16."""
    target.mkdir(parents=True, exist_ok=True)
    tensors = {}
    with safe_open(checkpoint / "model.safetensors", "pt") as source:
        for name in source.keys():  # noqa: SIM118  not a mapping
            tensor = source.get_tensor(name)
            if name.endswith("_proj.weight"):
                tensor, scale = quantize_rows(tensor)
                tensors[f"{name}_scale"] = scale.bfloat16()
            tensors[name] = tensor
    save_file(tensors, target / "model.safetensors")
    for file in checkpoint.glob("*.json"):
        shutil.copy(file, target / file.name)
    config = json.loads((checkpoint / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, "quantization_config": _SCHEME}, indent=1))
