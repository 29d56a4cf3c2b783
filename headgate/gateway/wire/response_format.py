"""The form of an answer, as chat completions ask for it."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from headgate.gateway.road.request import ResponseFormat
from headgate.gateway.wire.errors import given, invalid, unsupported
from headgate.gateway.wire.tools import nested_deeper

KINDS = ("text", "json_object", "json_schema")
MAX_NESTING = 32
"""Deepest nesting of a schema."""


class JsonSchemaBody(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A named JSON schema. Answers follow it whether `strict` is true or not."""

    name: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,64}$")]
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class ResponseFormatBody(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """`json_object` is any JSON object, `json_schema` JSON that follows a schema."""

    type: Annotated[str, Meta(extra_json_schema={"enum": list(KINDS)})]
    json_schema: JsonSchemaBody | None = None


def parse_response_format(body: ResponseFormatBody | None) -> ResponseFormat:
    """The form; ApiError 400 for other kinds and for a schema that is missing or nested too deeply."""
    if body is None:
        return ResponseFormat()
    if (plain := without_schema(body.type, "response_format.type")) is not None:
        return plain
    wanted = given(body.json_schema, "response_format.json_schema")
    return by_schema(wanted.schema, "response_format.json_schema.schema", wanted.name, strict=bool(wanted.strict))


def without_schema(kind: str, path: str) -> ResponseFormat | None:
    """The form of a kind, which is found at `path`; None where a schema says it; ApiError 400 for other kinds."""
    if kind == "text":
        return ResponseFormat()
    if kind == "json_object":
        return ResponseFormat("json_object", {"type": "object"})
    if kind != "json_schema":
        known = ", ".join(f"'{one}'" for one in KINDS)
        raise unsupported(path, f"'{path}' is '{kind}'. Supported: {known}.")
    return None


def by_schema(schema: dict[str, Any] | None, path: str, name: str = "answer", *, strict: bool = True) -> ResponseFormat:
    """JSON that follows the schema found at `path`; ApiError 400 where it is missing or nested too deeply."""
    schema = given(schema, path)
    if nested_deeper(schema, MAX_NESTING):
        raise invalid(f"Invalid '{path}': nested more than {MAX_NESTING} levels deep.", path, "invalid_value")
    return ResponseFormat("json_schema", schema, name, strict)
