"""`/v1/files` in the OpenAPI document."""

from __future__ import annotations

from typing import Any

from headgate.gateway.wire.files import MAX_PAGE, PURPOSES, FileBody, FileDeleted, FileForm, FileList
from headgate.gateway.wire.openapi_parts import call, error, get, parameter

STORAGE_TYPES: tuple[type, ...] = (FileBody, FileList, FileDeleted, FileForm)

_FILE_ID = parameter("file_id", {"type": "string"}, place="path")
_AFTER = parameter("after", {"type": "string"}, "Id of the last one of the page before.")


def storage_paths() -> dict[str, Any]:
    """Paths by URL."""
    page = [
        _AFTER,
        parameter("limit", {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": MAX_PAGE}),
        parameter("order", {"enum": ["asc", "desc"], "default": "desc"}, "By time of creation."),
        parameter("purpose", {"enum": list(PURPOSES)}),
    ]
    return {
        "/v1/files": {
            "get": get("List the team's files", FileList, parameters=page),
            "post": call("Upload a file", FileForm, FileBody, "uploadFile", form=True),
        },
        "/v1/files/{file_id}": {
            "parameters": [_FILE_ID],
            "get": get("One file", FileBody),
            "delete": _delete(),
        },
        "/v1/files/{file_id}/content": {"parameters": [_FILE_ID], "get": _content()},
    }


def _delete() -> dict[str, Any]:
    return call("Delete a file", None, FileDeleted, "deleteFile")


def _content() -> dict[str, Any]:
    content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    summary = "A file's bytes"
    responses = {"200": {"description": summary, "content": content}, "default": error()}
    return {"summary": summary, "operationId": "getFileContent", "responses": responses}
