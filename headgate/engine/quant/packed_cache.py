"""Quantised weights on disk beside their checkpoint, so that the next start maps them instead of quantising again.

One safetensors file per format and dtype, `<checkpoint>/.headgate/int4-bfloat16.safetensors`, or in the user's cache
folder where the checkpoint's cannot be written. It is written without a name, or under another, and renamed, so it is
whole or not there. It names what it was made of (`identity`); another checkpoint, format or layout is stale and is
replaced. It also holds a sum over every tensor's words: a damaged file is made again. No failure here keeps a model
from loading.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import struct
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from headgate.engine.quant.linear import PackedWeight

logger = logging.getLogger(__name__)

_WINDOW = 4096
_PLACES = 256
# Kernels load 64 bytes at a time; a tensor that starts elsewhere makes every load touch two lines of the cache.
_ALIGNMENT = 64
# Unfinished files older than this are nobody's any more.
_ABANDONED_S = 3600.0
_NAMES = {
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.int32: "I32",
    torch.int8: "I8",
    torch.uint8: "U8",
}


def content_digest(files: Sequence[Path]) -> str:
    """Hex digest of weight files that is quick to take.

    It covers each file's name, size and modification time, its whole safetensors header (every tensor's name, dtype,
    shape and place), and of every tensor the first, the middle and the last 4096 bytes; of files of another kind 4096
    bytes at 256 places. What it misses is a change of other bytes that keeps size and time.

    Raises:
        OSError, ValueError: a file cannot be read, or its safetensors header is damaged.
    """
    digest = sha256()
    for path in files:
        stat = path.stat()
        digest.update(f"{path.name}:{stat.st_size}:{stat.st_mtime_ns}:".encode())
        with path.open("rb") as file:
            if path.suffix != ".safetensors":
                for place in range(_PLACES):
                    at = max(0, stat.st_size - _WINDOW) * place // (_PLACES - 1)
                    digest.update(os.pread(file.fileno(), _WINDOW, at))
                continue
            length = struct.unpack("<Q", file.read(8))[0]
            if length > stat.st_size - 8:
                raise ValueError(f"{path}: the header's length {length} exceeds the file")
            header = file.read(length)
            digest.update(header)
            for name, entry in json.loads(header).items():
                if name == "__metadata__":
                    continue
                start, stop = (8 + length + offset for offset in entry["data_offsets"])
                for at in (start, (start + stop) // 2, max(start, stop - _WINDOW)):
                    digest.update(os.pread(file.fileno(), min(_WINDOW, stop - at), at))
    return digest.hexdigest()


def layout_digest(pack: Callable[[Tensor], PackedWeight | None]) -> str | None:
    """Hex digest of how `pack` rounds and lays out a weight; None where it does not.

    Taken from what becomes of a probe, so that no change of a kernel can be forgotten. The probe's values are whole and
    its scale is one: every instruction set rounds them alike.
    """
    probe = (torch.arange(100 * 200) * 7919 % 255 - 127).view(100, 200).float()
    probe[:, 0] = 127
    packed = pack(probe)
    if packed is None:
        return None
    digest = sha256()
    for part in (packed.packed, packed.scales, packed.shift):
        digest.update(f"{part.dtype}{tuple(part.shape)}".encode())
        digest.update(part.contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


class PackedCache:
    """The file for one checkpoint, format and dtype."""

    def __init__(self, checkpoint: Path, name: str, identity: str, files: Sequence[Path]) -> None:
        """`name` of the file, without suffix; `identity` of what the tensors are made from, and how.

        `files` are those of the checkpoint's weights: who may not read them all may not read this one.
        """
        # The path keeps checkpoints apart that share the user's cache folder.
        place = sha256(str(checkpoint.resolve()).encode()).hexdigest()[:16]
        self._beside = checkpoint / ".headgate"
        folders = [self._beside]
        if (caches := users_caches()) is not None:
            folders.append(caches / "headgate" / "weights" / place)
        self._candidates = [folder / f"{name}.safetensors" for folder in folders]
        self._identity = identity
        self._files = files

    def load(self) -> dict[str, Tensor] | None:
        """The tensors, memory-mapped; None if there is no file for this identity that is whole."""
        for path in self._candidates:
            started = time.perf_counter()
            try:
                tensors = self._read(path)
            except FileNotFoundError:
                continue
            except (SafetensorError, OSError, ValueError, KeyError, RuntimeError) as error:
                logger.warning("quantized weights in %s are of no use and will be made again: %s", path, error)
                continue
            if tensors is None:
                logger.info("quantized weights in %s are of another checkpoint or layout", path)
                continue
            size = sum(tensor.nbytes for tensor in tensors.values())
            seconds = time.perf_counter() - started
            logger.info("quantized weights read from %s: %.0f MB in %.2f s", path, size / 1e6, seconds)
            return tensors
        return None

    def save(self, tensors: Mapping[str, Tensor]) -> None:
        """Write the file where that can be done; the log says where, or why not."""
        # Tensors of whole lines first: they keep each other aligned.
        ordered = dict(sorted(tensors.items(), key=lambda item: item[1].nbytes % _ALIGNMENT != 0))
        refusals = []
        for path in self._candidates:
            started = time.perf_counter()
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                _remove_abandoned(path.parent)
                # Elsewhere no folder of the checkpoint's guards it: there it is the user's alone.
                _write(path, ordered, self._identity, self._files if path.parent == self._beside else None)
            except OSError as error:
                refusals.append(f"{path}: {error.strerror or error}")
                continue
            logger.info("quantized weights written to %s in %.2f s", path, time.perf_counter() - started)
            return
        logger.warning("quantized weights are not kept for the next start: %s", "; ".join(refusals))

    def _read(self, path: Path) -> dict[str, Tensor] | None:
        with safe_open(path, framework="pt", device="cpu") as file:
            metadata = file.metadata() or {}
            if metadata.get("identity") != self._identity:
                return None
            sums = json.loads(metadata["sums"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is no mapping
        if sums.keys() != tensors.keys():
            raise ValueError("tensors are missing")
        for name, tensor in tensors.items():
            if _sum(tensor) != sums[name]:
                raise ValueError(f"tensor {name!r} is damaged")
        return tensors


def _sum(tensor: Tensor) -> int:
    """Of the tensor's words, modulo 2^64: any one changed word shows. As fast as memory can be read."""
    words = tensor.flatten().view(torch.uint8)
    whole = words.numel() // 8 * 8
    return int(words[:whole].view(torch.int64).sum()) + int(words[whole:].sum())


