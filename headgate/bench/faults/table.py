"""The faults, each with its script and with what a client should see of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headgate.bench.faults.server import ACCOUNT, DONE, FINISH, GOOD, ROLE, TEXT, USAGE, Script, Wire, delta, event

_HEL = "Hel, then error "
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


async def _silent(wire: Wire) -> None:
    await wire.silence()


async def _leaves(_wire: Wire) -> None:
    """The connection is closed behind every script."""


async def _slow_first_token(wire: Wire) -> None:
    await wire.stream(ROLE)
    await wire.silence()


async def _cut_before_text(wire: Wire) -> None:
    await wire.stream(ROLE)


async def _cut(wire: Wire) -> None:
    await wire.stream(ROLE, TEXT[0])
    await wire.apart()


async def _ends_early(wire: Wire) -> None:
    await wire.stream(ROLE, TEXT[0])
    await wire.apart()
    await wire.end()


async def _done_early(wire: Wire) -> None:
    await wire.stream(ROLE, TEXT[0])
    await wire.apart()
    await wire.more(DONE)


async def _stalls(wire: Wire) -> None:
    await wire.stream(ROLE, TEXT[0])
    await wire.silence()


async def _bad_json(wire: Wire) -> None:
    await wire.stream(ROLE, TEXT[0])
    await wire.apart()
    await wire.more(b'data: {"choices": [{]}\n\n', FINISH, DONE)


async def _half_frame(wire: Wire) -> None:
    await wire.stream(ROLE, TEXT[0])
    await wire.apart()
    await wire.more(TEXT[1][:25])
    await wire.end()


async def _split_frames(wire: Wire) -> None:
    await wire.stream()
    for byte in b"\xef\xbb\xbf: hello\r\n\r\n" + b"".join(GOOD).replace(b"\n", b"\r\n"):
        await wire.more(bytes([byte]))
    await wire.end()


async def _error_event(wire: Wire) -> None:
    await wire.stream(ROLE, TEXT[0])
    await wire.apart()
    await wire.more(event({"error": {"message": "CUDA out of memory", "code": 500}}))


async def _busy_hint(wire: Wire) -> None:
    await wire.reply("429 Too Many Requests", {"error": {"message": "slow down"}}, retry_after_ms="20")


async def _busy(wire: Wire) -> None:
    await wire.reply("429 Too Many Requests", {"error": {"message": "slow down"}})


async def _busy_long(wire: Wire) -> None:
    await wire.reply("429 Too Many Requests", {"error": {"message": "slow down"}}, Retry_After="60")


async def _busy_no(wire: Wire) -> None:
    await wire.reply("429 Too Many Requests", {"error": {"message": "slow down"}}, x_should_retry="false")


async def _failing(wire: Wire) -> None:
    await wire.reply("500 Internal Server Error", b"<h1>Oops</h1>", Content_Type="text/html")


async def _overloaded(wire: Wire) -> None:
    await wire.reply("503 Service Unavailable", {"error": {"message": "no worker"}}, Retry_After="0")


async def _html(wire: Wire) -> None:
    await wire.reply("200 OK", b"<html>Please log in</html>", Content_Type="text/html")


async def _no_http(wire: Wire) -> None:
    await wire.raw(b"\x15\x03\x01 this is another protocol\r\n\r\n")


async def _not_streamed(wire: Wire) -> None:
    message = {"role": "assistant", "content": "Hello!"}
    await wire.reply("200 OK", {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": USAGE})


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


async def _closes_after_account(wire: Wire) -> None:
    await wire.stream(ROLE, *TEXT, FINISH, ACCOUNT)


async def _no_account(wire: Wire) -> None:
    await wire.stream(ROLE, *TEXT, FINISH, DONE, whole=True)


async def _two_finishes(wire: Wire) -> None:
    await wire.stream(ROLE, *TEXT, FINISH, FINISH, delta({"content": " more"}), ACCOUNT, DONE, whole=True)


async def _redirect(wire: Wire) -> None:
    await wire.reply("307 Temporary Redirect", b"", Location=f"{wire.elsewhere}/v1/chat/completions")


async def _no_credentials(wire: Wire) -> None:
    await wire.reply("401 Unauthorized", {"error": {"message": "Incorrect API key provided: sk-bench-0123456789"}})


async def _no_model(wire: Wire) -> None:
    await wire.reply("404 Not Found", {"error": {"message": "The model does not exist"}})


async def _context(wire: Wire) -> None:
    message = "This model's maximum context length is 10 tokens."
    await wire.reply("400 Bad Request", {"error": {"message": message, "code": "context_length_exceeded"}})


async def _policy(wire: Wire) -> None:
    message = "The response was filtered"
    await wire.reply("400 Bad Request", {"error": {"message": message, "code": "content_filter"}})


async def _bad_request(wire: Wire) -> None:
    detail = {"message": "top_k is not supported", "param": "top_k", "code": "unknown_parameter"}
    await wire.reply("400 Bad Request", {"error": detail})


FAULTS = (
    Fault("refused", "nobody listens", None, "502 upstream_unreachable", at="closed"),
    Fault("slow-connect", "TLS is never answered", None, "502 upstream_unreachable", at="tls"),
    Fault("no-reply", "closes without a reply", _leaves, "502 upstream_unreachable"),
    Fault("slow-headers", "takes the request, says nothing", _silent, "504 upstream_timeout"),
    Fault("slow-first-token", "headers and role, then silence", _slow_first_token, "504 upstream_timeout"),
    Fault("cut-before-text", "closes behind the role", _cut_before_text, "502 upstream_cut"),
    Fault("cut", "closes within the text", _cut, _HEL + "upstream_cut", "502 upstream_cut", "plain"),
    Fault(
        "ends-early", "ends the body within the text", _ends_early, _HEL + "upstream_cut", "502 upstream_cut", "plain"
    ),
    Fault("done-early", "[DONE] without a finish", _done_early, _HEL + "upstream_cut", "502 upstream_cut", "plain"),
    Fault(
        "stalls", "falls silent within the text", _stalls, _HEL + "upstream_stalled", "504 upstream_stalled", "plain"
    ),
    Fault("bad-json", "an event that is no JSON", _bad_json, _HEL + "upstream_broken", "502 upstream_broken", "plain"),
    Fault("half-frame", "ends within an event", _half_frame, _HEL + "upstream_cut", "502 upstream_cut", "plain"),
    Fault(
        "error-event",
        "an error within the stream",
        _error_event,
        _HEL + "upstream_failed",
        "502 upstream_failed",
        "plain",
    ),
    Fault("long-line", "an event of 3 MB", _long_line, _HEL + "upstream_broken", "502 upstream_broken", "plain"),
    Fault(
        "wrong-length",
        "Content-Length beyond the body",
        _wrong_length,
        _HEL + "upstream_cut",
        "502 upstream_cut",
        "plain",
    ),
    Fault("429-hint", "429, retry-after-ms: 20", _busy_hint, "503 upstream_overloaded"),
    Fault("429", "429 without a hint", _busy, "503 upstream_overloaded"),
    Fault("429-long", "429, Retry-After: 60", _busy_long, "503 upstream_overloaded", again="none"),
    Fault("429-no", "429, x-should-retry: false", _busy_no, "503 upstream_overloaded", again="none"),
    Fault("500", "500 with a page of HTML", _failing, "502 upstream_failed"),
    Fault("503", "503, Retry-After: 0", _overloaded, "503 upstream_overloaded"),
    Fault("html", "200 with a page of HTML", _html, "502 upstream_broken"),
    Fault("no-http", "another protocol", _no_http, "502 upstream_broken"),
    Fault("redirect", "307 to another host", _redirect, "502 upstream_setup", again="none"),
    Fault("401", "401, repeating the key", _no_credentials, "502 upstream_setup", again="none"),
    Fault("404", "404, no such model", _no_model, "502 upstream_setup", again="none"),
    Fault("context", "400, context too long", _context, "400 context_length_exceeded", again="none"),
    Fault("policy", "400, content filter", _policy, "400 content_policy_violation", again="none"),
    Fault("bad-request", "400, another parameter", _bad_request, "400 unknown_parameter", again="none"),
    Fault("split-frames", "CRLF, a BOM, a byte at a time", _split_frames, WHOLE, again="none"),
    Fault("not-streamed", "JSON instead of a stream", _not_streamed, WHOLE, again="none"),
    Fault("closes-after-account", "no [DONE], closes", _closes_after_account, WHOLE, again="none"),
    Fault("no-account", "no usage at all", _no_account, WHOLE, again="none"),
    Fault("two-finishes", "finishes twice, text between", _two_finishes, WHOLE, again="none"),
)
"""Those that end in a whole answer are of servers that are only untidy."""
