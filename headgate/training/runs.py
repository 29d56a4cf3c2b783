"""A training run on disk: what it was started with, the state to continue from, and a result that appears at once.

The result is `OUT`; until it is there, settings and state lie beside it in `OUT.training`.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

RECORD = "distillation.json"
"""The file that marks a result as ours: settings and losses."""
Settings = Mapping[str, str | int | float]
"""By option, without its dashes. Files stand as "sha256:..." of their contents."""


class RunError(RuntimeError):
    """The folder of a run cannot be used. The message says what to do."""


class Run:
    """The folders of one run.

    `out` is where the result goes; `settings` are the options that decide it, so a run continues only with the same.
    """

    def __init__(self, out: Path, settings: Settings) -> None:
        self.out = out.resolve()
        self.folder = self.out.with_name(f"{self.out.name}.training")
        self.state = self.folder / "state.pt"
        self._settings = dict(settings)
        self._record = self.folder / "run.json"

    def finished(self) -> dict[str, Any] | None:
        """The record of the result if it is there already, from the same settings.

        Raises `RunError` if `out` holds something else.
        """
        if not self.out.exists() or (self.out.is_dir() and not any(self.out.iterdir())):
            return None
        record = _read(self.out / RECORD)
        if record is None:
            raise RunError(f"--out {self.out}: exists and is no result of headgate distill; name another folder")
        self._compare(record, f"--out {self.out} is finished", "name another --out or delete it")
        if _read(self._record) is not None:  # the process ended between the result and this
            self._forget()
        return record

    @contextmanager
    def open(self) -> Iterator[dict[str, Any]]:
        """The run's notes, empty for a new run; `note` keeps them. No other process can open the run meanwhile.

        Raises `RunError` if another process has it open, or the folder is of another run or not ours.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / "lock").open("w")
        except OSError as error:
            raise RunError(f"--out {self.out}: {self.folder} cannot be written: {error.strerror}") from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise RunError(f"--out {self.out}: another process is training it") from None
            record = _read(self._record)
            if record is None and any(
                entry.name != "lock" and not entry.match(".*.tmp") for entry in self.folder.iterdir()
            ):
                raise RunError(f"{self.folder}: is not the state of headgate distill; name another --out")
            if record is not None:
                self._compare(record, f"{self.folder} is a run", "name another --out, or delete it to start afresh")
            # What a killed process left half written.
            for left in (*self.folder.glob(".*.tmp"), *self.out.parent.glob(f".{self.out.name}.*.tmp")):
                if left.is_dir():
                    shutil.rmtree(left)
                else:
                    left.unlink()
            try:
                yield dict((record or {}).get("notes", {}))
            finally:
                if not self._record.exists():
                    self._forget()  # a run that did not get as far as its settings leaves nothing

    def note(self, notes: Mapping[str, Any]) -> None:
        """Keeps `notes` (JSON values) with the run."""
        write_json(self._record, {"settings": self._settings, "notes": dict(notes)})

    def saved_step(self) -> int:
        """The step of the saved state, 0 without one. Raises `RunError` if the file is damaged."""
        if not self.state.exists():
            return 0
        try:
            return int(torch.load(self.state, map_location="cpu", mmap=True, weights_only=True)["step"])
        except Exception as error:  # torch raises whatever its reader meets
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise RunError(f"{self.state}: damaged ({reason}); delete {self.folder} to start afresh") from error

    def publish(self, fill: Callable[[Path], None], record: Mapping[str, Any]) -> None:
        """Fills a folder and renames it to `out`, then forgets the state; a crash leaves no half-written result."""
        temporary = self.out.with_name(f".{self.out.name}.{os.getpid()}.tmp")
        temporary.mkdir()
        try:
            fill(temporary)
            write_json(temporary / RECORD, {"settings": self._settings, **record})
            temporary.rename(self.out)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        self._forget()

    def _forget(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _compare(self, record: Mapping[str, Any], subject: str, advice: str) -> None:
        known = record.get("settings", {})
        differences = [
            f"--{name} has other contents"
            if str(value).startswith("sha256:")
            else f"--{name} is {value}, there {known.get(name)}"
            for name, value in self._settings.items()
            if known.get(name) != value
        ]
        if differences:
            raise RunError(f"{subject} with other settings: {'; '.join(differences)}; {advice}")


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A file to write that becomes `path` in the end. What breaks off leaves the old one, and nothing half written."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        with suppress(OSError):  # where nothing can be written, as on a disk that has become read-only
            temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Writes a JSON object, whole or not at all."""
    with whole(path) as file:
        file.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _read(path: Path) -> dict[str, Any] | None:
    """The record in the file; None if it is missing or is not one of ours."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) and isinstance(value.get("settings"), dict) else None
