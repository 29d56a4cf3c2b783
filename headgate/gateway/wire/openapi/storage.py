"""`/v1/files` and `/v1/batches` in the OpenAPI document."""

from __future__ import annotations

from typing import Any

from headgate.gateway.wire.batches import DEFAULT_PAGE, BatchBody, BatchList, BatchRequest, ResultLine
from headgate.gateway.wire.batches import MAX_PAGE as MAX_BATCH_PAGE
from headgate.gateway.wire.files import MAX_PAGE, PURPOSES, FileBody, FileDeleted, FileForm, FileList
from headgate.gateway.wire.openapi.parts import call, error, get, parameter

STORAGE_TYPES: tuple[type, ...] = (
    FileBody, FileList, FileDeleted, FileForm,
    BatchRequest, BatchBody, BatchList, ResultLine,
)  # fmt: skip

_FILE_ID = parameter("file_id", {"type": "string"}, place="path")
_BATCH_ID = parameter("batch_id", {"type": "string"}, place="path")
_AFTER = parameter("after", {"type": "string"}, "Id of the last one of the page before.")


def storage_paths() -> dict[str, Any]:
    """Paths by URL."""
    page = [
        _AFTER,
        parameter("limit", {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": MAX_PAGE}),
        parameter("order", {"enum": ["asc", "desc"], "default": "desc"}, "By time of creation."),
        parameter("purpose", {"enum": list(PURPOSES)}),
    ]
    batch_page = [
        _AFTER,
        parameter("limit", {"type": "integer", "minimum": 1, "maximum": MAX_BATCH_PAGE, "default": DEFAULT_PAGE}),
    ]
    return {
        "/v1/files": {
            "get": get("List the team's files", FileList, parameters=page),
            "post": call("Upload a file", FileForm, FileBody, "uploadFile", form=True),
        },
        "/v1/files/{file_id}": {
            "parameters": [_FILE_ID],
            "get": get("One file", FileBody),
            "delete": call("Delete a file", None, FileDeleted, "deleteFile"),
        },
        "/v1/files/{file_id}/content": {"parameters": [_FILE_ID], "get": _content()},
        "/v1/batches": {
            "get": get("List the team's batches, the newest first", BatchList, parameters=batch_page),
            "post": call("Answer the requests of a file in idle capacity", BatchRequest, BatchBody, "createBatch"),
        },
        "/v1/batches/{batch_id}": {"parameters": [_BATCH_ID], "get": get("One batch as it stands", BatchBody)},
        "/v1/batches/{batch_id}/cancel": {
            "parameters": [_BATCH_ID],
            "post": call("Answer no further line of a batch", None, BatchBody, "cancelBatch"),
        },
    }


def _content() -> dict[str, Any]:
    content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    summary = "A file's bytes"
    responses = {"200": {"description": summary, "content": content}, "default": error()}
    return {"summary": summary, "operationId": "getFileContent", "responses": responses}
