"""What goes wrong with an upstream: told apart by what can be done about it, and in what words clients hear of it."""

from __future__ import annotations

import email.utils
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from headgate.gateway.wire.errors import ASLEEP, OVERLOADED, ApiError, Refused, retry_after

Kind = Literal[
    "unreachable",
    "timeout",
    "overloaded",
    "failed",
    "broken",
    "cut",
    "stalled",
    "context",
    "policy",
    "refused",
    "setup",
]
"""`unreachable`: no connection; `timeout`: nothing in time; `overloaded`: it says that it is; `failed`: it says that it
failed; `broken`: it answers what is no answer; `cut`, `stalled`: an answer that ended, or went silent, before its end;
`context`, `policy`, `refused`: it refuses this request; `setup`: it refuses us, until an operator changes something."""

_AGAIN = frozenset({"unreachable", "timeout", "overloaded", "failed", "broken", "cut", "stalled"})
_STATUS: Mapping[Kind, tuple[int, str]] = {
    "unreachable": (502, "upstream_unreachable"),
    "timeout": (504, "upstream_timeout"),
    "overloaded": (503, "upstream_overloaded"),
    "failed": (502, "upstream_failed"),
    "broken": (502, "upstream_broken"),
    "cut": (502, "upstream_cut"),
    "stalled": (504, "upstream_stalled"),
    "context": (400, "context_length_exceeded"),
    "policy": (400, "content_policy_violation"),
    "refused": (400, "upstream_refused"),
    "setup": (502, "upstream_setup"),
}
_CAUSES: Mapping[str, str] = {
    "context_length_exceeded": "context",
    "content_policy_violation": "policy",
    OVERLOADED: "overloaded",
    "upstream_overloaded": "overloaded",
    "upstream_down": "down",
    "out_of_memory": "memory",
    ASLEEP: "asleep",
    **{code: "down" for status, code in _STATUS.values() if status in (502, 504)},
}

_CONTEXT = re.compile(
    r"context[ _-]?(?:length|window|size)|maximum (?:input|sequence|prompt) length|(?:prompt|input) is too long|"
    r"exceeds? the (?:available|maximum|model'?s) context|too many (?:input )?tokens|input_tokens.{0,40}must be <",
    re.IGNORECASE,
)
_POLICY = re.compile(r"content[ _-]?(?:policy|filter)|content management policy|moderation", re.IGNORECASE)
_LONGEST_MESSAGE = 500
_LONGEST_HINT_S = 86_400.0


def cause_of(error: ApiError) -> str:
    """Why another model is sent for where one answers with this: a stable token of the route's reason."""
    if isinstance(error, Refused):
        return "budget" if error.budget else "limit"
    return _CAUSES.get(error.code or "", "refused" if 400 <= error.status < 429 else "failed")


@dataclass(slots=True)
class Failure(Exception):
    """One attempt came to nothing.

    Attributes:
        kind: what can be done about it.
        message: for clients and the log; holds no secret.
        after_s: when the upstream wants to be asked again, where it says so.
        again: whether it says that asking again is of use; None: it says nothing.
        status: of its reply, where that is the cause.
        param, code: as the upstream names them, where it refuses the request.
        cause: what the system says of it, for the log alone: it has addresses of ours.
    """

    kind: Kind
    message: str
    after_s: float | None = None
    again: bool | None = None
    status: int | None = None
    param: str | None = None
    code: str | None = None
    cause: str = ""

    def __str__(self) -> str:
        return f"{self.message.rstrip('.')}: {self.cause}" if self.cause else self.message

    @property
    def retriable(self) -> bool:
        """Whether the same request may fare better a moment later."""
        return self.kind in _AGAIN if self.again is None else self.again

    def told(self, upstream: str) -> ApiError:
        """The error that a client gets."""
        status, code = _STATUS[self.kind]
        headers: dict[str, str] = {}
        if self.kind == "refused":
            status, code = self.status or status, self.code or code
        elif self.kind == "setup" or (self.again is False and status >= 500):
            headers = {"x-should-retry": "false"}
        elif self.kind == "overloaded":
            headers = retry_after(1.0 if self.after_s is None else self.after_s)
        family = "invalid_request_error" if status < 500 else "server_error"
        return ApiError(status, f"The upstream '{upstream}' {self.message}", family, self.param, code, headers)


class _ErrorDetail(msgspec.Struct):
    message: Any = None
    type: Any = None
    param: Any = None
    code: Any = None


