"""Building blocks of the OpenAPI document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headgate.gateway.wire.errors import ErrorBody


def parameter(name: str, schema: dict[str, Any], description: str = "", *, place: str = "query") -> dict[str, Any]:
    """One value beside the body, in `place`: query, path or header."""
    found: dict[str, Any] = {"name": name, "in": place, "schema": schema}
    if description:
        found["description"] = description
    return found | ({"required": True} if place == "path" else {})


def get(
    summary: str, reply: type, *, unready: type | None = None, parameters: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    """An operation that reads."""
    responses = {"200": {"description": summary, "content": json_of(reply)}, "default": error()}
    if unready is not None:
        responses["503"] = {"description": "Not now", "content": json_of(unready)}
    described = {"summary": summary, "operationId": f"get{reply.__name__}", "responses": responses}
    return described | ({"parameters": list(parameters)} if parameters else {})


def call(summary: str, request: type | None, reply: type, operation: str = "", *, form: bool = False) -> dict[str, Any]:
    """An operation with a body, JSON or a form, or without one."""
    made: dict[str, Any] = {
        "summary": summary,
        "operationId": operation or operation_id(request or reply),
        "responses": {"200": {"description": summary, "content": json_of(reply)}, "default": error()},
    }
    if request is not None:
        content = {"multipart/form-data": {"schema": ref(request)}} if form else json_of(request)
        made["requestBody"] = {"required": True, "content": content}
    return made


def lines(summary: str, line: type) -> dict[str, Any]:
    """An operation that reads JSON, an object a line."""
    content = {"application/x-ndjson": {"schema": ref(line)}}
    responses = {"200": {"description": summary, "content": content}, "default": error()}
    return {"summary": summary, "operationId": f"get{line.__name__}s", "responses": responses}


def operation_id(request: type) -> str:
    """Named after the body."""
    name = request.__name__.removesuffix("Request")
    return name[0].lower() + name[1:]


def error() -> dict[str, Any]:
    """Every reply that is not a success."""
    return {"description": "What went wrong", "content": json_of(ErrorBody)}


def json_of(kind: type) -> dict[str, Any]:
    """The content of a JSON body."""
    return {"application/json": {"schema": ref(kind)}}


def ref(kind: type) -> dict[str, str]:
    """Where a type is described."""
    return {"$ref": f"#/components/schemas/{kind.__name__}"}
