"""Quantised weights on disk: used when they are of this checkpoint and whole, made again when they are not."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from packed_checkpoints import gptq_scheme, write_packed
from safetensors.torch import load_file, save_file
from tiny_models import MakeCheckpoint
from torch import Tensor

from headgate.engine.errors import CheckpointError
from headgate.engine.kernels.cpu.kernels import CpuKernels, native_status
from headgate.engine.kernels.interface import AttentionBatch, Kernels
from headgate.engine.kernels.mixture import MixtureWeights, PackedExperts
from headgate.engine.kv.store import KVStore
from headgate.engine.models.loader import load_decoder
from headgate.engine.quant.linear import PackedWeight, WeightFormat
from headgate.engine.quant.packed_cache import PackedCache, content_digest, layout_digest

STATUS = native_status()
native = pytest.mark.skipif(
    not (STATUS.usable and torch.ops.headgate.int8_usable()), reason=f"packed int8: {STATUS.why}"
)
TENSORS = {"a": torch.arange(30, dtype=torch.int8), "b": torch.randn(16, 4), "c": torch.ones(3, dtype=torch.bfloat16)}


def cache(folder: Path, identity: str = "one") -> PackedCache:
    return PackedCache(folder, "int8-float32", identity, sorted(folder.glob("*.safetensors")))


def path_of(folder: Path) -> Path:
    return folder / ".headgate" / "int8-float32.safetensors"


@pytest.fixture(autouse=True)
def users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    assert cache(tmp_path).load() is None
    cache(tmp_path).save(TENSORS)
    loaded = cache(tmp_path).load()
    assert loaded is not None
    assert loaded.keys() == TENSORS.keys()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in TENSORS.items())
    # Other tools read it too, and whole lines begin on lines.
    assert torch.equal(load_file(path_of(tmp_path))["b"], TENSORS["b"])
    assert loaded["b"].data_ptr() % 64 == 0
    assert os.listdir(path_of(tmp_path).parent) == [path_of(tmp_path).name]
    assert path_of(tmp_path).stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("modes", "expected"),
    [((0o644,), 0o644), ((0o600,), 0o600), ((0o640, 0o644), 0o640), ((0o640, 0o604), 0o600), ((0o444,), 0o644)],
)
def test_nobody_reads_it_who_may_not_read_the_checkpoint(tmp_path: Path, modes: tuple[int, ...], expected: int) -> None:
    for number, mode in enumerate(modes):
        file = tmp_path / f"model-{number}.safetensors"
        file.touch()
        file.chmod(mode)
    cache(tmp_path).save(TENSORS)
    assert path_of(tmp_path).stat().st_mode & 0o777 == expected


def test_in_the_users_caches_it_is_the_users_alone(tmp_path: Path, users_cache: Path) -> None:
    path_of(tmp_path).parent.parent.mkdir(exist_ok=True)
    path_of(tmp_path).parent.touch()
    cache(tmp_path).save(TENSORS)
    (kept,) = users_cache.rglob("*.safetensors")
    assert kept.stat().st_mode & 0o777 == 0o600


def test_a_user_without_a_home_keeps_it_beside_the_checkpoint_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    cache(tmp_path).save(TENSORS)
    assert cache(tmp_path).load() is not None
    path_of(tmp_path).unlink()
    path_of(tmp_path).parent.rmdir()
    path_of(tmp_path).parent.touch()
    cache(tmp_path).save(TENSORS)
    assert "not kept for the next start" in caplog.text
    assert cache(tmp_path).load() is None


def test_another_identity_is_stale_and_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    cache(tmp_path).save(TENSORS)
    assert cache(tmp_path, "two").load() is None
    assert "of another checkpoint or layout" in caplog.text
    cache(tmp_path, "two").save({"a": torch.zeros(2)})
    assert cache(tmp_path).load() is None
    assert cache(tmp_path, "two").load() is not None


def flip(data: bytes) -> bytes:
    return data[:-40] + bytes([data[-40] ^ 4]) + data[-39:]


@pytest.mark.parametrize(
    "damage", [lambda d: d[:-1], lambda d: d[:100], lambda d: d[:0], flip, lambda d: b"\xff" * len(d)]
)
def test_damage_is_noticed_and_never_fatal(
    tmp_path: Path, damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    cache(tmp_path).save(TENSORS)
    whole = path_of(tmp_path).read_bytes()
    path_of(tmp_path).write_bytes(damage(whole))
    assert cache(tmp_path).load() is None
    assert "will be made again" in caplog.text
    cache(tmp_path).save(TENSORS)
    assert path_of(tmp_path).read_bytes() == whole
    assert cache(tmp_path).load() is not None


def test_folder_that_cannot_be_written_gives_way_to_the_users(tmp_path: Path, users_cache: Path) -> None:
    checkpoint = tmp_path / "model"
    checkpoint.mkdir()
    (checkpoint / ".headgate").write_text("a file where the folder would be")
    cache(checkpoint).save(TENSORS)
    assert len(list(users_cache.rglob("*.safetensors"))) == 1
    assert cache(checkpoint).load() is not None
    other = tmp_path / "other"
    assert cache(other).load() is None


def test_full_disk_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    cache(tmp_path).save(TENSORS)
    assert "not kept for the next start" in caplog.text
    assert "No space left on device" in caplog.text
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_process_that_is_killed_while_it_writes_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda _: seen.extend(tmp_path.rglob("*")))
    cache(tmp_path).save(TENSORS)
    assert seen == [path_of(tmp_path).parent], "what was written until then has a name"


def test_where_every_file_has_a_name_it_is_written_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "O_TMPFILE")  # as on NFS
    cache(tmp_path).save(TENSORS)
    assert [*path_of(tmp_path).parent.iterdir()] == [path_of(tmp_path)]
    assert cache(tmp_path).load() is not None


def test_leftovers_of_a_killed_process_are_removed_when_old(tmp_path: Path) -> None:
    folder = path_of(tmp_path).parent
    folder.mkdir()
    old, young = folder / "x.part", folder / "y.part"
    old.touch()
    young.touch()
    os.utime(old, (time.time() - 7200, time.time() - 7200))
    cache(tmp_path).save(TENSORS)
    assert not old.exists()
    assert young.exists()


@pytest.mark.parametrize("place", ["first", "middle", "last", "header", "size", "time", "none"])
def test_content_digest(tmp_path: Path, place: str) -> None:
    path = tmp_path / "model.safetensors"
    tensor = torch.zeros(10, 4096)
    save_file({"w": tensor, "v": torch.ones(1)}, path)
    os.utime(path, (1e9, 1e9))
    before = content_digest([path])
    tensor.view(-1)[{"first": 1, "middle": 20485, "last": -1}.get(place, 0)] = 0 if place == "none" else 1
    if place in ("first", "middle", "last"):
        save_file({"w": tensor, "v": torch.ones(1)}, path)
    elif place == "header":
        save_file({"w": torch.zeros(10, 4096), "u": torch.ones(1)}, path)
    elif place == "size":
        save_file({"w": torch.zeros(10, 4097), "v": torch.ones(1)}, path)
    os.utime(path, (1e9 + 1, 1e9 + 1) if place == "time" else (1e9, 1e9))
    assert (content_digest([path]) == before) == (place == "none")


def test_layout_digest_tells_layouts_and_roundings_apart() -> None:
    def packed(packed: Tensor) -> PackedWeight:
        return PackedWeight(packed, torch.ones(1), torch.ones(1))

    digests = {
        layout_digest(packed),
        layout_digest(lambda w: packed(w.t())),
        layout_digest(lambda w: packed(w.int())),
        layout_digest(lambda w: packed(w.where(w < 127, 126))),
    }
    assert len(digests) == 4
    assert layout_digest(lambda _: None) is None


PROBE = (100, 200)


class Counting(CpuKernels):
    """Counts the weights it has to quantise, the probes aside."""

    def __init__(self, *, int8: bool = True) -> None:
        super().__init__()
        self.int8 = self.int8 and int8
        self.packed, self.packed_mixtures = 0, -1

    def pack(self, weight: Tensor, fmt: WeightFormat, importance: Tensor | None = None) -> PackedWeight | None:
        self.packed += weight.shape != PROBE
        return super().pack(weight, fmt, importance)

    def pack_experts(self, weights: MixtureWeights, fmt: WeightFormat) -> PackedExperts | None:
        self.packed_mixtures += 1
        return super().pack_experts(weights, fmt)


def logits(folder: Path, kernels: Kernels, fmt: WeightFormat) -> Tensor:
    decoder = load_decoder(folder, kernels, fmt=fmt, keep_packed=True).decoder
    store = KVStore(decoder.spec, 4, 8, decoder.dtype, torch.device("cpu"))
    places = torch.arange(30)
    batch = AttentionBatch([30], [30], [[0, 1, 2, 3]], places, 8)
    with torch.inference_mode():
        return decoder.forward(places, places, batch, store.layers, places)


@native
@pytest.mark.parametrize("fmt", ["int8", "int4"])
@pytest.mark.parametrize("model", ["qwen3-moe", "qwen2-moe"])
def test_experts_are_kept_too(make_checkpoint: MakeCheckpoint, tmp_path: Path, fmt: WeightFormat, model: str) -> None:
    folder = Path(shutil.copytree(make_checkpoint(model), tmp_path / "model"))
    first, second, third = Counting(), Counting(), Counting()
    expected = logits(folder, first, fmt)
    assert first.packed_mixtures > 0
    assert torch.equal(logits(folder, second, fmt), expected)
    assert (second.packed, second.packed_mixtures) == (0, 0)
    tensors = load_file(folder / "model.safetensors")
    name = next(name for name in tensors if "experts.1." in name and name.endswith("down_proj.weight"))
    del tensors[name]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="is missing"):
        logits(folder, third, fmt)


@native
@pytest.mark.parametrize("fmt", ["int8", "int4"])
def test_second_start_quantises_nothing_and_answers_the_same(
    make_checkpoint: MakeCheckpoint, tmp_path: Path, fmt: WeightFormat
) -> None:
    # Of heads whose features change places before they are packed.
    turned = Path(shutil.copytree(make_checkpoint("glm4"), tmp_path / "turned"))
    assert torch.equal(logits(turned, Counting(), fmt), logits(turned, Counting(), fmt))
    folder = Path(shutil.copytree(make_checkpoint("qwen3"), tmp_path / "model"))
    first, second, third = Counting(), Counting(), Counting()
    expected = logits(folder, first, fmt)
    assert first.packed == 3 * 4 + 1  # four layers in each of three blocks, and the head
    assert torch.equal(logits(folder, second, fmt), expected)
    assert second.packed == 0
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.1.self_attn.q_proj.weight"] *= 2
    save_file(tensors, folder / "model.safetensors")
    assert not torch.equal(logits(folder, third, fmt), expected)
    assert third.packed == first.packed


@native
def test_packed_checkpoints_that_differ_in_scales_only_have_caches_of_their_own(
    make_checkpoint: MakeCheckpoint, tmp_path: Path
) -> None:
    folder, _ = write_packed(make_checkpoint("qwen3-moe"), tmp_path, gptq_scheme(4, 32))
    first, second, third = Counting(), Counting(), Counting()
    expected = logits(folder, first, "int4")
    assert torch.equal(logits(folder, second, "int4"), expected)
    assert (first.packed > 0, second.packed, second.packed_mixtures) == (True, 0, 0)
    path = folder / "model.safetensors"
    times, tensors = path.stat(), load_file(path)
    tensors["model.layers.1.mlp.experts.3.up_proj.scales"] *= 2
    save_file(tensors, path)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert not torch.equal(logits(folder, third, "int4"), expected)
    assert third.packed == first.packed


@native
@pytest.mark.parametrize("fmt", ["int8", "int4"])
def test_head_of_a_large_vocabulary_is_packed_in_parts(
    make_checkpoint: MakeCheckpoint, tmp_path: Path, fmt: WeightFormat
) -> None:
    folder = Path(shutil.copytree(make_checkpoint("qwen3"), tmp_path / "model"))
    expected = logits(folder, CpuKernels(), fmt)
    tensors = load_file(folder / "model.safetensors")
    few = tensors["model.embed_tokens.weight"]
    between = torch.randn(40_003, few.shape[1], dtype=few.dtype, generator=torch.Generator().manual_seed(0))
    tensors["model.embed_tokens.weight"] = torch.cat((few, between, few))
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 2 * len(few) + len(between)}))
    kernels = Counting()
    found = logits(folder, kernels, fmt)
    assert kernels.packed == 3 * 4 + 3
    assert torch.equal(found[:, : len(few)], expected)
    assert torch.equal(found[:, -len(few) :], expected)


@native
def test_what_was_kept_in_four_bits_is_no_use_where_some_have_eight(
    make_checkpoint: MakeCheckpoint, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(make_checkpoint("qwen3-moe"), tmp_path / "model"))
    narrow = logits(folder, Counting(int8=False), "int4")
    wide, again = Counting(), Counting()
    found = logits(folder, wide, "int4")
    assert wide.packed > 0
    assert not torch.equal(found, narrow)
    assert torch.equal(logits(folder, again, "int4"), found)
    assert again.packed == 0


@native
def test_formats_are_kept_side_by_side(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(make_checkpoint("qwen3"), tmp_path / "model"))
    for fmt in ("int8", "int4", "native"):
        logits(folder, CpuKernels(), fmt)
    assert {path.name for path in (folder / ".headgate").iterdir()} == {
        "int8-float32.safetensors",
        "int4-float32.safetensors",
    }
