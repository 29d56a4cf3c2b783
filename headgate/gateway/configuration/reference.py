"""The reference of all keys, made from the sections themselves: `docs/configuration.md`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import AwareDatetime, BaseModel, ByteSize
from pydantic_core import PydanticUndefined

from headgate.gateway.configuration.document import section_of
from headgate.gateway.settings import ENV_PREFIX, Settings
from headgate.gateway.teams.sections import TeamFile

_NAMES = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    ByteSize: "bytes",
    AwareDatetime: "time",
    NoneType: "null",
}

_HEAD = f"""\
# Configuration

Every key with its type, its default and what it does. `headgate config reference` prints this page from the code, and
a test holds that it is current. `config/headgate.yaml` is the main file with every default; `docs/teams.md` tells how
team files work. Variables of the environment win over the main file: `{ENV_PREFIX}SERVER__PORT=9000` sets
`server.port`, and the value `null` is null. In both files an unknown key is an error, told with file, line and the
nearest name that is known.
"""


def reference() -> str:
    """The page, in Markdown."""
    parts = [_HEAD, "## The main file\n", *_sections(Settings, ""), "## A team file\n", *_sections(TeamFile, "")]
    return "\n".join(parts)


def _sections(model: type[BaseModel], prefix: str) -> Iterator[str]:
    """A table for each section that has values of its own, outer ones first."""
    rows, inner = [], []
    for name, field in model.model_fields.items():
        section, listed = section_of(field.annotation), "tuple" in str(field.annotation)
        if section is not None:
            inner.append((section, f"{prefix}{name}{'[]' if listed else ''}."))
        else:
            kind, default, what = _type(field.annotation), _default(field), _cell(field.description or "")
            rows.append(f"| `{prefix}{name}` | {kind} | {default} | {what} |")
    if rows:
        title = prefix.rstrip(".")
        yield f"### `{title}`\n" if title else ""
        yield f"{_cell((model.__doc__ or '').strip().splitlines()[0])}\n"
        yield "\n".join(["| Key | Type | Default | What it does |", "| --- | --- | --- | --- |", *rows, ""])
    for section, place in inner:
        yield from _sections(section, place)


def _type(annotation: Any) -> str:
    """The type as one would say it."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(inner[0])
    if origin is Literal:
        return " or ".join(f"`{json.dumps(value) if isinstance(value, bool) else value}`" for value in inner)
    if origin in (Union, UnionType):
        return " or ".join(_type(one) for one in inner)
    if origin in (tuple, frozenset):
        return f"list of {_type(inner[0])}"
    if origin is dict:
        return f"mapping of {_type(inner[0])} to {_type(inner[1])}"
    return _NAMES[annotation]


def _default(field: Any) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if value is PydanticUndefined:
        return ""
    plain = sorted(value) if isinstance(value, frozenset) else list(value) if isinstance(value, tuple) else value
    return f"`{_cell(json.dumps(plain, default=str))}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
