"""The models of a distillation: what a teacher is read as."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from fp8_checkpoints import BLOCKS, ONE, ROWS, write_fp8
from packed_checkpoints import Scheme, awq_scheme, compressed_scheme, gptq_scheme, write_packed
from safetensors.torch import load_file, save_file
from tiny_models import MakeCheckpoint

from headgate.engine.models.architectures import read_spec
from headgate.engine.models.weights.tensors import read_json
from headgate.training.students import DistillError, Job, load_teacher

SIZES = {"hidden_size": 128, "intermediate_size": 128}


def loaded(folder: Path) -> dict[str, torch.Tensor]:
    job = Job(str(folder), Path("student.json"), Path("data.jsonl"), Path("out"))
    model: Any = load_teacher(transformers, job, folder, read_spec(read_json(folder / "config.json")))
    weights: dict[str, torch.Tensor] = model.state_dict()
    return weights


@pytest.mark.parametrize("scheme", [BLOCKS, ROWS, ONE], ids=["blocks", "rows", "one"])
@pytest.mark.parametrize("family", ["qwen3", "qwen3-moe"])
def test_a_teacher_in_fp8_is_what_its_weights_stand_for(
    family: str, scheme: dict[str, Any], tmp_path: Path, make_checkpoint: MakeCheckpoint
) -> None:
    low, twin = write_fp8(make_checkpoint(family, **SIZES), tmp_path, scheme)
    given, wanted = loaded(low), loaded(twin)
    assert given.keys() == wanted.keys()
    for name, weight in wanted.items():
        assert given[name].dtype == weight.dtype
        assert torch.equal(given[name], weight), name


@pytest.mark.parametrize(
    ("family", "scheme"),
    [("qwen3", gptq_scheme(4, 32)), ("qwen3-moe", awq_scheme(32)), ("mixtral", compressed_scheme(8, -1, packed=False))],
    ids=["gptq", "awq", "bytes"],
)
def test_a_teacher_of_packed_integers_is_what_its_weights_stand_for(
    family: str, scheme: Scheme, tmp_path: Path, make_checkpoint: MakeCheckpoint
) -> None:
    packed, twin = write_packed(make_checkpoint(family), tmp_path, scheme)
    if family == "mixtral":
        # The key of compressed-tensors' first checkpoints.
        path = packed / "config.json"
        path.write_text(path.read_text().replace("quantization_config", "compression_config"))
    given, wanted = loaded(packed), loaded(twin)
    assert given.keys() == wanted.keys()
    assert all(torch.equal(given[name], weight) for name, weight in wanted.items())


def test_a_teacher_in_fp8_without_a_scale_or_a_weight_is_refused(
    tmp_path: Path, make_checkpoint: MakeCheckpoint
) -> None:
    low, _ = write_fp8(make_checkpoint("qwen3", **SIZES), tmp_path, BLOCKS)
    path = low / "model.safetensors"
    weights = load_file(path)
    for name, problem in (
        ("model.layers.0.mlp.up_proj.weight_scale_inv", "cannot be loaded: .*'model.layers.0.mlp.up_proj.weight' has"),
        ("model.layers.1.mlp.down_proj.weight", "missing keys: model.layers.1.mlp.down_proj.weight"),
    ):
        save_file({key: weight for key, weight in weights.items() if key != name}, path, {"format": "pt"})
        with pytest.raises(DistillError, match=problem):
            loaded(low)
