"""`/v1/files`: upload, list, read and delete the files of a team."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

from aiohttp import BodyPartReader, MultipartReader, StreamReader, web
from aiohttp.http_exceptions import HttpProcessingError

from headgate.gateway import keys
from headgate.gateway.api.json_reply import json_reply
from headgate.gateway.edge.slow_bodies import Arriving
from headgate.gateway.storage.files import StoredFile, Upload
from headgate.gateway.wire.errors import ApiError, disk_failed, invalid, too_large
from headgate.gateway.wire.files import (
    FORM_FIELDS,
    FileDeleted,
    check_expiry,
    check_name,
    check_purpose,
    file_body,
    file_list,
    parse_file_query,
)
from headgate.gateway.wire.query import read_query

_CHUNK = 256 * 1024
_FORM_OVERHEAD = 64 * 1024
"""Bytes of a form beside its file: longer bodies need not be read to be refused."""
_MAX_FIELD, _MOST_LINES = 1024, 1024


class _Lines:
    """A body of which few lines are read, beside the file: what stands before its first part may have millions."""

    def __init__(self, content: StreamReader) -> None:
        self._content = content
        self._lines = 0

    async def readline(self, **named: Any) -> bytes:
        """ValueError where there are too many."""
        self._lines += 1
        if self._lines > _MOST_LINES:
            raise ValueError(f"it has more than {_MOST_LINES} lines outside of its file")
        return await self._content.readline(**named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)


@dataclass(slots=True)
class _Form:
    fields: dict[str, str] = field(default_factory=dict)
    filename: str | None = None
    file: bool = False


async def upload(http: web.Request) -> web.Response:
    """Store a file, a piece at a time."""
    files = keys.storage(http).files
    if http.content_type != "multipart/form-data":
        message = f"Unsupported content type '{http.content_type}'. Send 'multipart/form-data'."
        raise ApiError(415, message, code="unsupported_media_type")
    if http.content_length is not None and http.content_length > files.limits.max_file_bytes + _FORM_OVERHEAD:
        raise too_large(files.limits.max_file_bytes)
    async with files.upload(http[keys.PRINCIPAL].team) as incoming:
        try:
            async with Arriving() as arriving:
                parts = MultipartReader(http.headers, cast("StreamReader", _Lines(http.content)))
                form = await _read_form(parts, incoming, arriving)
        # aiohttp tells of a malformed body by all of these.
        except (ValueError, AssertionError, LookupError, RuntimeError, HttpProcessingError) as error:
            raise invalid(f"The form could not be read: {error}.", code="invalid_body") from None
        if not form.file:
            raise invalid("Missing required parameter: 'file'.", "file", "missing_required_parameter")
        purpose, name = check_purpose(form.fields.get("purpose")), check_name(form.filename)
        stored = await incoming.keep(name, purpose, check_expiry(form.fields))
    return json_reply(file_body(stored))


async def list_files(http: web.Request) -> web.Response:
    """The team's files, the newest first unless the query has it otherwise."""
    asked = parse_file_query(http.query)
    team = http[keys.PRINCIPAL].team
    found, more = await keys.storage(http).files.page(team, asked.after, asked.limit, asked.order, asked.purpose)
    return json_reply(file_list(found, more=more))


async def get_file(http: web.Request) -> web.Response:
    """What is known of a file."""
    return json_reply(file_body(await _file(http)))


async def content(http: web.Request) -> web.StreamResponse:
    """A file's bytes: of one that a batch writes, whole lines, as far as it has come."""
    stored = await _file(http)
    try:
        source = await asyncio.to_thread(keys.storage(http).files.path(stored.id).open, "rb")
    except OSError as error:
        raise disk_failed(f"The file '{stored.id}' cannot be read", error) from None
    with source:
        response = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
        response.content_length = left = stored.bytes
        await response.prepare(http)
        while left and (data := await asyncio.to_thread(source.read, min(left, _CHUNK))):
            await response.write(data)
            left -= len(data)
    await response.write_eof()
    return response


async def delete_file(http: web.Request) -> web.Response:
    """Forget a file."""
    read_query(http.query, ())
    file_id = http.match_info["file_id"]
    await keys.storage(http).files.delete(file_id, http[keys.PRINCIPAL].team)
    return json_reply(FileDeleted(file_id))


async def _file(http: web.Request) -> StoredFile:
    read_query(http.query, ())
    return await keys.storage(http).files.get(http.match_info["file_id"], http[keys.PRINCIPAL].team)


async def _read_form(parts: MultipartReader, incoming: Upload, arriving: Arriving) -> _Form:
    form = _Form()
    while (part := await parts.next()) is not None:
        name = part.name if isinstance(part, BodyPartReader) else None
        if not isinstance(part, BodyPartReader) or name not in FORM_FIELDS:
            accepted = ", ".join(f"'{known}'" for known in FORM_FIELDS)
            raise invalid(f"Unknown form field '{(name or '')[:80]}'. Accepted: {accepted}.", (name or "")[:80] or None,
                          "unknown_parameter")  # fmt: skip
        if name in form.fields or (name == "file" and form.file):
            raise invalid(f"The form field '{name}' is given more than once.", name, "invalid_value")
        if name == "file":
            form.file, form.filename = True, part.filename
            while chunk := await part.read_chunk(_CHUNK):
                arriving.came(len(chunk))
                await incoming.write(chunk)
        else:
            form.fields[name] = await _short(part, name)
    return form


async def _short(part: BodyPartReader, name: str) -> str:
    value = b""
    while chunk := await part.read_chunk(_MAX_FIELD + 1):
        value += chunk
        if len(value) > _MAX_FIELD:
            raise invalid(f"Invalid '{name}': expected at most {_MAX_FIELD} bytes.", name, "string_above_max_length")
    return value.decode()
