"""The faults, each with its script and with what a client should see of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from headgate.bench.faults.server import ACCOUNT, DONE, FINISH, GOOD, ROLE, TEXT, USAGE, Script, Wire, delta, event

WHOLE = "whole answer"


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to fail.

    Attributes:
        name: short, as a part of a URL.
        what: what the server does.
        script: how it does it; None where there is nothing to talk to.
        streamed: what a client sees that streams.
        plain: what one sees that does not; nothing: the same.
        again: whose attempt is followed by another: `both`, `plain` only, for whom nothing was sent, or `none`.
        at: `server`; `closed`, a port nobody listens at; or `tls`, where TLS is expected and never answered.
    """

    name: str
    what: str
    script: Script | None
    streamed: str
    plain: str = ""
    again: Literal["both", "plain", "none"] = "both"
    at: Literal["server", "closed", "tls"] = "server"

    @property
    def waits(self) -> str:
        """The timeout by which it shows; empty where something comes."""
        if self.at == "tls":
            return "connect_s"
        return "first_token_s" if "timeout" in self.streamed else "stall_s" if "stalled" in self.streamed else ""

    def seen(self, *, streams: bool, once: bool) -> str:
        """What a client sees; `once`: where only the first attempt fails."""
        if once and self.retries(streams=streams):
            return WHOLE
        return self.streamed if streams else self.plain or self.streamed

    def retries(self, *, streams: bool) -> bool:
        """Whether a second attempt follows."""
        return self.again == "both" or (self.again == "plain" and not streams)


def _replies(status: str, body: Mapping[str, Any] | bytes, **headers: str) -> Script:
    """A whole reply; `headers` as for `Wire.reply`."""

    async def script(wire: Wire) -> None:
        await wire.reply(status, body, **headers)

    return script


def _says(status: str, message: str, **detail: str) -> Script:
    """A reply with an error."""
    return _replies(status, {"error": {"message": message, **detail}})


def _busy(**headers: str) -> Script:
    return _replies("429 Too Many Requests", {"error": {"message": "slow down"}}, **headers)


def _page(status: str, text: bytes) -> Script:
    return _replies(status, text, Content_Type="text/html")


def _streams(*events: bytes, whole: bool = False, silent: bool = False) -> Script:
    """Some events; then the end of the stream where it is `whole`, or else the end of the connection or silence."""

    async def script(wire: Wire) -> None:
        await wire.stream(*events, whole=whole)
        if silent:
            await wire.silence()

    return script


def _begins(*events: bytes, ends: bool = False) -> Script:
    """The first words, and a little later these events; then the end of the stream, or else of the connection."""

    async def script(wire: Wire) -> None:
        await wire.stream(ROLE, TEXT[0])
        await wire.apart()
        await wire.more(*events)
        if ends:
            await wire.end()

    return script


async def _silent(wire: Wire) -> None:
    await wire.silence()


async def _leaves(_wire: Wire) -> None:
    """The connection is closed behind every script."""


async def _split_frames(wire: Wire) -> None:
    await wire.stream()
    for byte in b"\xef\xbb\xbf: hello\r\n\r\n" + b"".join(GOOD).replace(b"\n", b"\r\n"):
        await wire.more(bytes([byte]))
    await wire.end()


async def _no_http(wire: Wire) -> None:
    await wire.raw(b"\x15\x03\x01 this is another protocol\r\n\r\n")


async def _long_line(wire: Wire) -> None:
    await wire.stream(ROLE, TEXT[0])
    await wire.apart()
    for _ in range(3):
        await wire.more(b"data: " + b"x" * 1_000_000)
    await wire.silence()


async def _wrong_length(wire: Wire) -> None:
    body = b"".join(GOOD[:2])
    await wire.head("200 OK", {"Content-Type": "text/event-stream", "Content-Length": str(len(body) + 1000)})
    await wire.raw(body)
    await wire.apart()


async def _redirect(wire: Wire) -> None:
    await wire.reply("307 Temporary Redirect", b"", Location=f"{wire.elsewhere}/v1/chat/completions")


_BAD_JSON = b'data: {"choices": [{]}\n\n'
_NO_MEMORY = event({"error": {"message": "CUDA out of memory", "code": 500}})
_MORE = delta({"content": " more"})
_CHOICE = {"index": 0, "message": {"role": "assistant", "content": "Hello!"}, "finish_reason": "stop"}
_TOO_LONG = _says(
    "400 Bad Request", "This model's maximum context length is 10 tokens.", code="context_length_exceeded"
)
_FILTERED = _says("400 Bad Request", "The response was filtered", code="content_filter")
_UNKNOWN = _says("400 Bad Request", "top_k is not supported", param="top_k", code="unknown_parameter")
_WRONG_KEY = _says("401 Unauthorized", "Incorrect API key provided: sk-bench-0123456789")


