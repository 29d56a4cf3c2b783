"""The reader of GGUF files: what the `gguf` package wrote comes back, and no damaged file does harm."""

from __future__ import annotations

import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFWriter
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.engine.errors import CheckpointError
from headgate.engine.models.gguf.file import GgufModel, read_gguf

METADATA: dict[str, Any] = {
    "llama.block_count": 3,
    "llama.rope.freq_base": 10000.0,
    "flag": True,
    "text": "Grüße",
    "tokens": ["a", "", "Ġthe", "\n"],
    "scores": [-1.5, 0.0],
    "none": [],
}
ENDLESS = 2**64 - 1


def valid(path: Path) -> bytes:
    """A small file with each type of value and of tensor."""
    writer = GGUFWriter(None, "llama")
    for add, names in (
        (writer.add_uint32, ["llama.block_count"]),
        (writer.add_float32, ["llama.rope.freq_base"]),
        (writer.add_bool, ["flag"]),
        (writer.add_string, ["text"]),
        (writer.add_array, ["tokens", "scores"]),
    ):
        for name in names:
            add(name, METADATA[name])
    writer.add_tensor("plain", np.arange(12, dtype=np.float32).reshape(3, 4))
    writer.add_tensor("half", np.arange(6, dtype=np.float16))
    writer.add_tensor("blocks", np.zeros((2, 34), np.uint8), raw_dtype=Kind.Q8_0)
    writer.write_header_to_file(path=path)
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


def read(path: Path, content: bytes) -> GgufModel:
    path.write_bytes(content)
    return read_gguf([path])


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def head(*, tensors: int = 0, keys: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys)


def tensor(name: str, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    return string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    content = valid(tmp_path / "it.gguf")
    model = read(tmp_path / "it.gguf", content)
    assert model.metadata == {"general.architecture": "llama", **{k: v for k, v in METADATA.items() if v != []}}
    assert {name: (t.shape, t.type_name) for name, t in model.tensors.items()} == {
        "plain": ((3, 4), "torch.float32"),
        "half": ((6,), "torch.float16"),
        "blocks": ((2, 32), "Q8_0"),
    }
    plain = model.tensors["plain"]
    assert np.frombuffer(content[plain.start :][: plain.nbytes], np.float32).tolist() == list(range(12))


def test_a_file_that_ends_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "it.gguf"
    content = valid(path)
    needed = max(t.start + t.nbytes for t in read_gguf([path]).tensors.values())
    for length in range(needed):
        with pytest.raises(CheckpointError, match=f"^{path}: "):
            read(path, content[:length])
    assert read(path, content[:needed]).tensors.keys() == {"plain", "half", "blocks"}


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_changed_bytes_are_read_or_refused(data: st.DataObject, tmp_path: Path) -> None:
    path = tmp_path / "it.gguf"
    content = bytearray(valid(path))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(4, len(content) - 1))
        new = data.draw(
            st.sampled_from([b"\xff", b"\x00", b"\xff" * 8, struct.pack("<Q", 2**62)]) | st.binary(max_size=9)
        )
        content[at : at + len(new)] = new
    with suppress(CheckpointError):
        model = read(path, bytes(content))
        assert all(t.start + t.nbytes <= len(content) for t in model.tensors.values())


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rest=st.binary(max_size=200), version=st.sampled_from([2, 3]), counts=st.tuples(*[st.integers(0, 3)] * 2))
def test_random_bytes_are_read_or_refused(rest: bytes, version: int, counts: tuple[int, int], tmp_path: Path) -> None:
    content = head(tensors=counts[0], keys=counts[1], version=version) + rest
    with suppress(CheckpointError):
        model = read(tmp_path / "it.gguf", content)
        assert (len(model.tensors), len(model.metadata)) == counts


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "not a readable GGUF file"),
        (b"GG", "ends within the magic"),
        (b"GGML" + bytes(40), "does not begin with 'GGUF'"),
        (head(version=1), "is of version 1; little-endian files of version 2 and 3 are read"),
        (head(version=3 << 24), "is big-endian"),
        (head(tensors=ENDLESS), f"there are {ENDLESS} tensors, which do not fit its 24 bytes"),
        (head(keys=2), "there are 2 keys, which do not fit"),
        (head(keys=1) + struct.pack("<Q", ENDLESS) + bytes(20), f"{ENDLESS} bytes of a key"),
        (head(keys=1) + string("a") + struct.pack("<II", 77, 0), "unknown type 77 for 'a'"),
        (head(keys=1) + string("a") + struct.pack("<IIQ", 9, 9, 1), "array of the unknown type 9 for 'a'"),
        (head(keys=1) + string("a") + struct.pack("<IIQ", 9, 8, ENDLESS), "strings of 'a', which do not fit"),
        (head(keys=1) + string("a") + struct.pack("<IIQ", 9, 12, 2**61), "numbers of 'a', which do not fit"),
        (head(keys=1) + string("a") + struct.pack("<IQ", 8, 2) + b"\xff\xfe", "the value of 'a' that is no UTF-8"),
        (head(keys=2) + 2 * (string("a") + struct.pack("<IB", 0, 1)), "has the key 'a' twice"),
        (head(keys=1) + string("general.alignment") + struct.pack("<II", 4, 12), "has general.alignment 12"),
        (head(tensors=1) + string("t") + struct.pack("<IQQ", 9, 0, 0), "tensor 't' of 9 dimensions"),
        (
            head(tensors=1) + tensor("t", (4,), 99, 0),
            "tensor 't' in type 99, which is not supported; F32, F16, BF16, Q4_0",
        ),
        (head(tensors=1) + tensor("t", (256,), 16, 0), "tensor 't' in IQ2_XXS, which is not supported"),
        (head(tensors=1) + tensor("t", (33,), 8, 0), r"tensor 't' of \(33,\): Q8_0 has blocks of 32"),
        (
            head(tensors=1) + tensor("t", (2**40, 2**40), 0, 0),
            "tensor 't' at 0, .* bytes long; there are 0 bytes of data",
        ),
        (head(tensors=1) + tensor("t", (1,), 0, 64) + bytes(64), "tensor 't' at 64, 4 bytes long"),
        (head(tensors=1) + tensor("t", (1,), 0, 4) + bytes(64), "tensor 't' at 4, .* in steps of 32"),
        (head(tensors=2) + 2 * tensor("t", (1,), 0, 0) + bytes(64), "has the tensor 't' twice"),
    ],
)
def test_what_is_wrong_is_said(content: bytes, told: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=f"^{tmp_path}/it.gguf: .*{told}"):
        read(tmp_path / "it.gguf", content)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"none.gguf: the file is missing"):
        read_gguf([tmp_path / "none.gguf"])
