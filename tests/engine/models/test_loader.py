"""Checkpoints that are whole load the same from one file or many; damaged ones say what is wrong and where."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import MakeCheckpoint

from headgate.engine.errors import CheckpointError, UnknownArchitecture
from headgate.engine.kernels.reference import ReferenceKernels
from headgate.engine.models.loader import LoadedDecoder, load_decoder


def load(folder: Path) -> LoadedDecoder:
    return load_decoder(folder, ReferenceKernels())


@pytest.fixture
def folder(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> Path:
    return Path(shutil.copytree(make_checkpoint("qwen3-moe"), tmp_path / "model"))


def test_sharded_equals_whole(make_checkpoint: MakeCheckpoint) -> None:
    whole, sharded = make_checkpoint("qwen2-moe"), make_checkpoint("qwen2-moe", shard="100KB")
    assert len(list(sharded.glob("*.safetensors"))) > 2
    assert load(whole).parameters == load(sharded).parameters
    assert load(whole).decoder.weight_bytes == load(sharded).decoder.weight_bytes
    assert load(whole).revision != load(sharded).revision


def test_counts_parameters(make_checkpoint: MakeCheckpoint) -> None:
    loaded = load(make_checkpoint("qwen3-moe"))
    tensors = load_file(make_checkpoint("qwen3-moe") / "model.safetensors")
    assert loaded.parameters == sum(t.numel() for t in tensors.values())
    # Two of three layers have experts, of which 2 in 6 are chosen.
    assert loaded.parameters - loaded.active_parameters == 2 * 4 * 3 * 64 * 32


def edit_tensors(change: Callable[[dict[str, torch.Tensor]], None]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors")

    return edit


def edit_config(**changes: object) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return edit


def edit_rope(**changes: object) -> Callable[[Path], None]:
    return edit_config(rope_parameters={"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4, **changes})


def edit_scheme(**changes: object) -> Callable[[Path], None]:
    return edit_config(quantization_config={"quant_method": "compressed-tensors", **changes})


def truncate(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


ROUTER = "model.layers.1.mlp.gate.weight"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncate, r"model\.safetensors: not a readable safetensors file"),
        (lambda f: (f / "model.safetensors").unlink(), r"model\.safetensors: the file is missing"),
        (lambda f: (f / "config.json").unlink(), r"config\.json: the file is missing"),
        (lambda f: (f / "config.json").write_text("{"), r"config\.json: cannot be read"),
        (lambda f: (f / "config.json").write_text("[]"), r"config\.json: must hold a JSON object, holds list"),
        (edit_tensors(lambda t: t.pop(ROUTER)), rf"tensor '{ROUTER}' is missing from model\.safetensors"),
        (
            edit_tensors(lambda t: t.update({ROUTER: torch.ones(6, 65)})),
            rf"model\.safetensors: tensor '{ROUTER}' has shape \(6, 65\), config\.json means \(6, 64\)",
        ),
        (
            edit_tensors(lambda t: t.update({ROUTER: torch.ones(6, 64, dtype=torch.int32)})),
            rf"tensor '{ROUTER}' has dtype torch\.int32, floating point is needed",
        ),
        (
            edit_tensors(lambda t: t.update({"model.layers.0.adapter": torch.ones(2)})),
            r"tensor 'model\.layers\.0\.adapter' and 0 more belong to no part",
        ),
        (edit_config(hidden_size="64"), r"hidden_size must be a positive integer, got '64'"),
        (edit_config(num_hidden_layers=10**30), r"num_hidden_layers must be at most 10000, got 10{30}"),
        (
            edit_config(max_position_embeddings=10**30),
            r"max_position_embeddings must be at most 2147483647, got 10{30}",
        ),
        (edit_config(rms_norm_eps=10**400), r"rms_norm_eps must be a positive number, got 10{400}"),
        (edit_config(hidden_act="gelu"), r"hidden_act 'gelu' is not supported"),
        (edit_config(num_key_value_heads=3), r"num_attention_heads \(4\) must be a multiple"),
        (edit_config(quantization_config={"quant_method": "hqq"}), r"quantization_config 'hqq' is not supported"),
        (edit_config(rope_parameters={"rope_type": "dynamic"}), r"rope type 'dynamic' is not one of default"),
        (edit_config(rope_parameters={"rope_type": "longrope"}), r"short_factor must be a list of 16 positive numbers"),
        (edit_config(partial_rotary_factor=0.5), r"partial_rotary_factor other than 1\.0 is not supported for this"),
        (edit_config(num_key_value_heads=0), r"num_key_value_heads must be a positive integer, got 0"),
        (edit_config(num_key_value_heads="2"), r"num_key_value_heads must be a positive integer, got '2'"),
        (edit_config(head_dim=1.5), r"head_dim must be a positive integer, got 1\.5"),
        (edit_config(rms_norm_eps="1e-6"), r"rms_norm_eps must be a positive number, got '1e-6'"),
        (edit_config(rope_parameters="linear"), r"rope_parameters must be an object, got 'linear'"),
        (edit_rope(factor=0), r"rope_parameters\.factor must be a positive number, got 0"),
        (edit_rope(factor=None), r"rope_parameters\.factor must be a positive number, got None"),
        (edit_rope(rope_theta=1), r"rope_parameters\.rope_theta must be a number above 1, got 1"),
        (edit_rope(original_max_position_embeddings="64"), r"original_max_position_embeddings must be a positive int"),
        (
            edit_config(sliding_window=8, use_sliding_window=True, layer_types=["full_attention"]),
            r"layer_types must be",
        ),
        (edit_config(sliding_window=8, use_sliding_window=True, layer_types=["sideways"] * 3), r"layer_types must be"),
        (edit_config(num_experts_per_tok=7), r"num_experts_per_tok must be 6 at most, which is .*, got 7"),
        (edit_config(decoder_sparse_step=0), r"decoder_sparse_step must be a positive integer, got 0"),
        (edit_config(mlp_only_layers=1), r"mlp_only_layers must be a list of layers, got 1"),
        (edit_scheme(config_groups={"group_0": None}), r"config_groups must be an object of objects.*got"),
        (edit_scheme(config_groups=[1]), r"config_groups must be an object of objects.*got \[1\]"),
        (edit_scheme(config_groups={"group_0": {"weights": 8}}), r"config_groups must be an object of objects"),
        (edit_scheme(quant_method="fp8", weight_block_size=128), r"blocks of 128 is not supported; they must be \["),
    ],
)
def test_damage_is_named(folder: Path, damage: Callable[[Path], object], message: str) -> None:
    load(folder)
    damage(folder)
    with pytest.raises(CheckpointError, match=message):
        load(folder)


def test_unknown_architecture_lists_the_known(folder: Path) -> None:
    edit_config(architectures=["MambaForCausalLM"])(folder)
    with pytest.raises(
        UnknownArchitecture,
        match=r"'MambaForCausalLM' is not known; known are ArceeForCausalLM, .*LlamaForCausalLM, .*",
    ):
        load(folder)


def test_missing_shard_is_named(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(make_checkpoint("qwen2-moe", shard="100KB"), tmp_path / "model"))
    shard = sorted(folder.glob("model-*.safetensors"))[1]
    shard.unlink()
    with pytest.raises(CheckpointError, match=rf"{shard.name}: the file is missing"):
        load(folder)
