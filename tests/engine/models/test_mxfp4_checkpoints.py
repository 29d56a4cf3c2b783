"""Checkpoints in MXFP4 are expanded to what transformers expands them to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from packed_checkpoints import put_experts_in_mxfp4
from safetensors.torch import load_file, save_file

from headgate.engine.errors import CheckpointError
from headgate.engine.models.quantized import expanded
from headgate.engine.models.tensors import CheckpointTensors

SCALES = "model.layers.1.mlp.experts.down_proj_scales"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A gpt-oss of two layers, its experts drawn in MXFP4."""
    config = transformers.GptOssConfig(
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        vocab_size=50,
        num_local_experts=3,
        num_experts_per_tok=2,
        pad_token_id=None,
    )
    transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(tmp_path)
    put_experts_in_mxfp4(tmp_path)
    return tmp_path


def test_weights_are_those_of_transformers(folder: Path) -> None:
    scheme = transformers.Mxfp4Config(dequantize=True)
    theirs: Any = transformers.GptOssForCausalLM.from_pretrained(folder, quantization_config=scheme)
    wanted, found = theirs.state_dict(), expanded(folder, torch.bfloat16)
    assert found.keys() == wanted.keys()
    for name, weight in wanted.items():
        assert torch.equal(found[name], weight), name
    assert CheckpointTensors(folder).parameters_named(()) == theirs.num_parameters()


def test_damage_is_named(folder: Path) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for scales, message in (
        (tensors[SCALES].clone().index_fill_(1, torch.tensor([7]), 255), "down_proj': a scale is no number"),
        (tensors[SCALES][:, :, 1:].contiguous(), r"down_proj_scales' has shape \(3, 64, 2\), .* means \(3, 64, 3\)"),
    ):
        save_file({**tensors, SCALES: scales}, path, {"format": "pt"})
        with pytest.raises(CheckpointError, match=message):
            expanded(folder, torch.bfloat16)
