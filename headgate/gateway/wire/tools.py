"""Functions that a model may call, as chat completions name them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from headgate.gateway.request import Tool, ToolUse
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
    tools = tuple(_tool(body, f"tools[{at}]") for at, body in enumerate(bodies or ()))
    seen: set[str] = set()
    for at, tool in enumerate(tools):
        if tool.name in seen:
            message = f"Invalid 'tools[{at}].function.name': '{tool.name}' is given twice."
            raise invalid(message, f"tools[{at}].function.name", "invalid_value")
        seen.add(tool.name)
    return tools


def parse_tool_use(choice: ToolChoiceBody | None, parallel: bool | None, tools: Sequence[Tool]) -> ToolUse:
    """Whether and which functions must be called; ApiError 400 where that does not fit the functions given."""
    several = parallel is not False
    if not tools and choice not in (None, "none", "auto"):
        raise invalid("'tool_choice' is only allowed when 'tools' are specified.", "tool_choice", "invalid_value")
    if isinstance(choice, NamedTool):
        name = choice.function.name
        if all(tool.name != name for tool in tools):
            known = ", ".join(f"'{tool.name}'" for tool in tools)
            message = f"Invalid 'tool_choice.function.name': '{name}' is not among the functions given: {known}."
            raise invalid(message, "tool_choice.function.name", "invalid_value")
        return ToolUse("required", name, parallel=False)
    return ToolUse(choice or "auto", parallel=several)


def check_tools(tools: Sequence[Tool], schema: str) -> tuple[Tool, ...]:
    """Functions whose protocol has `name` and their parameters, called `schema`, in the tool itself.

    ApiError 400 for a name that is given twice and for parameters that are nested too deeply.
    """
    seen: set[str] = set()
    for at, tool in enumerate(tools):
        if tool.name in seen:
            param = f"tools[{at}].name"
            raise invalid(f"Invalid '{param}': '{tool.name}' is given twice.", param, "invalid_value")
        seen.add(tool.name)
        if nested_deeper(tool.parameters, MAX_NESTING):
            param = f"tools[{at}].{schema}"
            message = f"Invalid '{param}': nested more than {MAX_NESTING} levels deep."
            raise invalid(message, param, "invalid_value")
    return tuple(tools)


def check_named(name: str, param: str, tools: Sequence[Tool]) -> ToolUse:
    """That one function must be called; ApiError 400 where it is not among those given."""
    if all(tool.name != name for tool in tools):
        known = ", ".join(f"'{tool.name}'" for tool in tools)
        message = f"Invalid '{param}': '{name}' is not among the functions given: {known}."
        raise invalid(message, param, "invalid_value")
    return ToolUse("required", name, parallel=False)


def nested_deeper(value: object, levels: int) -> bool:
    """Whether a JSON value has more than so many levels of objects and arrays."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels < 0 or any(nested_deeper(part, levels - 1) for part in inner if isinstance(part, dict | list))


def _tool(body: ToolBody, path: str) -> Tool:
    if body.type != "function":
        message = f"'{path}': tools of type '{body.type}' are not supported by this server. Supported: 'function'."
        raise unsupported(f"{path}.type", message)
    function = body.function
    if not _NAME.fullmatch(function.name):
        message = f"Invalid '{path}.function.name': expected 1 to 64 letters, digits, '_' or '-'."
        raise invalid(message, f"{path}.function.name", "invalid_value")
    parameters = function.parameters or {}
    if nested_deeper(parameters, MAX_NESTING):
        message = f"Invalid '{path}.function.parameters': nested more than {MAX_NESTING} levels deep."
        raise invalid(message, f"{path}.function.parameters", "invalid_value")
    return Tool(function.name, function.description, parameters, bool(function.strict))
