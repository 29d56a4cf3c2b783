"""Reading settings from file and environment, and saying plainly what is wrong with them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from headgate.gateway.policies import problems
from headgate.gateway.settings import ENV_PREFIX, Settings, secret_name
from headgate.gateway.wire.decode import nearest

CONFIG_VARIABLE = f"{ENV_PREFIX}CONFIG"


class ConfigError(Exception):
    """The configuration cannot be used; one line per problem."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


def load_settings(path: Path | None) -> Settings:
    """Settings from the environment over the file (if any) over the defaults.

    Raises:
        ConfigError: the file cannot be read, a key is unknown (with the nearest known one) or a value is wrong.
    """
    tree, text = _read(path)
    try:
        settings = Settings(**tree)
    except ValidationError as error:
        raise ConfigError(_problems(error.errors(), tree, path, text)) from None
    except ValueError as error:
        # pydantic-settings: a variable that should hold JSON does not.
        cause = f": {error.__cause__}" if error.__cause__ else ""
        raise ConfigError([f"environment: {error}{cause}"]) from None
    contradictions = [
        f"{_where(keys, tree, path, text)}: '{_dotted(keys)}': {message}" for keys, message in problems(settings)
    ]
    if contradictions:
        raise ConfigError(contradictions)
    strays = _unknown_variables(os.environ, settings)
    if strays:
        raise ConfigError(strays)
    return settings


def _read(path: Path | None) -> tuple[dict[str, Any], str]:
    if path is None:
        return {}, ""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: cannot be read: {error}"]) from None
    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError([f"{path}: not YAML: {error}"]) from None
    if tree is None:
        return {}, text
    if not isinstance(tree, dict) or not all(isinstance(key, str) for key in tree):
        raise ConfigError([f"{path}: the top level must be a mapping of keys, such as `server:`"])
    return tree, text


def _problems(errors: list[ErrorDetails], tree: dict[str, Any], path: Path | None, text: str) -> list[str]:
    """One line per key: where it is, what was given and what would be accepted."""
    lines: dict[str, str] = {}
    for error in errors:
        keys = tuple(k for k in error["loc"] if not _is_union_member(k, tree, error["loc"]))
        dotted = _dotted(keys)
        if error["type"] == "extra_forbidden":
            known = _known_keys(keys[:-1])
            hint = nearest(str(keys[-1]), known)
            message = f"unknown key '{dotted}'.{hint} Known here: {', '.join(known)}"
        elif error["type"] == "missing":
            message = f"key '{dotted}' is missing"
        else:
            message = f"'{dotted}' is {_shown(error['input'])}: {error['msg'].removeprefix('Value error, ')}"
            if dotted in lines:
                # The members of a union each complain; together they say what is accepted.
                message = f"{lines[dotted].split(': ', 1)[1]}, or: {error['msg']}"
        lines[dotted] = f"{_where(keys, tree, path, text)}: {message}"
    return list(lines.values())


def _shown(value: object) -> str:
    """The value as it was given, but for what may be a password in a URL."""
    if isinstance(value, str) and "@" in value:
        return repr(f"…@{value.rpartition('@')[2]}")
    if isinstance(value, str) and "://" in value:
        return repr(f"{value.partition('://')[0]}://…")
    return repr(value)


def _is_union_member(key: int | str, tree: dict[str, Any], loc: tuple[int | str, ...]) -> bool:
    """Whether pydantic put a type's name into the path (it does so for unions), rather than a key."""
    position = loc.index(key)
    return position > 0 and position == len(loc) - 1 and isinstance(key, str) and _is_leaf(loc[:position], tree)


def _is_leaf(keys: tuple[int | str, ...], tree: dict[str, Any]) -> bool:
    try:
        return not isinstance(_follow(keys, tree), dict | list)
    except LookupError:
        return False


def _follow(keys: tuple[int | str, ...], tree: Any) -> Any:
    for key in keys:
        match tree:
            case dict():
                tree = tree[key]
            case list() if isinstance(key, int):
                tree = tree[key]
            case _:
                raise LookupError(key)
    return tree


def _where(keys: tuple[int | str, ...], tree: dict[str, Any], path: Path | None, text: str) -> str:
    """The variable that sets the key, else the file with the line of the key."""
    variable = ENV_PREFIX + "__".join(str(k) for k in keys).upper()
    if path is None or variable in os.environ:
        return f"environment: {variable}"
    try:
        _follow(keys[:-1], tree)
    except LookupError:
        return "environment"
    line = _line(keys, text)
    return f"{path}:{line}" if line else f"{path}"


def _line(keys: tuple[int | str, ...], text: str) -> int | None:
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    line = None
    for key in keys:
        if isinstance(node, yaml.MappingNode):
            for name, value in node.value:
                if name.value == str(key):
                    line, node = name.start_mark.line + 1, value
                    break
            else:
                return line
        elif isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
            node = node.value[key]
            line = node.start_mark.line + 1
    return line


def _known_keys(keys: tuple[int | str, ...]) -> list[str]:
    """Names that are accepted below `keys`."""
    model: type[BaseModel] | None = Settings
    for key in keys:
        if isinstance(key, int) or model is None:
            continue
        field = model.model_fields.get(key)
        model = _section_of(field.annotation) if field else None
    return sorted(model.model_fields) if model else []


def _section_of(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in get_args(annotation):
        if (found := _section_of(inner)) is not None:
            return found
    return None


def _dotted(keys: tuple[int | str, ...]) -> str:
    path = ""
    for key in keys:
        path += f"[{key}]" if isinstance(key, int) else f".{key}"
    return path.removeprefix(".")


def _unknown_variables(environ: Mapping[str, str], settings: Settings) -> list[str]:
    """Problems with variables of our prefix that mean nothing. Those that keys and secrets refer to are fine."""
    referenced = {secret_name(k.secret) for k in settings.keys}
    if settings.cache.secret is not None:
        referenced.add(secret_name(settings.cache.secret))
    known = {f"{ENV_PREFIX}{name}".upper() for name in _paths(Settings)} | {CONFIG_VARIABLE}
    return [
        f"environment: unknown variable '{name}'.{nearest(name, sorted(known))}"
        for name in sorted(environ)
        if name.upper().startswith(ENV_PREFIX) and name.upper() not in known and name not in referenced
    ]


def _paths(model: type[BaseModel], prefix: str = "") -> list[str]:
    found = []
    for name, field in model.model_fields.items():
        found.append(prefix + name)
        section = field.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            found.extend(_paths(section, f"{prefix}{name}__"))
    return found
