"""fp8 checkpoints give, where they are expanded, what a checkpoint of the same values gives."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fp8_checkpoints import BLOCKS, ONE, ROWS, write_fp8
from safetensors.torch import load_file, save_file
from tiny_models import MakeCheckpoint

from headgate.engine.errors import CheckpointError
from headgate.engine.kernels.interface import AttentionBatch
from headgate.engine.kernels.reference import ReferenceKernels
from headgate.engine.kv.store import KVStore
from headgate.engine.models.loader import LoadedDecoder, load_decoder
from headgate.engine.models.loading import read_facts

CPU = torch.device("cpu")


def logits(loaded: LoadedDecoder) -> torch.Tensor:
    decoder, tokens = loaded.decoder, torch.arange(3, 23)
    store = KVStore(decoder.spec, 3, 8, torch.float32, CPU)
    batch = AttentionBatch([20], [20], [[0, 1, 2]], torch.arange(20), 8)
    with torch.inference_mode():
        return decoder.forward(tokens, torch.arange(20), batch, store.layers, torch.arange(20))


@pytest.mark.parametrize("scheme", [BLOCKS, ROWS, ONE], ids=["blocks", "rows", "one"])
@pytest.mark.parametrize("architecture", ["qwen3", "qwen3-moe", "qwen2-moe"])
def test_expanded_weights_are_those_of_the_twin(
    architecture: str, scheme: dict[str, Any], make_checkpoint: MakeCheckpoint, tmp_path: Path
) -> None:
    low, twin = write_fp8(make_checkpoint(architecture), tmp_path, scheme, shards=3)
    told: list[tuple[int, int]] = []
    ours = load_decoder(low, ReferenceKernels(), progress=lambda *layers: told.append(layers))
    theirs = load_decoder(twin, ReferenceKernels())
    # Products sum in an order of their own where a mapped tensor begins elsewhere.
    torch.testing.assert_close(logits(ours), logits(theirs), rtol=0, atol=1e-5)
    assert told == [(1, 3), (2, 3), (3, 3)]
    if scheme is not ONE:
        # Scales are no parameters.
        assert ours.parameters == theirs.parameters == read_facts(low).parameters


def test_another_format_rounds_what_fp8_stands_for(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    low, twin = write_fp8(make_checkpoint("qwen3-moe"), tmp_path, BLOCKS)
    ours, theirs = (load_decoder(folder, ReferenceKernels(), fmt="int8") for folder in (low, twin))
    torch.testing.assert_close(logits(ours), logits(theirs), rtol=0, atol=1e-5)


def with_scheme(**changes: Any) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / "config.json"
        config = json.loads(path.read_text())
        config["quantization_config"] |= changes
        path.write_text(json.dumps(config))

    return edit


def with_scale(scale: torch.Tensor | None) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        name = "model.layers.0.mlp.down_proj.weight_scale_inv"
        del tensors[name]
        save_file(tensors if scale is None else {**tensors, name: scale}, folder / "model.safetensors")

    return edit


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            with_scheme(weight_block_size=[64, 128]),
            r"blocks of \[64, 128\] is not supported; they must be \[128, 128\]",
        ),
        (with_scale(None), r"fp8 tensor 'model\.layers\.0\.mlp\.down_proj\.weight' has neither .*_scale_inv nor"),
        (with_scale(torch.ones(2, 2)), r"has shape \(2, 2\); scales of \(64, 96\) are one, 64 or \(1, 1\)"),
    ],
)
def test_damage_is_named(
    damage: Callable[[Path], None], message: str, make_checkpoint: MakeCheckpoint, tmp_path: Path
) -> None:
    folder, _ = write_fp8(make_checkpoint("qwen3"), tmp_path, BLOCKS)
    damage(folder)
    with pytest.raises(CheckpointError, match=message):
        load_decoder(folder, ReferenceKernels())
