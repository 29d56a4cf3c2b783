"""Making, rotating and revoking API keys: edits of team files that keep whatever else is in them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from headgate.gateway.configuration.document import Document
from headgate.gateway.settings import Settings
from headgate.gateway.teams.files import read_files, team_paths
from headgate.gateway.teams.keys import hash_secret, new_secret
from headgate.gateway.teams.sections import Role, TeamFile, TeamKeySection
from headgate.gateway.wire.key_admin import MOST_GRACE_S

OLD = ".old"
"""Behind the id of a key whose secret was rotated and still holds for a while."""


class KeyStoreError(Exception):
    """A key cannot be made, rotated or revoked; the message says why."""


class KeysUnwritableError(KeyStoreError):
    """The disk does not take a team file, as when it is full."""


@dataclass(frozen=True, slots=True)
class MadeKey:
    """A key just made. The secret is known here and nowhere else."""

    id: str
    team: str
    file: Path
    secret: str


class KeyStore:
    """The keys in a folder of team files. Who else writes them waits; who reads them sees the old or the new file."""

    def __init__(self, settings: Settings, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """Of the configured folder, which is made with the first key."""
        self._settings = settings
        self._now = now

    def keys(self) -> list[tuple[str, TeamKeySection]]:
        """Every key with its team, by team and as the files have them; ConfigError where a file is wrong."""
        return [(file.team.name, key) for _, file in read_files(self._settings) for key in file.keys]

    def create(self, team: str, key_id: str, role: Role = "member", expires: datetime | None = None) -> MadeKey:
        """A new key of a team, whose file is made with its first.

        Raises:
            KeyStoreError: the id is taken, or no such key may be.
            KeysUnwritableError: the disk does not take it.
            ConfigError: a team file is wrong.
        """
        with self._locked() as folder:
            files = read_files(self._settings)
            for document, file in files:
                if any(key.id == key_id for key in file.keys):
                    raise KeyStoreError(f"there is a key '{key_id}' already, in {document.path}")
            secret = new_secret()
            entry = self._entry(key_id, secret, role, expires)
            found = next((document for document, file in files if file.team.name == team), None)
            if found is None:
                path = folder / f"{team}.yaml"
                if path.exists():
                    raise KeyStoreError(f"{path} is there already, as the file of another team")
                found = Document(path, yaml.safe_dump({"team": {"name": team}}), {"team": {"name": team}})
            self._write(found, [*(found.tree.get("keys") or ()), entry])
            assert found.path is not None, "it is a file's"
            return MadeKey(key_id, team, found.path, secret)

    def rotate(self, key_id: str, grace_s: float = 0.0) -> MadeKey:
        """Give a key a new secret. The one it had holds for so many seconds more, as the key `ID.old`.

        Raises:
            KeyStoreError: there is no such key, or its secret is not kept here, or the old one cannot hold for so long.
            KeysUnwritableError: the disk does not take it.
            ConfigError: a team file is wrong.
        """
        if not 0 <= grace_s <= MOST_GRACE_S:
            raise KeyStoreError(f"the old secret cannot hold for {grace_s:g} s; expected 0 to {MOST_GRACE_S}")
        with self._locked():
            document, file, at = self._found(key_id)
            for other, their in read_files(self._settings) if grace_s > 0 else ():
                if other.path != document.path and any(key.id == key_id + OLD for key in their.keys):
                    raise KeyStoreError(f"the old secret would be the key '{key_id}{OLD}', which {other.path} has")
            if file.keys[at].hash is None:
                raise KeyStoreError(f"the secret of '{key_id}' is at {file.keys[at].secret}; change it there")
            secret = new_secret()
            entries = [dict(entry) for entry in document.tree["keys"]]
            before = dict(entries[at])
            entries[at] |= {"hash": hash_secret(secret), "created": self._now().replace(microsecond=0)}
            entries = [entry for entry in entries if entry["id"] != key_id + OLD]
            if grace_s > 0:
                ends = self._now().replace(microsecond=0) + timedelta(seconds=grace_s)
                own = file.keys[at].expires
                entries.append(before | {"id": key_id + OLD, "expires": ends if own is None else min(ends, own)})
            self._write(document, entries)
            assert document.path is not None, "it is a file's"
            return MadeKey(key_id, file.team.name, document.path, secret)

    def revoke(self, key_id: str) -> Path:
        """Take a key out of its file, which is given back, and what a rotation left of it.

        Raises:
            KeyStoreError: there is no such key.
            KeysUnwritableError: the disk does not take it.
            ConfigError: a team file is wrong.
        """
        with self._locked():
            document, _, _ = self._found(key_id)
            self._write(document, [e for e in document.tree["keys"] if e["id"] not in (key_id, key_id + OLD)])
            assert document.path is not None, "it is a file's"
            return document.path

    def _entry(self, key_id: str, secret: str, role: Role, expires: datetime | None) -> dict[str, Any]:
        entry: dict[str, Any] = {"id": key_id, "hash": hash_secret(secret), "role": role}
        entry["created"] = self._now().replace(microsecond=0)
        return entry if expires is None else entry | {"expires": expires}

    def _found(self, key_id: str) -> tuple[Document, TeamFile, int]:
        files = read_files(self._settings)
        for document, file in files:
            for at, key in enumerate(file.keys):
                if key.id == key_id:
                    return document, file, at
        known = ", ".join(sorted(key.id for _, file in files for key in file.keys)) or "none"
        raise KeyStoreError(f"there is no key '{key_id}'; the keys are {known}")

    def _write(self, document: Document, entries: list[dict[str, Any]]) -> None:
        """Replace the file at once: who reads it finds the old one or the new one, whole."""
        path = document.path
        assert path is not None, "it is a file's"
        text = rewritten(document.text, entries)
        try:
            TeamFile(**yaml.safe_load(text))
        except ValidationError as error:
            written = Document(path, text, yaml.safe_load(text))
            raise KeyStoreError("; ".join(written.explain(error.errors(), TeamFile))) from None
        # A link stays one: what it leads to is written.
        target = path.resolve()
        beside = target.with_name(f".{target.name}.new")
        there = target.exists()
        try:
            beside.unlink(missing_ok=True)
            with beside.open("x", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
                _give(file.fileno(), target if there else target.parent)
            if there:
                beside.chmod(target.stat().st_mode & 0o777)
            beside.replace(target)
        except OSError as error:
            beside.unlink(missing_ok=True)
            raise KeysUnwritableError(f"{path} cannot be written: {error.strerror or error}") from None

    @contextmanager
    def _locked(self) -> Iterator[Path]:
        named = self._settings.teams.folder
        if named is None:
            raise KeyStoreError("'teams.folder' is null: there is no folder for team files")
        folder = Path(named)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            team_paths(self._settings)
            # Where root follows no link, whoever may write to the folder cannot have it give files away.
            with open(os.open(folder / ".lock", os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o666), "w") as lock:
                _give(lock.fileno(), folder)
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield folder
        except OSError as error:
            raise KeysUnwritableError(f"{folder} cannot be written: {error.strerror or error}") from None


def _give(file: int, like: Path) -> None:
    """Give a file that root made to the owner of another: a server that runs as its user could not read it."""
    if os.geteuid() == 0:
        owner = like.stat()
        os.fchown(file, owner.st_uid, owner.st_gid)


def rewritten(text: str, entries: list[dict[str, Any]]) -> str:
    """A team file with these keys. Comments stay, but for those inside a key that changed."""
    wanted = {**(yaml.safe_load(text) or {}), "keys": entries}
    for attempt in (_by_lines, _by_block):
        made = attempt(text, entries)
        # Whatever a file looks like: what is written says what is meant.
        if made is not None and _says(made, wanted):
            return made
    return yaml.safe_dump(wanted, sort_keys=False, allow_unicode=True)


def _says(text: str, wanted: dict[str, Any]) -> bool:
    """Whether a text is read as that. One is not YAML where a key that went had the anchor of one that stays."""
    try:
        return bool(yaml.safe_load(text) == wanted)
    except yaml.YAMLError:
        return False


def _by_lines(text: str, entries: list[dict[str, Any]]) -> str | None:
    """Each key that stays keeps its lines; None where keys are not a list with a line for each dash."""
    node = _keys_node(text)
    if node is None or node[1].flow_style or not node[1].value:
        return None
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    dash = lines[node[1].value[0].start_mark.line]
    indent = dash[: len(dash) - len(dash.lstrip())]
    starts = [_with_comments(lines, item.start_mark.line) for item in node[1].value]
    ends = [*starts[1:], _last_line(node[1].value[-1]) + 1]
    known = [(entry, lines[a:b]) for entry, a, b in zip(yaml.safe_load(text)["keys"], starts, ends, strict=True)]
    block = []
    for entry in entries:
        kept = next((own for before, own in known if before == entry), None)
        block.extend(_dumped([entry], indent) if kept is None else kept)
    head = lines[: starts[0]]
    if not entries:
        head[-1] = "keys: []\n"
    return "".join([*head, *block, *lines[ends[-1] :]])


def _by_block(text: str, entries: list[dict[str, Any]]) -> str | None:
    """All keys anew, where they were or at the end."""
    node = _keys_node(text)
    block = "keys: []\n" if not entries else "keys:\n" + "".join(_dumped(entries, "  "))
    if node is None:
        return f"{text.rstrip()}\n{block}" if text.strip() else block
    name, value = node
    return f"{text[: name.start_mark.index]}{block.rstrip()}{text[value.end_mark.index :]}"


def _keys_node(text: str) -> tuple[yaml.ScalarNode, yaml.SequenceNode] | None:
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if isinstance(root, yaml.MappingNode):
        for name, value in root.value:
            if name.value == "keys" and isinstance(value, yaml.SequenceNode):
                return name, value
    return None


def _with_comments(lines: list[str], at: int) -> int:
    """The first of the lines of comments above a key: they are about it."""
    while at > 0 and lines[at - 1].lstrip().startswith("#"):
        at -= 1
    return at


def _last_line(node: yaml.Node) -> int:
    """Of the last value below a node: a block ends where the next begins, comments between them included."""
    if isinstance(node, yaml.MappingNode) and node.value and not node.flow_style:
        return _last_line(node.value[-1][1])
    if isinstance(node, yaml.SequenceNode) and node.value and not node.flow_style:
        return _last_line(node.value[-1])
    return int(node.end_mark.line)


def _dumped(entries: list[dict[str, Any]], indent: str) -> list[str]:
    dumped = yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, width=1000)
    return [f"{indent}{line}" for line in dumped.splitlines(keepends=True)]
