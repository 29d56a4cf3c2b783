"""Blocks of GGUF files, expanded bit for bit as llama.cpp's own package expands them."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind

from headgate.engine.errors import CheckpointError
from headgate.engine.quant.ggml import BLOCK_TYPES, OTHER_TYPES, PLAIN_TYPES, BlockType, GgmlWeight

HALVES = np.array([0.0, -0.0, 6e-8, -6e-8, 6.1e-5, 1.0, -1.0, 65504.0, -65504.0, np.inf, -np.inf, np.nan], np.float16)


def random_blocks(kind: BlockType, count: int) -> np.ndarray:
    """Any bytes, and blocks with each edge of half precision wherever a scale may be."""
    blocks = np.random.default_rng(7).integers(0, 256, (count, kind.nbytes), dtype=np.uint8)
    for number, half in enumerate(HALVES):
        for at in (0, 2, kind.nbytes - 4, kind.nbytes - 2):
            blocks[4 * number + at % 4, at : at + 2] = np.frombuffer(half.tobytes(), np.uint8)
    return blocks


@pytest.mark.parametrize(("number", "kind"), BLOCK_TYPES.items(), ids=lambda value: getattr(value, "name", ""))
def test_blocks_are_what_llama_cpp_has(number: int, kind: BlockType) -> None:
    assert kind.name == Kind(number).name
    assert (kind.numbers, kind.nbytes) == gguf.GGML_QUANT_SIZES[Kind(number)]
    blocks = random_blocks(kind, 600)
    with np.errstate(all="ignore"):
        expected = np.array(gguf.quants.dequantize(blocks, Kind(number)), np.float32)
    found = kind.expand(torch.from_numpy(blocks)).numpy()
    finite = np.isfinite(expected)
    assert finite.mean() > 0.8
    np.testing.assert_array_equal(np.isfinite(found), finite)
    # As words: zeros have signs.
    np.testing.assert_array_equal(found[finite].view(np.uint32), expected[finite].view(np.uint32))


def test_every_type_of_the_package_is_read_or_named() -> None:
    assert {number.value for number in Kind} == {*BLOCK_TYPES, *PLAIN_TYPES, *OTHER_TYPES}
    assert all(Kind(number).name == name for number, name in OTHER_TYPES.items())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_are_expanded_in_parts_and_in_their_order(dtype: torch.dtype) -> None:
    kind, generator = BLOCK_TYPES[Kind.Q4_K], np.random.default_rng(3)
    rows = generator.integers(0, 60, (700, 8 * kind.nbytes), dtype=np.uint8)  # of 2,048 inputs: several parts
    order = torch.from_numpy(generator.permutation(700))
    weight = GgmlWeight("it", kind, torch.from_numpy(rows), order).to(torch.device("cpu")).expand(dtype)
    expected = torch.from_numpy(np.array(gguf.quants.dequantize(rows, Kind.Q4_K)))
    torch.testing.assert_close(weight, expected[order].to(dtype), atol=0, rtol=0)


def test_a_scale_that_is_no_number_is_damage() -> None:
    rows = torch.zeros(3, 34, dtype=torch.uint8)
    rows[1, :2] = torch.tensor([0, 0x7E], dtype=torch.uint8)
    with pytest.raises(CheckpointError, match=r"model\.gguf: a scale is no finite number; the file is damaged"):
        GgmlWeight("model.gguf", BLOCK_TYPES[Kind.Q8_0], rows).expand(torch.float32)
