"""The tiers of an engine's models as its settings say, and what a record must be of to be found by another process."""

from __future__ import annotations

import json
import platform
import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

import torch

from headgate import __version__
from headgate.engine.device import computing_on
from headgate.engine.errors import CheckpointError
from headgate.engine.kv.beside import BesideThread
from headgate.engine.kv.disk import DiskFolder
from headgate.engine.kv.shelf import Shelf, host_rows
from headgate.engine.kv.tables import KVTables
from headgate.engine.kv.tiers import Call, Tiers
from headgate.engine.models.identity import checkpoint_identity
from headgate.engine.models.loader import LoadedDecoder

_PASSING_BYTES = 128 << 20
"""Host memory through which a model's records come and go at most: what a step may copy, what may wait for a disk."""
_LEAST_ROWS = 4


class Tiering:
    """Opens tiers, and closes them."""

    def __init__(
        self, device: torch.device, *, host_bytes: int, disk_path: Path | None, disk_bytes: int, call: Call
    ) -> None:
        """Take the folder, if there is to be one, until `close`.

        Raises:
            KVFolderError: see DiskFolder.
        """
        self._device = device
        self._host_bytes = host_bytes
        self._call = call
        self._folder = None if disk_path is None else DiskFolder(disk_path, disk_bytes)
        self._tiers: list[Tiers] = []

    @property
    def wanted(self) -> bool:
        """Whether there are any."""
        return self._host_bytes > 0 or self._folder is not None

    @property
    def key(self) -> bytes:
        """The secret of blocks' identities: the folder's, or one of this process."""
        return secrets.token_bytes(32) if self._folder is None else self._folder.key

    def mark(self, made_of: Callable[[], Sequence[object]]) -> str:
        """What tells keys and values of one model, and of one way to compute it, from all others; "" without a disk."""
        if self._folder is None:
            return ""
        packages = [__version__, *map(version, ("torch", "transformers"))]
        return sha256(json.dumps([packages, self._computer, *made_of()]).encode()).hexdigest()

    @property
    def _computer(self) -> str:
        on_gpu = self._device.type == "cuda"
        return torch.cuda.get_device_name(self._device) if on_gpu else platform.machine()

    def open(self, tables: KVTables, mark: str, nbytes: int, all_nbytes: int) -> Tiers | None:
        """The tiers of a model whose blocks take so many bytes, and one block of each model so many.

        Raises:
            KVFolderError, CheckpointError: a tier holds no block.
        """
        if not self.wanted or not tables.shares:
            return None
        disk = None if self._folder is None else self._folder.tier(mark[:32], nbytes)
        kept = self._host_bytes // all_nbytes
        if self._host_bytes and not kept:
            raise CheckpointError(f"kv_host_bytes {self._host_bytes} holds no block; {all_nbytes} is the least, or 0")
        passing = max(_LEAST_ROWS, _PASSING_BYTES // nbytes)
        rows = max(kept, passing if disk is not None else 0)
        tiers = Tiers(
            tables,
            Shelf(host_rows(rows, nbytes, pinned=self._device.type == "cuda")),
            disk,
            call=self._call,
            beside=BesideThread(self._on_device),
            keeps=kept > 0,
            most_queued=min(passing, rows),
        )
        self._tiers.append(tiers)
        return tiers

    def close(self) -> None:
        """Once there are no more steps: write for a few seconds, and leave the folder to others."""
        with self._on_device(), torch.inference_mode():
            for tiers in self._tiers:
                tiers.close()
        self._tiers.clear()
        if self._folder is not None:
            self._folder.close()
            self._folder = None

    def _on_device(self) -> AbstractContextManager[object]:
        return computing_on(self._device)


def model_parts(path: Path, loaded: LoadedDecoder, *how: object) -> Callable[[], Sequence[object]]:
    """What a model's keys and values depend on: for `Tiering.mark`. `how`: it is computed."""

    spec, dtype, revision = loaded.decoder.spec, str(loaded.decoder.dtype), loaded.revision
    shape = [spec.architecture, [list(each) for each in spec.kv_shapes], spec.context_length]
    return lambda: [revision, checkpoint_identity(path), shape, dtype, *how]
