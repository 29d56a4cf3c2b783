"""The OpenAI error shape: every failure a client sees is one of these."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import msgspec

if TYPE_CHECKING:
    from headgate.gateway.road.request import ChatRequest

V = TypeVar("V")

OVERLOADED = "overloaded"
ASLEEP = "model_asleep"


class ErrorDetail(msgspec.Struct, frozen=True):
    """What went wrong. All four keys are always present."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(msgspec.Struct, frozen=True):
    """The body of every reply that is not a success."""

    error: ErrorDetail


@dataclass(slots=True)
class ApiError(Exception):
    """A failure to be told to the client.

    Attributes:
        status: HTTP status.
        message: what was wrong, with the value and what would be accepted.
        type: OpenAI's error family.
        param: dotted path of the offending field, or None.
        code: machine-readable reason, or None.
        headers: extra reply headers, such as `Retry-After`.
    """

    status: int
    message: str
    type: str = "invalid_request_error"
    param: str | None = None
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.message

    @property
    def fault(self) -> bool:
        """Whether whoever was asked failed; that he has too much to do, or sleeps, is no fault of his."""
        return self.status >= 500 and self.code not in (OVERLOADED, ASLEEP)

    @property
    def told(self) -> str:
        """The message as JSON can hold it: a header that it repeats may have bytes that are not UTF-8."""
        return self.message.encode("utf-8", "replace").decode()

    def encode(self) -> bytes:
        """The JSON body."""
        return msgspec.json.encode(ErrorBody(ErrorDetail(self.told, self.type, self.param, self.code)))


@dataclass(slots=True)
class Refused(ApiError):
    """429: beyond a limit or a budget of who asks.

    Attributes:
        reason: which: `requests`, `tokens` or `concurrency`, or the budget's name.
        budget: whether it is a budget.
    """

    reason: str = ""
    budget: bool = False


def renamed(error: ApiError, names: Mapping[str, str]) -> ApiError:
    """The error with parameters of chats under the names that another protocol has for them."""
    own = None if error.param is None else names.get(error.param)
    if own is not None:
        error.message = error.message.replace(f"'{error.param}'", f"'{own}'")
        error.param = own
    return error


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """400: the request cannot be served as it was written."""
    return ApiError(400, message, param=param, code=code)


def unsupported(param: str, message: str) -> ApiError:
    """400: a known parameter at a value this server does not implement. Never dropped in silence."""
    return ApiError(400, message, param=param, code="unsupported_parameter")


def given(value: V | None, param: str) -> V:
    """A value that must be there; ApiError 400 where it is not."""
    if value is None:
        raise invalid(f"Missing required parameter: '{param}'.", param, "missing_required_parameter")
    return value


def one_of(param: str, value: str | None, accepted: tuple[str, ...]) -> str | None:
    """The value, where it is one of those accepted or not there; ApiError 400 where it is another."""
    if value is not None and value not in accepted:
        supported = ", ".join(f"'{name}'" for name in accepted)
        message = f"Invalid value for '{param}': '{value[:80]}'. Supported values are: {supported}."
        raise invalid(message, param, "invalid_value")
    return value


def refuse_unknown(request: ChatRequest) -> None:
    """ApiError 400 for the first field of a request that nobody here knows, unless such are left out."""
    for name, _ in () if request.drops else request.unknown:
        raise invalid(f"Unknown parameter: '{name}'.", name, "unknown_parameter")


def refuse_variants(names: Iterable[str], known: Collection[str]) -> None:
    """ApiError 400 for a known name in other letters: servers in Go read it in place of that one."""
    for name in names:
        if name not in known and (meant := name.casefold()) in known:
            raise invalid(f"Unknown parameter: '{name}'. Did you mean '{meant}'?", name, "unknown_parameter")


def model_not_found(name: str, known: str, served: str = "") -> ApiError:
    """404: no such model, or one that does not serve what is asked for; `known` lists what would be accepted."""
    wrong = f"does not serve {served}" if served else "does not exist"
    return ApiError(404, f"The model '{name}' {wrong}. Available: {known}.", param="model", code="model_not_found")


def context_exceeded(
    limit: int, prompt_tokens: int, completion_tokens: int | None, prompt: str = "messages", *, at_least: bool = False
) -> ApiError:
    """400: prompt, or prompt and completion together, are longer than the model's context. Counts are tokens.

    `prompt`: the field that the prompt is in; `at_least`: it has more tokens, perhaps.
    """
    if completion_tokens is None:
        some = f"{'at least ' if at_least else ''}{prompt_tokens}"
        asked = f"your prompt has {some} tokens, which leaves no room for a completion"
    else:
        asked = (
            f"you requested {prompt_tokens + completion_tokens} tokens "
            f"({prompt_tokens} in the prompt, {completion_tokens} in the completion)"
        )
    message = (
        f"This model's maximum context length is {limit} tokens. However, {asked}. "
        "Please reduce the length of the prompt or the completion."
    )
    param = prompt if completion_tokens is None else "max_tokens"
    return ApiError(400, message, param=param, code="context_length_exceeded")


