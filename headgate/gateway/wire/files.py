"""`/v1/files`: the wire types, and what an upload's form may say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, cast

from msgspec import Meta, Struct
from multidict import MultiMapping

from headgate.gateway.storage.files import Order, Purpose, StoredFile
from headgate.gateway.wire.errors import given, invalid, one_of, unsupported
from headgate.gateway.wire.query import page_size, read_query

PURPOSES = ("batch", "batch_output")
FORM_FIELDS = ("file", "purpose", "expires_after[anchor]", "expires_after[seconds]")
LIST_PARAMETERS = ("after", "limit", "order", "purpose")
MAX_PAGE = 10_000
LEAST_EXPIRY_S, MOST_EXPIRY_S = 3600, 2_592_000
MAX_NAME = 255


class FileBody(Struct):
    """A stored file. Times are seconds since the epoch."""

    id: str
    bytes: int
    created_at: int
    filename: str
    purpose: Purpose
    expires_at: int | None
    status: Literal["processed"] = "processed"
    object: Literal["file"] = "file"


class FileList(Struct):
    """A page of the team's files."""

    data: list[FileBody]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: Literal["list"] = "list"


class FileDeleted(Struct):
    """A file is gone."""

    id: str
    deleted: Literal[True] = True
    object: Literal["file"] = "file"


class FileForm(Struct, rename={"anchor": "expires_after[anchor]", "seconds": "expires_after[seconds]"}):
    """The form of an upload."""

    file: Annotated[str, Meta(extra_json_schema={"format": "binary"}, description="JSON Lines, for `batch`.")]
    purpose: Literal["batch"]
    anchor: Literal["created_at"] | None = None
    seconds: Annotated[int, Meta(ge=LEAST_EXPIRY_S, le=MOST_EXPIRY_S)] | None = None


class FileQuery(Struct, frozen=True):
    """Which part of the list."""

    after: str | None
    limit: int
    order: Order
    purpose: str | None


def file_body(file: StoredFile) -> FileBody:
    """As clients see it."""
    return FileBody(file.id, file.bytes, file.created_at, file.filename, file.purpose, file.expires_at)


def file_list(files: Sequence[StoredFile], *, more: bool) -> FileList:
    """As clients see it."""
    data = [file_body(file) for file in files]
    return FileList(data, data[0].id if data else None, data[-1].id if data else None, more)


def parse_file_query(query: MultiMapping[str]) -> FileQuery:
    """The query of a list; ApiError 400 for what it may not say."""
    asked = read_query(query, LIST_PARAMETERS)
    order = one_of("order", asked.get("order"), ("asc", "desc")) or "desc"
    purpose = one_of("purpose", asked.get("purpose"), PURPOSES)
    return FileQuery(
        asked.get("after"), page_size(asked.get("limit"), MAX_PAGE, MAX_PAGE), cast("Order", order), purpose
    )


def check_purpose(wanted: str | None) -> Purpose:
    """The purpose of an upload; ApiError 400 where nothing here reads such files."""
    purpose = given(wanted, "purpose")
    if purpose != "batch":
        raise unsupported("purpose", f"'purpose' is '{purpose[:80]}', but only files for 'batch' are read here.")
    return "batch"


def check_name(wanted: str | None) -> str:
    """The name of an upload; it is only told again, never a path."""
    name = wanted or "upload"
    if len(name) > MAX_NAME or not name.isprintable():
        message = f"Invalid 'file': expected a file name of at most {MAX_NAME} printable characters."
        raise invalid(message, "file", "invalid_value")
    return name


def check_expiry(fields: Mapping[str, str]) -> int | None:
    """Seconds after which an upload is to be forgotten; ApiError 400 where anchor and seconds do not go together."""
    anchor, seconds = fields.get("expires_after[anchor]"), fields.get("expires_after[seconds]")
    if anchor is None and seconds is None:
        return None
    if one_of("expires_after[anchor]", anchor, ("created_at",)) is None:
        raise invalid("Missing required parameter: 'expires_after.anchor'.", "expires_after[anchor]")
    if seconds is None or not seconds.isascii() or not seconds.isdigit() or len(seconds) > 9:
        shown = "nothing" if seconds is None else f"'{seconds[:80]}'"
        message = f"Invalid 'expires_after[seconds]': {shown}. Expected an integer."
        raise invalid(message, "expires_after[seconds]", "invalid_type")
    if not LEAST_EXPIRY_S <= int(seconds) <= MOST_EXPIRY_S:
        message = (
            f"Invalid 'expires_after[seconds]': {seconds}. Expected {LEAST_EXPIRY_S} (an hour) to {MOST_EXPIRY_S} "
            "(30 days)."
        )
        raise invalid(message, "expires_after[seconds]", "invalid_value")
    return int(seconds)
