"""`/v1/batches`: the wire types, and the lines of input and result files."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta, Struct
from multidict import MultiMapping

from headgate.gateway.wire.decode import decode
from headgate.gateway.wire.errors import ApiError, invalid, one_of
from headgate.gateway.wire.files import LEAST_EXPIRY_S, MOST_EXPIRY_S
from headgate.gateway.wire.labels import Metadata
from headgate.gateway.wire.query import page_size, read_query

Endpoint = Literal["/v1/chat/completions", "/v1/completions", "/v1/embeddings"]
Status = Literal["validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"]
ENDPOINTS: tuple[str, ...] = get_args(Endpoint)
ACTIVE: tuple[Status, ...] = ("validating", "in_progress", "finalizing", "cancelling")
WINDOW = "24h"
WINDOW_S = 24 * 3600
LIST_PARAMETERS = ("after", "limit")
DEFAULT_PAGE, MAX_PAGE = 20, 100
MAX_CUSTOM_ID = 512


class ExpiresAfter(Struct, forbid_unknown_fields=True):
    """When result files are to be forgotten."""

    anchor: Annotated[str, Meta(extra_json_schema={"enum": ["created_at"]})]
    seconds: Annotated[int, Meta(ge=LEAST_EXPIRY_S, le=MOST_EXPIRY_S)]


class BatchRequest(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """The body of `POST /v1/batches`."""

    input_file_id: Annotated[str, Meta(min_length=1, description="Of a file uploaded for `batch`.")]
    endpoint: Annotated[str, Meta(extra_json_schema={"enum": list(ENDPOINTS)})]
    completion_window: Annotated[str, Meta(extra_json_schema={"enum": [WINDOW]})]
    metadata: Metadata | None = None
    output_expires_after: ExpiresAfter | None = None


class RequestCounts(Struct):
    """Lines of the input file, and what became of them by now."""

    total: int = 0
    completed: int = 0
    failed: int = 0


class InputDetails(Struct):
    """Of the prompts."""

    cached_tokens: int = 0


class OutputDetails(Struct):
    """Of the answers."""

    reasoning_tokens: int = 0


class BatchUsage(Struct):
    """Tokens of all answers by now."""

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    input_tokens_details: InputDetails = msgspec.field(default_factory=InputDetails)
    output_tokens_details: OutputDetails = msgspec.field(default_factory=OutputDetails)


class BatchError(Struct):
    """What is wrong with an input file, or why a batch ended before its end."""

    code: str | None
    message: str
    param: str | None = None
    line: int | None = None


class BatchErrors(Struct):
    """What is wrong."""

    data: list[BatchError]
    object: Literal["list"] = "list"


class BatchBody(Struct, kw_only=True):
    """A batch. Times are seconds since the epoch."""

    id: str
    endpoint: str
    input_file_id: str
    completion_window: str
    status: Status
    created_at: int
    expires_at: int
    model: str | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    errors: BatchErrors | None = None
    in_progress_at: int | None = None
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    request_counts: RequestCounts = msgspec.field(default_factory=RequestCounts)
    usage: BatchUsage = msgspec.field(default_factory=BatchUsage)
    metadata: dict[str, str] | None = None
    object: Literal["batch"] = "batch"


class BatchList(Struct):
    """A page of the team's batches, the newest first."""

    data: list[BatchBody]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: Literal["list"] = "list"


class InputLine(Struct, forbid_unknown_fields=True):
    """A line of an input file: a request, and the name under which its result is found."""

    custom_id: Annotated[str, Meta(min_length=1, max_length=MAX_CUSTOM_ID)]
    url: str
    body: msgspec.Raw
    method: str = "POST"


class LineResponse(Struct):
    """What the endpoint said."""

    status_code: int
    request_id: str
    body: msgspec.Raw


class LineError(Struct):
    """Why the endpoint was not asked."""

    code: str
    message: str


class ResultLine(Struct):
    """A line of an output or error file."""

    id: str
    custom_id: str
    response: LineResponse | None
    error: LineError | None


def parse_batch(body: bytes) -> BatchRequest:
    """The request in `body`; ApiError 400 where it is malformed or asks for what is not done here."""
    wire = decode(body, BatchRequest)
    one_of("endpoint", wire.endpoint, ENDPOINTS)
    one_of("completion_window", wire.completion_window, (WINDOW,))
    if wire.output_expires_after is not None:
        one_of("output_expires_after.anchor", wire.output_expires_after.anchor, ("created_at",))
    return wire


def parse_line(line: bytes, endpoint: str) -> InputLine:
    """A line of an input file; ApiError 400 where it is no request to the endpoint. The body is not looked into."""
    wire = decode(line, InputLine)
    one_of("method", wire.method, ("POST",))
    if wire.url != endpoint:
        raise invalid(f"Invalid value for 'url': '{wire.url[:80]}', but the batch is for '{endpoint}'.", "url",
                      "mismatched_url")  # fmt: skip
    if not bytes(wire.body).lstrip().startswith(b"{"):
        raise invalid("Invalid type for 'body': expected an object.", "body", "invalid_type")
    return wire


def parse_batch_query(query: MultiMapping[str]) -> tuple[str | None, int]:
    """`after` and `limit` of a list; ApiError 400 for what the query may not say."""
    given = read_query(query, LIST_PARAMETERS)
    return given.get("after"), page_size(given.get("limit"), DEFAULT_PAGE, MAX_PAGE)


def batch_list(batches: list[BatchBody], *, more: bool) -> BatchList:
    """As clients see it."""
    return BatchList(batches, batches[0].id if batches else None, batches[-1].id if batches else None, more)


def refused(error: ApiError, request_id: str) -> LineResponse:
    """What a client would have got for a request that was refused."""
    return LineResponse(error.status, request_id, msgspec.Raw(error.encode()))