def _within(name: str, what: str, script: Script, code: str) -> Fault:
    """One within the text: who streams sees what came and the error, who does not is asked for again."""
    status = 504 if code == "upstream_stalled" else 502
    return Fault(name, what, script, f"Hel, then error {code}", f"{status} {code}", "plain")


FAULTS = (
    Fault("refused", "nobody listens", None, "502 upstream_unreachable", at="closed"),
    Fault("slow-connect", "TLS is never answered", None, "502 upstream_unreachable", at="tls"),
    Fault("no-reply", "closes without a reply", _leaves, "502 upstream_unreachable"),
    Fault("slow-headers", "takes the request, says nothing", _silent, "504 upstream_timeout"),
    Fault("slow-first-token", "headers and role, then silence", _streams(ROLE, silent=True), "504 upstream_timeout"),
    Fault("cut-before-text", "closes behind the role", _streams(ROLE), "502 upstream_cut"),
    _within("cut", "closes within the text", _begins(), "upstream_cut"),
    _within("ends-early", "ends the body within the text", _begins(ends=True), "upstream_cut"),
    _within("done-early", "[DONE] without a finish", _begins(DONE), "upstream_cut"),
    _within("stalls", "falls silent within the text", _streams(ROLE, TEXT[0], silent=True), "upstream_stalled"),
    _within("bad-json", "an event that is no JSON", _begins(_BAD_JSON, FINISH, DONE), "upstream_broken"),
    _within("half-frame", "ends within an event", _begins(TEXT[1][:25], ends=True), "upstream_cut"),
    _within("error-event", "an error within the stream", _begins(_NO_MEMORY), "upstream_failed"),
    _within("long-line", "an event of 3 MB", _long_line, "upstream_broken"),
    _within("wrong-length", "Content-Length beyond the body", _wrong_length, "upstream_cut"),
    Fault("429-hint", "429, retry-after-ms: 20", _busy(retry_after_ms="20"), "503 upstream_overloaded"),
    Fault("429", "429 without a hint", _busy(), "503 upstream_overloaded"),
    Fault("429-long", "429, Retry-After: 60", _busy(Retry_After="60"), "503 upstream_overloaded", again="none"),
    Fault(
        "429-no", "429, x-should-retry: false", _busy(x_should_retry="false"), "503 upstream_overloaded", again="none"
    ),
    Fault(
        "500", "500 with a page of HTML", _page("500 Internal Server Error", b"<h1>Oops</h1>"), "502 upstream_failed"
    ),
    Fault(
        "503",
        "503, Retry-After: 0",
        _replies("503 Service Unavailable", {"error": {"message": "no worker"}}, Retry_After="0"),
        "503 upstream_overloaded",
    ),
    Fault("html", "200 with a page of HTML", _page("200 OK", b"<html>Please log in</html>"), "502 upstream_broken"),
    Fault("no-http", "another protocol", _no_http, "502 upstream_broken"),
    Fault("redirect", "307 to another host", _redirect, "502 upstream_setup", again="none"),
    Fault("401", "401, repeating the key", _WRONG_KEY, "502 upstream_setup", again="none"),
    Fault(
        "404",
        "404, no such model",
        _says("404 Not Found", "The model does not exist"),
        "502 upstream_setup",
        again="none",
    ),
    Fault("context", "400, context too long", _TOO_LONG, "400 context_length_exceeded", again="none"),
    Fault("policy", "400, content filter", _FILTERED, "400 content_policy_violation", again="none"),
    Fault("bad-request", "400, another parameter", _UNKNOWN, "400 unknown_parameter", again="none"),
    Fault("split-frames", "CRLF, a BOM, a byte at a time", _split_frames, WHOLE, again="none"),
    Fault(
        "not-streamed",
        "JSON instead of a stream",
        _replies("200 OK", {"choices": [_CHOICE], "usage": USAGE}),
        WHOLE,
        again="none",
    ),
    Fault("closes-after-account", "no [DONE], closes", _streams(ROLE, *TEXT, FINISH, ACCOUNT), WHOLE, again="none"),
    Fault("no-account", "no usage at all", _streams(ROLE, *TEXT, FINISH, DONE, whole=True), WHOLE, again="none"),
    Fault(
        "two-finishes",
        "finishes twice, text between",
        _streams(ROLE, *TEXT, FINISH, FINISH, _MORE, ACCOUNT, DONE, whole=True),
        WHOLE,
        again="none",
    ),
)
"""Those that end in a whole answer are of servers that are only untidy."""