def users_caches() -> Path | None:
    """Where the user's caches are; None for one without a home, as in containers that run under any number."""
    if stated := os.environ.get("XDG_CACHE_HOME"):
        return Path(stated)
    try:
        return Path.home() / ".cache"
    except RuntimeError:
        return None


def _permissions(files: Sequence[Path], group: int) -> int:
    """The mode of a file of this group that nobody else reads than who may read all of `files`."""
    mode = 0o644
    for stat in [file.stat() for file in files]:
        group_reads = stat.st_mode & 0o040 and (stat.st_gid == group or stat.st_mode & 0o004)
        mode &= 0o600 | (stat.st_mode & 0o004) | (0o040 if group_reads else 0)
    return mode


def _write(path: Path, tensors: Mapping[str, Tensor], identity: str, files: Sequence[Path] | None) -> None:
    """The safetensors format, with the data on a boundary of `_ALIGNMENT` (its library gives no say in that)."""
    header: dict[str, object] = {
        "__metadata__": {"identity": identity, "sums": json.dumps({name: _sum(t) for name, t in tensors.items()})}
    }
    offset = 0
    for name, tensor in tensors.items():
        span = [offset, offset + tensor.nbytes]
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": span}
        offset += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    descriptor, unfinished = _unfinished(path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for tensor in tensors.values():
                file.write(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
            file.flush()
            os.fsync(file.fileno())
            if files is not None:
                # A temporary file is its owner's alone; who may read the checkpoint may read this.
                os.fchmod(file.fileno(), _permissions(files, os.fstat(file.fileno()).st_gid))
            if unfinished is None:
                unfinished = path.with_name(f"{secrets.token_hex(8)}.part")  # nothing else takes the place of a file
                os.link(
                    f"/proc/self/fd/{file.fileno()}", unfinished, src_dir_fd=file.fileno()
                )  # else the link is linked
        unfinished.replace(path)
    except BaseException:
        if unfinished is not None:
            unfinished.unlink(missing_ok=True)
        raise


def _unfinished(folder: Path) -> tuple[int, Path | None]:
    """A file to write, and its name: none where there can be one without, of which nothing is left if we are ended."""
    if hasattr(os, "O_TMPFILE") and Path("/proc/self/fd").exists():
        with suppress(OSError):  # a file system that has no such files, or is full, which the next says
            return os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600), None
    descriptor, name = tempfile.mkstemp(dir=folder, suffix=".part")
    return descriptor, Path(name)


def _remove_abandoned(folder: Path) -> None:
    """What a process that was killed while it wrote left behind."""
    for path in folder.glob("*.part"):
        if time.time() - path.stat().st_mtime > _ABANDONED_S:
            path.unlink(missing_ok=True)
