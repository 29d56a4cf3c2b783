"""Reading team files: one team each, over the main file's defaults. All of them are good, or none is taken."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from headgate.gateway.configuration.document import ConfigError, Document, dotted
from headgate.gateway.configuration.secret_reference import read_secret, variable_of
from headgate.gateway.settings import TEAMS_FOLDER, Settings
from headgate.gateway.teams.checks import allowed_models, team_problems
from headgate.gateway.teams.keys import Held, Principal, hash_matches, read_hash
from headgate.gateway.teams.registry import Roster, Team
from headgate.gateway.teams.sections import KeyLimitsSection, TeamFile, TeamPolicy

_WHOLE = ("aliases", "weights", "shadow")
"""Mappings of names: one value each."""
SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class _Read:
    """A team file that is good by itself."""

    document: Document
    file: TeamFile
    policy: TeamPolicy
    secrets: tuple[str | None, ...]
    """Of its keys, where they are not hashed."""

    def where(self, *keys: str | int) -> str:
        return self.document.where(keys)


def team_paths(settings: Settings) -> list[Path]:
    """The team files, by name. A hidden file is none: editors write some.

    Raises:
        ConfigError: the folder cannot be read, or is named by the configuration and is not there.
    """
    if settings.teams.folder is None:
        return []
    folder = Path(settings.teams.folder)
    try:
        return sorted(p for p in folder.iterdir() if p.suffix in SUFFIXES and not p.name.startswith("."))
    except FileNotFoundError:
        if settings.teams.folder == TEAMS_FOLDER:
            return []
        raise ConfigError([f"{folder}: there is no such folder, but 'teams.folder' names it"]) from None
    except OSError as error:
        raise ConfigError([f"{folder}: cannot be read: {error}"]) from None


def read_files(settings: Settings) -> list[tuple[Document, TeamFile]]:
    """The team files as they are written, each good by itself; ConfigError where one is not. Reads no secrets."""
    read = []
    for path in team_paths(settings):
        document = Document.read(path)
        try:
            read.append((document, TeamFile(**document.tree)))
        except ValidationError as error:
            raise ConfigError(document.explain(error.errors(), TeamFile)) from None
    return read


def read_roster(settings: Settings, environ: Mapping[str, str]) -> Roster:
    """The teams of the configured folder.

    Raises:
        ConfigError: a file is wrong, or two of them claim one team or key. Every problem is in it, with file and line.
    """
    problems: list[str] = []
    read: list[_Read] = []
    for path in team_paths(settings):
        try:
            read.append(_read(path, settings, environ))
        except ConfigError as error:
            problems.extend(error.problems)
    problems.extend(_claimed_twice(read))
    if problems:
        raise ConfigError(problems)
    defaults = TeamPolicy(**_below(settings))
    teams = [_team(one, settings) for one in read]
    return Roster(
        defaults,
        teams,
        models=allowed_models(settings, defaults),
        revision=_revision(settings, [one.file for one in read]),
        variables=frozenset(filter(None, (variable_of(key.secret) for one in read for key in one.file.keys))),
    )


def _read(path: Path, settings: Settings, environ: Mapping[str, str]) -> _Read:
    document = Document.read(path)
    try:
        file = TeamFile(**document.tree)
        given = file.model_dump(exclude_unset=True, include=set(TeamPolicy.model_fields))
        policy = TeamPolicy(**_merged(_below(settings), given))
    except ValidationError as error:
        raise ConfigError(document.explain(error.errors(), TeamFile)) from None
    problems = [
        f"{document.where(keys)}: '{dotted(keys)}': {message}"
        for keys, message in team_problems(settings, file, policy)
    ]
    secrets: list[str | None] = []
    for index, key in enumerate(file.keys):
        try:
            secrets.append(None if key.secret is None else read_secret(key.secret, environ))
        except ValueError as error:
            problems.append(f"{document.where(('keys', index, 'secret'))}: 'keys[{index}].secret': {error}")
    if problems:
        raise ConfigError(problems)
    return _Read(document, file, policy, tuple(secrets))


def _below(settings: Settings) -> dict[str, Any]:
    """What the main file says of all teams."""
    return {**settings.defaults.model_dump(exclude_unset=True), "logging": {"content": settings.logging.content}}


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """The values of both, those above first. A list replaces a list; so does a mapping of names."""
    found = dict(below)
    for name, value in above.items():
        known = found.get(name)
        inherits = isinstance(value, dict) and isinstance(known, dict) and name not in _WHOLE
        found[name] = _merged(known, value) if inherits and isinstance(known, dict) else value
    return found


def _claimed_twice(read: list[_Read]) -> Iterator[str]:
    """Teams and keys that two files claim; both files are named."""
    teams: dict[str, str] = {}
    ids: dict[str, str] = {}
    held: list[tuple[str, str | None, str | None]] = []
    for one in read:
        name, here = one.file.team.name, one.where("team", "name")
        if name in teams:
            yield f"{here}: the team '{name}' is also that of {teams[name]}"
        teams.setdefault(name, here)
        for index, (key, secret) in enumerate(zip(one.file.keys, one.secrets, strict=True)):
            here = one.where("keys", index)
            if key.id in ids:
                yield f"{here}: the key '{key.id}' is also given by {ids[key.id]}"
            ids.setdefault(key.id, here)
            for there, their_hash, their_secret in held:
                if _same(key.hash, secret, their_hash, their_secret):
                    yield f"{here}: the key '{key.id}' has the same secret as the one of {there}"
            held.append((here, key.hash, secret))


def _same(hash_: str | None, secret: str | None, their_hash: str | None, their_secret: str | None) -> bool:
    """Whether two keys are one: two hashes with different salts cannot tell."""
    if secret is not None:
        return secret == their_secret or (their_hash is not None and hash_matches(their_hash, secret))
    assert hash_ is not None, "a key has either"
    return hash_ == their_hash or (their_secret is not None and hash_matches(hash_, their_secret))


def _team(one: _Read, settings: Settings) -> Team:
    file, policy = one.file, one.policy
    team_models = allowed_models(settings, policy)
    keys = []
    for section, secret in zip(file.keys, one.secrets, strict=True):
        principal = Principal(
            file.team.name,
            section.id,
            section.role == "admin",
            _capped(policy, section.limits),
            team_models if section.models is None else frozenset(section.models),
            section.routing,
            section.limits,
        )
        salted = None if section.hash is None else read_hash(section.hash)
        expires = None if section.expires is None else section.expires.timestamp()
        keys.append(Held(principal, salted, secret, expires))
    return Team(file.team.name, policy, team_models, tuple(keys))


def _capped(policy: TeamPolicy, own: KeyLimitsSection) -> TeamPolicy:
    """A team's policy within the caps of one of its keys."""
    lower = {}
    for cap in ("max_tokens", "max_context_tokens", "max_n"):
        bounds = [bound for bound in (getattr(policy.limits, cap), getattr(own, cap)) if bound is not None]
        lower[cap] = min(bounds, default=None)
    return policy.model_copy(update={"limits": policy.limits.model_copy(update=lower)})


def _revision(settings: Settings, files: list[TeamFile]) -> str:
    digest = hashlib.blake2b(settings.model_dump_json().encode(), digest_size=4)
    for file in files:
        digest.update(b"\n" + file.model_dump_json().encode())
    return digest.hexdigest()
