"""Reading settings from file and environment, and saying plainly what is wrong with them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import BaseModel, ValidationError

from headgate.gateway.configuration.document import ConfigError, Document, Keys, dotted
from headgate.gateway.configuration.secret_reference import variable_of
from headgate.gateway.local.added_adapters import read_added, with_added
from headgate.gateway.settings import ENV_PREFIX, Settings
from headgate.gateway.teams.checks import problems
from headgate.gateway.teams.files import read_roster
from headgate.gateway.upstream.checks import missing_secrets, variables
from headgate.gateway.wire.decode import nearest

CONFIG_VARIABLE = f"{ENV_PREFIX}CONFIG"

_ELSEWHERE = frozenset({"HEADGATE_KEY", "HEADGATE_NO_NATIVE", "HEADGATE_PEERS", "HEADGATE_VECTORS"})
"""Variables that set nothing here and mean something: to clients as docs/clients.md has them, the build, the benchmark
beside other engines, and the kernels."""
_SERVICE = re.compile(rf"{ENV_PREFIX}(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")
"""Variables by which Kubernetes tells pods of a Service whose name begins with `headgate`."""


def load_settings(path: Path | None) -> Settings:
    """Settings from the environment over the file (if any) over the defaults.

    The team files are read too, so that what is wrong with them is told with the rest.

    Raises:
        ConfigError: a file cannot be read, a key is unknown (with the nearest known one) or a value is wrong.
    """
    return _load(path)[0]


def check_settings(path: Path | None) -> Settings:
    """The same, and files and secrets that only a server needs are read too.

    What was learned of the models is held against them, which takes a look at their files.
    """
    # Imported here: who only reads settings needs no arithmetic.
    from headgate.gateway.parts import unreadable
    from headgate.gateway.routing.quality import quality_problems

    settings, document = _load(path)
    if found := list(unreadable(settings)):
        raise ConfigError(found)
    _raise(quality_problems(settings), document)
    return settings


def _load(path: Path | None) -> tuple[Settings, Document]:
    settings, document = _read(path)
    _raise(missing_secrets(settings, os.environ), document)
    served = with_added(settings, read_added(settings, os.environ))
    referenced = read_roster(served, os.environ).variables | variables(settings)
    strays = _unknown_variables(os.environ, settings, referenced)
    if strays:
        raise ConfigError(strays)
    return settings, document


def read_settings(path: Path | None) -> Settings:
    """The same without a look at the team files and at secrets that are referred to."""
    return _read(path)[0]


def _read(path: Path | None) -> tuple[Settings, Document]:
    document = Document.empty() if path is None else Document.read(path)

    def where(keys: Keys) -> str:
        return _where(keys, document)

    try:
        settings = Settings(**document.tree)
    except ValidationError as error:
        raise ConfigError(document.explain(error.errors(), Settings, where)) from None
    except ValueError as error:
        # pydantic-settings: a variable that should hold JSON does not.
        cause = f": {error.__cause__}" if error.__cause__ else ""
        raise ConfigError([f"environment: {error}{cause}"]) from None
    _raise(problems(with_added(settings, read_added(settings, os.environ))), document)
    return settings, document


def _raise(found: Iterable[tuple[Keys, str]], document: Document) -> None:
    """ConfigError with every problem and its place, if there is one."""
    lines = [f"{_where(keys, document)}: '{dotted(keys)}': {message}" for keys, message in found]
    if lines:
        raise ConfigError(lines)


def _where(keys: Keys, document: Document) -> str:
    """The variable that sets the key, else the file with the line of the key."""
    variable = ENV_PREFIX + "__".join(str(k) for k in keys).upper()
    if document.path is None or variable in os.environ:
        return f"environment: {variable}"
    return document.where(keys) if document.has(keys[:-1]) else "environment"


def _unknown_variables(environ: Mapping[str, str], settings: Settings, referenced: frozenset[str]) -> list[str]:
    """Problems with variables of our prefix that mean nothing. Those that hold `referenced` secrets are fine."""
    referenced |= {variable_of(r) or "" for r in (settings.cache.secret, *settings.telemetry.otel.headers.values())}
    known = {f"{ENV_PREFIX}{name}".upper() for name in _paths(Settings)} | {CONFIG_VARIABLE}
    return [
        f"environment: unknown variable '{name}'.{nearest(name, sorted(known))}"
        for name, value in sorted(environ.items())
        if name.upper().startswith(ENV_PREFIX)
        and name.upper() not in known
        and name not in _ELSEWHERE | referenced
        and not _of_service(name, value)
    ]


def _of_service(name: str, value: str) -> bool:
    """Whether a variable is of a Service of Kubernetes. Its HEADGATE_PORT is a URL, which no port of ours is."""
    return bool(_SERVICE.fullmatch(name)) or (
        name.endswith("_PORT") and value.startswith(("tcp://", "udp://", "sctp://"))
    )


def _paths(model: type[BaseModel], prefix: str = "") -> list[str]:
    found = []
    for name, field in model.model_fields.items():
        found.append(prefix + name)
        section = field.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            found.extend(_paths(section, f"{prefix}{name}__"))
    return found
