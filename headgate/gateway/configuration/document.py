"""A YAML file that an operator wrote: what is in it, where, and plain words for what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Any, Self, get_args

import yaml
from pydantic import BaseModel
from pydantic_core import ErrorDetails

from headgate.gateway.wire.decode import nearest

Keys = tuple[int | str, ...]
"""The way from the top of a file to a value."""


class ConfigError(Exception):
    """The configuration cannot be used; one line per problem."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class Document:
    """A file's values, and the lines they are on."""

    def __init__(self, path: Path | None, text: str, tree: dict[str, Any]) -> None:
        self.path = path
        self.text = text
        self.tree = tree

    @classmethod
    def empty(cls) -> Self:
        """Where there is no file."""
        return cls(None, "", {})

    @classmethod
    def read(cls, path: Path) -> Self:
        """The file at `path`; ConfigError where it cannot be read, is not YAML or says something twice."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError([f"{path}: cannot be read: {error}"]) from None
        try:
            tree = yaml.load(text, Loader=_OnceLoader)
        except yaml.YAMLError as error:
            raise ConfigError([f"{path}{_said(error)}"]) from None
        except RecursionError:
            raise ConfigError([f"{path}: cannot be read: it is nested too deeply"]) from None
        if tree is None:
            return cls(path, text, {})
        if not isinstance(tree, dict) or not all(isinstance(key, str) for key in tree):
            raise ConfigError([f"{path}: the top level must be a mapping of keys, such as `server:`"])
        return cls(path, text, tree)

    def where(self, keys: Keys) -> str:
        """The file and the line of a value, or of what it is missing from."""
        return f"{self.path}:{self._line(keys)}"

    def has(self, keys: Keys) -> bool:
        """Whether the file says something there."""
        try:
            follow(keys, self.tree)
        except LookupError:
            return False
        return True

    def explain(
        self, errors: Iterable[ErrorDetails], schema: type[BaseModel], where: Callable[[Keys], str] | None = None
    ) -> list[str]:
        """One line per key of what validation found: where it is, what was given and what would be accepted."""
        where = self.where if where is None else where
        lines: dict[str, str] = {}
        for error in errors:
            keys = tuple(k for k in error["loc"] if not self._is_union_member(k, error["loc"]))
            name = dotted(keys)
            if error["type"] == "extra_forbidden":
                known = known_keys(schema, keys[:-1])
                near = nearest(str(keys[-1]), known)
                if keys[0] == "keys" and not near:
                    # A secret may stand where a name belongs.
                    name = dotted((*keys[:-1], "…"))
                message = f"unknown key '{name}'.{near} Known here: {', '.join(known)}"
            elif error["type"] == "missing":
                message = f"key '{name}' is missing"
            elif not keys:
                message = error["msg"].removeprefix("Value error, ")
            else:
                message = f"'{name}' is {_shown(keys, error['input'])}: {error['msg'].removeprefix('Value error, ')}"
                if name in lines:
                    # The members of a union each complain; together they say what is accepted.
                    message = f"{lines[name].split(': ', 1)[1]}, or: {error['msg']}"
            lines[name] = f"{where(keys)}: {message}"
        return list(lines.values())

    def _line(self, keys: Keys) -> int:
        node = yaml.compose(self.text, Loader=yaml.SafeLoader)
        line = 1
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

    def _is_union_member(self, key: int | str, loc: Keys) -> bool:
        """Whether pydantic put a type's name into the path (it does so for unions), rather than a key."""
        position = loc.index(key)
        return position > 0 and position == len(loc) - 1 and isinstance(key, str) and self._is_leaf(loc[:position])

    def _is_leaf(self, keys: Keys) -> bool:
        try:
            return not isinstance(follow(keys, self.tree), dict | list)
        except LookupError:
            return False


class _OnceLoader(yaml.SafeLoader):
    """YAML lets a key be given twice and forgets the first; an operator would not know which one holds.

    Whatever is wrong is a YAMLError.
    """

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """The value; a ConstructorError with the line where it only looks like a date or a number."""
        try:
            return super().construct_object(node, deep)
        except (ValueError, AttributeError, ArithmeticError):
            # What PyYAML has of them tells no line.
            kind = node.tag.rpartition(":")[2]
            problem = f"{node.value!r} is no valid {kind}; put it in quotes where it is meant as text"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """The mapping; a ConstructorError with the line where a key comes again."""
        seen = set()
        for name, _ in node.value:
            if isinstance(name, yaml.ScalarNode):
                if name.value in seen:
                    # All our own names are words; a secret is none.
                    shown = name.value if name.value.replace("_", "").isalpha() else "…"
                    problem = f"the key '{shown}' is given twice"
                    raise yaml.constructor.ConstructorError(None, None, problem, name.start_mark)
                seen.add(name.value)
        return super().construct_mapping(node, deep)


def _said(error: yaml.YAMLError) -> str:
    """The line and the problem, as other problems are told."""
    mark = getattr(error, "problem_mark", None)
    told = " ".join(str(getattr(error, "problem", None) or error).split())
    return f"{'' if mark is None else f':{mark.line + 1}'}: not YAML: {told}"


def follow(keys: Keys, tree: Any) -> Any:
    """The value that keys lead to; LookupError where there is none."""
    for key in keys:
        match tree:
            case dict():
                tree = tree[key]
            case list() if isinstance(key, int):
                tree = tree[key]
            case _:
                raise LookupError(key)
    return tree


def dotted(keys: Keys) -> str:
    """Keys as one writes them: `models[0].id`."""
    path = ""
    for key in keys:
        path += f"[{key}]" if isinstance(key, int) else f".{key}"
    return path.removeprefix(".")


def known_keys(schema: type[BaseModel], keys: Keys) -> list[str]:
    """Names that are accepted below `keys`."""
    model: type[BaseModel] | None = schema
    for key in keys:
        if isinstance(key, int) or model is None:
            continue
        field = model.model_fields.get(key)
        model = section_of(field.annotation) if field else None
    return sorted(model.model_fields) if model else []


def section_of(annotation: Any) -> type[BaseModel] | None:
    """The section in a field's type, if there is one."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in get_args(annotation):
        if (found := section_of(inner)) is not None:
            return found
    return None


def _shown(keys: Keys, value: object) -> str:
    """The value as it was given, but for what may be a secret or a password in a URL."""
    if isinstance(value, dict):
        return "{…}"
    # Of a team's keys everything: a secret may stand where something else belongs.
    if keys and (keys[-1] in ("secret", "api_key") or "headers" in keys or keys[0] == "keys"):
        return "'…'"
    if isinstance(value, str) and "@" in value:
        return repr(f"…@{value.rpartition('@')[2]}")
    if isinstance(value, str) and "://" in value:
        return repr(f"{value.partition('://')[0]}://…")
    return repr(value)
