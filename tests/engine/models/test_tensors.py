"""Reading a checkpoint's tensors: the values of the library's own reader, in memory only while they are needed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from headgate.engine.errors import CheckpointError
from headgate.engine.models.weights.tensors import CheckpointTensors


def mapped(path: Path) -> int:
    """KiB of the file that this process holds in memory."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    total = 0
    for line in lines:
        if line.endswith(str(path)):
            total += next(int(entry.split()[1]) for entry in lines if entry.startswith("Rss:"))
    return total


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_values_are_those_that_were_saved(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = {
        "odd": torch.randn(3).to(dtype),
        "matrix": torch.randn(5, 7).to(dtype),
        "none": torch.empty(0, 4, dtype=dtype),
        "single": torch.randn(()).to(dtype),
    }
    save_file(tensors, tmp_path / "model.safetensors")
    source = CheckpointTensors(tmp_path)
    for name, tensor in tensors.items():
        got = source.get(name, tuple(tensor.shape))
        assert got.dtype == dtype
        assert torch.equal(got, tensor)
    assert source.parameters == 3 + 35 + 1
    source.refuse_leftovers(unread=())
    with pytest.raises(CheckpointError, match=r"'else' is missing from model\.safetensors"):
        source.get("else", (1,))
    with pytest.raises(CheckpointError, match=r"'odd' has shape \(3,\), config.json means \(4,\)"):
        source.get("odd", (4,))


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="asks Linux what is in memory")
def test_released_tensors_leave_memory_and_come_back(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    first, second = torch.randn(1000, 1000), torch.randn(1000, 1000)
    save_file({"first": first, "second": second}, path)
    source = CheckpointTensors(tmp_path)
    got = source.get("first", (1000, 1000))
    assert torch.equal(got, first)
    assert torch.equal(source.get("second", (1000, 1000)), second)
    assert mapped(path) > 7000
    source.release("second")
    assert 3500 < mapped(path) < 4500
    source.release("first")
    assert mapped(path) < 500
    assert torch.equal(got, first)
    assert torch.equal(source.get("second", (1000, 1000)), second)


def test_a_whole_file_is_read_though_an_index_was_left_beside_it(tmp_path: Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"weight": "model-00001-of-00001.safetensors"}}))
    save_file({"weight": torch.zeros(2)}, tmp_path / "model-00001-of-00001.safetensors")
    assert CheckpointTensors(tmp_path).get("weight", (2,)).tolist() == [0, 0]
    save_file({"weight": torch.ones(2)}, tmp_path / "model.safetensors")
    source = CheckpointTensors(tmp_path)
    assert source.get("weight", (2,)).tolist() == [1, 1]
    assert source.files == [tmp_path / "model.safetensors"]