def invalid_api_key(message: str) -> ApiError:
    """401: no key, or a key nobody issued."""
    return ApiError(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})


def not_permitted(message: str, param: str | None = None) -> ApiError:
    """403: known, but not allowed to do this."""
    return ApiError(403, message, type="permission_error", param=param, code="not_permitted")


def too_large(limit: int) -> ApiError:
    """413: the body is above `limit` bytes."""
    return ApiError(413, f"The request body is larger than {limit} bytes.", code="request_too_large")


def not_found(what: str, name: str) -> ApiError:
    """404: the caller's team has no such object."""
    return ApiError(404, f"No such {what} object: {name[:80]}.", param="id", code="not_found")


def conflict(message: str, param: str, code: str) -> ApiError:
    """409: not while things stand as they do; asking again changes nothing."""
    return ApiError(409, message, param=param, code=code, headers={"x-should-retry": "false"})


def adapter_gone(name: str) -> ApiError:
    """503: an adapter was taken away, or came to be another, while a request was on its way to it; clients ask again,
    and hear then whether there is one.
    """
    message = f"The adapter '{name}' was changed or taken away while the request was on its way to it. Retry."
    return ApiError(503, message, type="server_error", code=OVERLOADED, headers={"Retry-After": "1"})


def storage_off(why: str, *, failed: bool) -> ApiError:
    """This server keeps no files: 404 where it is not to, 503 where it cannot."""
    message = f"This server keeps no files and runs no batches: {why}."
    if not failed:
        return ApiError(404, message, code="storage_off")
    headers = {"x-should-retry": "false"}
    return ApiError(503, message, type="server_error", code="storage_off", headers=headers)


def disk_failed(what: str, error: Exception) -> ApiError:
    """507: the server's disk does not take it, as when it is full."""
    message = f"{what}: {getattr(error, 'strerror', None) or error}."
    return ApiError(507, message, type="server_error", code="storage_failed", headers={"x-should-retry": "false"})


def not_cached(verdict: str, reason: str) -> ApiError:
    """504 (RFC 9111): the client wants a stored answer or none, and there is none to serve. No client need retry."""
    message = (
        f"No stored answer can be served (x-headgate-cache: {verdict}, {reason}), and the request's "
        "'cache-control: only-if-cached' forbids to generate one."
    )
    headers = {"x-should-retry": "false", "x-headgate-cache": verdict}
    return ApiError(504, message, param="cache-control", code="not_cached", headers=headers)


def rate_limited(
    message: str, after_s: float | None, param: str | None = None, *, reason: str, budget: bool = False
) -> Refused:
    """429: for now. The official clients come again after so many seconds, and never where there are none.

    `reason`, `budget`: see Refused.
    """
    headers = {"x-should-retry": "false"} if after_s is None else retry_after(after_s)
    return Refused(429, message, "rate_limit_error", param, "rate_limit_exceeded", headers, reason, budget)


def quota_spent(message: str, reason: str) -> Refused:
    """429: the budget `reason` is spent, and coming again soon is of no use."""
    headers = {"x-should-retry": "false"}
    return Refused(429, message, "insufficient_quota", None, "insufficient_quota", headers, reason, budget=True)


def retry_after(seconds: float) -> dict[str, str]:
    """When to come again, both as HTTP has it and to the millisecond."""
    return {"Retry-After": str(max(1, math.ceil(seconds))), "retry-after-ms": str(max(1, math.ceil(seconds * 1e3)))}


def overloaded(message: str, after_s: float = 1.0) -> ApiError:
    """503: not now; the official clients retry after the given seconds."""
    return ApiError(503, message, type="server_error", code=OVERLOADED, headers=retry_after(after_s))


def asleep(message: str, after_s: float | None) -> ApiError:
    """503: the model sleeps; the official clients retry after so many seconds, and never where there are none."""
    headers = {"x-should-retry": "false"} if after_s is None else retry_after(after_s)
    return ApiError(503, message, type="server_error", code=ASLEEP, headers=headers)


def out_of_memory() -> ApiError:
    """503: the engine's device has no memory for a single token more of the request; the official clients retry."""
    message = "The model's device ran out of memory for this request; the others go on. Retry, or send a shorter one."
    return ApiError(503, message, type="server_error", code="out_of_memory", headers=retry_after(1.0))


def too_late(message: str, after_s: float) -> ApiError:
    """408: the answer did not begin in the time that the client has; the official clients retry after the seconds."""
    return ApiError(408, message, type="timeout_error", code="deadline_exceeded", headers=retry_after(after_s))


def upstream_down(name: str, after_s: float) -> ApiError:
    """503: another server failed lately, and is left alone for so many seconds."""
    message = f"The upstream '{name}' is down and is not asked now."
    return ApiError(503, message, type="server_error", code="upstream_down", headers=retry_after(max(after_s, 0.1)))


def server_error(message: str = "The server had an error while processing your request.") -> ApiError:
    """500: our fault; details are in the log under the request id."""
    return ApiError(500, message, type="server_error", code="internal_error")
