"""An OpenAI-compatible server that says the same to everybody and costs next to nothing: what proxies are timed with.

Run as a process of its own. The model's name says how it answers: `fixed` at once and whole, `flood` by a stream of
many events as fast as they are taken, each a write of its own, `paced` by a stream with a pause before each event.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import ClassVar, cast

FLOOD_EVENTS = 256
PACED_EVENTS = 8
PACE_S = 0.02
TEXT = "The capital of France is Paris."
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_STREAM = re.compile(rb'"stream": ?true')
_USAGE = {"prompt_tokens": 12, "completion_tokens": 8, "total_tokens": 20}
_JSON_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
_STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_LAST = b"0\r\n\r\n"


def _event(payload: str) -> bytes:
    framed = f"data: {payload}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(framed), framed)


def _chunk(model: str, choices: list[dict[str, object]], **further: object) -> bytes:
    shared = {"id": "chatcmpl-mock", "object": "chat.completion.chunk", "created": 1700000000, "model": model}
    return _event(json.dumps({**shared, "choices": choices, **further}, separators=(",", ":")))


def stream_of(model: str, texts: list[str]) -> list[bytes]:
    """The events of an answer in pieces: its role, the texts, its end, its account."""
    said = [{"role": "assistant", "content": ""}, *({"content": text} for text in texts)]
    events = [_chunk(model, [{"index": 0, "delta": delta, "finish_reason": None}]) for delta in said]
    events.append(_chunk(model, [{"index": 0, "delta": {}, "finish_reason": "stop"}]))
    events.append(_chunk(model, [], usage=_USAGE))
    return [*events, _event("[DONE]") + _LAST]


def _whole(model: str) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}
    shared = {"id": "chatcmpl-mock", "object": "chat.completion", "created": 1700000000, "model": model}
    body = json.dumps({**shared, "choices": [choice], "usage": _USAGE}, separators=(",", ":")).encode()
    return _JSON_HEAD % len(body) + body


class _Mock(asyncio.Protocol):
    whole = _whole("fixed")
    streams: ClassVar[dict[str, list[bytes]]] = {
        "fixed": [b"".join(stream_of("fixed", [TEXT]))],
        "flood": stream_of("flood", [f" word{n}" for n in range(FLOOD_EVENTS)]),
        "paced": stream_of("paced", [f" word{n}" for n in range(PACED_EVENTS)]),
    }

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A proxy came."""
        self._transport = cast(asyncio.Transport, transport)
        self._buffer = b""
        self._ready = asyncio.Event()
        self._ready.set()
        self._telling: asyncio.Task[None] | None = None

    def pause_writing(self) -> None:
        """The proxy does not read as fast."""
        self._ready.clear()

    def resume_writing(self) -> None:
        """It does again."""
        self._ready.set()

    def connection_lost(self, _error: Exception | None) -> None:
        """It left."""
        self._ready.set()

    def data_received(self, data: bytes) -> None:
        """Some of a request."""
        self._buffer += data
        head = self._buffer.find(b"\r\n\r\n")
        found = _LENGTH.search(self._buffer, 0, max(head, 0))
        if found is None or len(self._buffer) < head + 4 + int(found[1]):
            return
        body, self._buffer = self._buffer[head:], b""
        if _STREAM.search(body) is None:
            self._transport.write(self.whole)
            return
        name = next((name for name in ("flood", "paced") if f'"{name}"'.encode() in body), "fixed")
        pieces = self.streams[name]
        if len(pieces) == 1:
            self._transport.write(_STREAM_HEAD + pieces[0])
        else:
            self._telling = asyncio.create_task(self._tell(pieces, PACE_S if name == "paced" else 0.0))

    async def _tell(self, pieces: list[bytes], pause_s: float) -> None:
        self._transport.write(_STREAM_HEAD)
        for piece in pieces:
            await asyncio.sleep(pause_s)
            await self._ready.wait()
            if self._transport.is_closing():
                return
            self._transport.write(piece)


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(_Mock, "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    import uvloop

    uvloop.run(_serve())