def of_reply(status: int, headers: Mapping[str, str], body: bytes, hide: Callable[[str], str], now: float) -> Failure:
    """What a reply other than 200 means.

    Args:
        status: of the reply.
        headers: of the reply, case-insensitive.
        body: its beginning.
        hide: takes the secrets out of a text.
        now: seconds since the epoch.
    """
    detail = _detail(body)
    said, code = hide(_text(detail.message)), _text(detail.code) or _text(detail.type)
    after_s, again = _hints(headers, now)
    shown = f": {said}" if said else "."
    if 300 <= status < 400:
        return Failure("setup", f"answered with a redirect ({status}), which is not followed.", status=status)
    if status in (401, 403):
        # What it says may name the account.
        return Failure("setup", f"refused our credentials ({status}).", again=again, status=status)
    if status == 404:
        return Failure("setup", f"does not know the model or the path (404){shown}", again=again, status=status)
    if status == 402 or (status == 429 and code == "insufficient_quota"):
        return Failure("overloaded", f"has no quota left ({status}).", after_s, again is True, status)
    if status == 429:
        return Failure("overloaded", "takes no more requests for now (429).", after_s, again, status)
    if status in (503, 529):
        return Failure("overloaded", f"is overloaded ({status}).", after_s, again, status)
    if status in (408, 409, 425) or status >= 500:
        return Failure("failed", f"failed ({status}).", after_s, again, status)
    return of_detail(detail, hide, status, again)


def of_event(error: Any, hide: Callable[[str], str]) -> Failure:
    """What an error within a stream means."""
    try:
        detail = msgspec.convert(error, _ErrorDetail) if isinstance(error, dict) else _ErrorDetail(error)
    except msgspec.ValidationError:
        detail = _ErrorDetail()
    status = detail.code if isinstance(detail.code, int) else 500
    if status == 429:
        return Failure("overloaded", "takes no more requests for now.", status=status)
    if 400 <= status < 500 or _CONTEXT.search(_text(detail.message)) or _POLICY.search(_text(detail.code)):
        return of_detail(detail, hide, min(status, 400), None)
    return Failure("failed", "failed while it answered.", status=status)


def of_detail(detail: _ErrorDetail, hide: Callable[[str], str], status: int, again: bool | None) -> Failure:
    """A refusal of the request, by what it says."""
    said, code = hide(_text(detail.message)), _text(detail.code)
    param = _text(detail.param) or None
    shown = f"refused the request ({status}): {said}" if said else f"refused the request ({status})."
    if code == "context_length_exceeded" or (_CONTEXT.search(said) and not _POLICY.search(code)):
        return Failure("context", shown, None, again, status, param)
    if _POLICY.search(code) or _POLICY.search(_text(detail.type)):
        return Failure("policy", shown, None, again, status, param)
    return Failure(
        "refused", shown, None, again, status if status in (400, 413, 415, 422) else 400, param, code or None
    )


def hiding(secrets: tuple[str, ...]) -> Callable[[str], str]:
    """Takes these out of a text, and what else looks like a key or like a picture's data."""
    known = sorted((s for s in secrets if len(s) >= 4), key=len, reverse=True)

    def hide(text: str) -> str:
        for secret in known:
            text = text.replace(secret, "…")
        return _DATA.sub("…", _KEY.sub("…", text))

    return hide


_KEY = re.compile(r"\b(?:sk|pk|hf|gsk|xai)[-_][A-Za-z0-9_*-]{6,}|(?i:bearer) +[A-Za-z0-9._~+/*-]{6,}=*")
# Also without what says that it is base64: no word is as long.
_DATA = re.compile(r"(?<=;base64,)[A-Za-z0-9+/]+=*|[A-Za-z0-9+/]{200,}=*")


def _detail(body: bytes) -> _ErrorDetail:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _ErrorDetail()
    if not isinstance(found, dict):
        return _ErrorDetail()
    inner = found.get("error", found)
    if isinstance(inner, str):
        return _ErrorDetail(inner)
    # FastAPI's own refusals say `detail`.
    return (
        msgspec.convert(inner, _ErrorDetail)
        if isinstance(inner, dict) and "detail" not in inner
        else (_ErrorDetail(found.get("detail")))
    )


def _text(value: Any) -> str:
    return "" if value is None else str(value)[:_LONGEST_MESSAGE]


def _hints(headers: Mapping[str, str], now: float) -> tuple[float | None, bool | None]:
    """When to come again, and whether to."""
    again = {"true": True, "false": False}.get(headers.get("x-should-retry", "").lower())
    after_s = _number(headers.get("retry-after-ms"), 1e-3)
    if after_s is None and (given := headers.get("retry-after")) is not None:
        after_s = _number(given, 1.0)
        if after_s is None:
            after_s = _date(given, now)
    return after_s, again


def _number(text: str | None, unit_s: float) -> float | None:
    try:
        value = float(text or "") * unit_s
    except ValueError:
        return None
    return min(value, _LONGEST_HINT_S) if value >= 0 else None


def _date(text: str, now: float) -> float | None:
    try:
        at = email.utils.parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
    return min(max(0.0, at - now), _LONGEST_HINT_S)
