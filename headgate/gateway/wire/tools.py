"""Functions that a model may call, as chat completions name them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from headgate.gateway.road.request import Tool, ToolUse
from headgate.gateway.wire.errors import invalid, unsupported

MAX_TOOLS = 128
MAX_NESTING = 32
"""Deepest nesting of a function's parameters."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class FunctionBody(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A function: its name, what it does, and the JSON schema of its arguments."""

    name: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,64}$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolBody(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A tool; functions are the only kind."""

    function: FunctionBody
    type: Annotated[str, Meta(extra_json_schema={"enum": ["function"]})] = "function"


class FunctionName(Struct, forbid_unknown_fields=True):
    """A function that is named."""

    name: str


class NamedTool(Struct, forbid_unknown_fields=True):
    """The one function that must be called."""

    function: FunctionName
    type: Literal["function"] = "function"


ToolChoiceBody = Literal["none", "auto", "required"] | NamedTool


def parse_tools(bodies: Sequence[ToolBody] | None) -> tuple[Tool, ...]:
    """The functions; ApiError 400 for other kinds of tools, names that are no names or are given twice."""
    tools = [_tool(body, f"tools[{at}]") for at, body in enumerate(bodies or ())]
    return check_tools(tools, "function.name", "function.parameters")


def parse_tool_use(choice: ToolChoiceBody | None, parallel: bool | None, tools: Sequence[Tool]) -> ToolUse:
    """Whether and which functions must be called; ApiError 400 where that does not fit the functions given."""
    if isinstance(choice, NamedTool):
        return check_named(choice.function.name, "tool_choice.function.name", tools)
    return check_use(choice or "auto", tools, parallel=parallel is not False)


def check_tools(tools: Sequence[Tool], name: str, schema: str) -> tuple[Tool, ...]:
    """Functions whose protocol has their name and the schema of their parameters at these places in a tool.

    ApiError 400 for a name that is given twice and for parameters that are nested too deeply.
    """
    seen: set[str] = set()
    for at, tool in enumerate(tools):
        if tool.name in seen:
            param = f"tools[{at}].{name}"
            raise invalid(f"Invalid '{param}': '{tool.name}' is given twice.", param, "invalid_value")
        seen.add(tool.name)
        if nested_deeper(tool.parameters, MAX_NESTING):
            param = f"tools[{at}].{schema}"
            message = f"Invalid '{param}': nested more than {MAX_NESTING} levels deep."
            raise invalid(message, param, "invalid_value")
    return tuple(tools)


def check_use(mode: Literal["none", "auto", "required"], tools: Sequence[Tool], *, parallel: bool) -> ToolUse:
    """Whether any function must be called; ApiError 400 where one must and none is given."""
    if mode == "required":
        _check_given(tools)
    return ToolUse(mode, parallel=parallel)


def check_named(name: str, param: str, tools: Sequence[Tool]) -> ToolUse:
    """That one function must be called; ApiError 400 where it is not among those given."""
    _check_given(tools)
    if all(tool.name != name for tool in tools):
        known = ", ".join(f"'{tool.name}'" for tool in tools)
        message = f"Invalid '{param}': '{name}' is not among the functions given: {known}."
        raise invalid(message, param, "invalid_value")
    return ToolUse("required", name, parallel=False)


def nested_deeper(value: object, levels: int) -> bool:
    """Whether a JSON value has more than so many levels of objects and arrays."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels < 0 or any(nested_deeper(part, levels - 1) for part in inner if isinstance(part, dict | list))


def _check_given(tools: Sequence[Tool]) -> None:
    if not tools:
        raise invalid("'tool_choice' is only allowed when 'tools' are specified.", "tool_choice", "invalid_value")


def _tool(body: ToolBody, path: str) -> Tool:
    if body.type != "function":
        message = f"'{path}': tools of type '{body.type}' are not supported by this server. Supported: 'function'."
        raise unsupported(f"{path}.type", message)
    function = body.function
    if not _NAME.fullmatch(function.name):
        message = f"Invalid '{path}.function.name': expected 1 to 64 letters, digits, '_' or '-'."
        raise invalid(message, f"{path}.function.name", "invalid_value")
    return Tool(function.name, function.description, function.parameters or {}, bool(function.strict))
