"""Connections to upstreams: what is read of a reply however it is cut, what is kept, and how waits end."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from upstream_server import upstream_server
from yarl import URL

from headgate.gateway.upstream.answer import AnswerReader
from headgate.gateway.upstream.connection import MAX_HEAD_BYTES, Connection, NotHttpError
from headgate.gateway.upstream.connections import Connections
from headgate.gateway.upstream.exchange import Exchange
from headgate.gateway.upstream.failures import Failure
from headgate.gateway.upstream.post import Asking, head_of
from headgate.gateway.upstream.sections import UpstreamTimeoutsSection

REQUEST = b"POST /v1 HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"
JSON = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n{"a":1}'
CHUNKED = b'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{"\r\n5\r\na":1}\r\n0\r\n\r\n'
EARLY = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
ENDLESS = b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{"a":1}'
BARE_LF = b'HTTP/1.1 200 OK\nContent-Length: 7\n\n{"a":1}'


class Line:
    """What a connection does to its transport."""

    def __init__(self) -> None:
        self.sent = b""
        self.unsent = 0
        self.did: list[str] = []

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def write(self, data: bytes) -> None:
        self.sent += data

    def __getattr__(self, name: str) -> Any:
        return lambda: self.did.append(name)


def asked() -> tuple[Connection, Line]:
    """A connection that a request was sent by."""
    connection, line = Connection(), Line()
    connection.connection_made(cast(asyncio.BaseTransport, line))
    connection.send(REQUEST)
    assert line.sent == REQUEST
    return connection, line


async def read_all(connection: Connection) -> bytes:
    due = asyncio.get_running_loop().time() + 10
    await connection.head(due)
    found = b""
    while data := await connection.read(due):
        found += data
    return found


@given(
    st.sampled_from([JSON, CHUNKED, EARLY + JSON, EARLY + EARLY + CHUNKED, ENDLESS, BARE_LF]),
    st.lists(st.integers(0, 120), max_size=6),
)
def test_a_reply_is_the_same_however_it_is_cut(reply: bytes, cuts: list[int]) -> None:
    async def run() -> None:
        connection, _ = asked()
        reading = asyncio.create_task(read_all(connection))
        at = [0, *sorted(min(cut, len(reply)) for cut in cuts), len(reply)]
        for start, end in pairwise(at):
            await asyncio.sleep(0)
            if start < end:
                connection.data_received(reply[start:end])
        if reply is ENDLESS:
            assert not connection.ended
            connection.eof_received()
            connection.connection_lost(None)
        assert await reading == b'{"a":1}'
        assert (connection.status, connection.ended, connection.usable) == (200, True, reply is not ENDLESS)

    asyncio.run(run())


@pytest.mark.parametrize("reply", [JSON, CHUNKED])
async def test_the_end_of_the_connection_is_no_end_of_a_reply_that_says_its_length(reply: bytes) -> None:
    connection, _ = asked()
    connection.data_received(reply[:-6])
    connection.eof_received()
    connection.connection_lost(None)
    due = asyncio.get_running_loop().time() + 10
    await connection.head(due)
    # What came before can be read.
    assert await connection.read(due)
    with pytest.raises(ConnectionResetError):
        await connection.read(due)


@pytest.mark.parametrize(
    "reply",
    [b"SSH-2.0-x\r\n",
     b"HTTP/1.1 101 No\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nx", b"HTTP/1.1 200 OK\r\nA b\r\n\r\n",
     b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * (MAX_HEAD_BYTES // 6)],
)  # fmt: skip
async def test_what_is_no_reply_ends_the_connection(reply: bytes) -> None:
    connection, line = asked()
    connection.data_received(reply)
    with pytest.raises(NotHttpError):
        await connection.head(asyncio.get_running_loop().time() + 10)
    assert (line.did, connection.usable) == (["abort"], False)


@pytest.mark.parametrize("late", [False, True])
async def test_what_was_not_asked_for_is_no_reply_to_the_next_request(late: bool) -> None:
    connection, _ = asked()
    connection.data_received(JSON if late else JSON + JSON)
    if late:
        assert connection.usable
        connection.data_received(JSON)
    assert await read_all(connection) == b'{"a":1}'
    assert not connection.usable


async def test_waits_end_when_they_are_due_and_a_later_one_is_not_cut_short() -> None:
    connection, _ = asked()
    loop = asyncio.get_running_loop()
    with pytest.raises(TimeoutError):
        await connection.head(loop.time())
    reading = asyncio.create_task(connection.head(loop.time() + 10))
    await asyncio.sleep(0)
    connection.data_received(JSON)
    await reading
    connection.send(REQUEST)
    with pytest.raises(TimeoutError):
        # The timer of the wait before would fire later.
        await connection.head(loop.time())


async def test_what_comes_behind_a_body_is_not_kept() -> None:
    connection, _ = asked()
    connection.data_received(CHUNKED[:-2] + b"later: x\r\n\r\n")
    assert await read_all(connection) == b'{"a":1}'
    assert connection.headers == {"transfer-encoding": "chunked"}


async def test_who_reads_slowly_slows_the_server_down() -> None:
    connection, line = asked()
    connection.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n")
    for _ in range(3):
        connection.data_received(b"x" * 100_000)
    assert line.did == ["pause_reading"]
    assert len(await read_all(connection)) == 300_000
    assert line.did == ["pause_reading", "resume_reading"]


async def test_a_reply_that_is_there_and_was_not_read_leaves_no_connection_that_hears_nothing() -> None:
    connections = Connections(URL("http://127.0.0.1:9"))
    connection, line = asked()
    connection.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n" + b"x" * 300_000)
    assert (connection.ended, line.did) == (True, ["pause_reading"])
    connections.give_back(connection)
    assert (line.did, len(connections)) == (["pause_reading", "close"], 0)


async def test_a_server_that_replied_before_it_read_all_is_not_asked_again_by_that_connection() -> None:
    connections = Connections(URL("http://127.0.0.1:9"))
    connection, line = asked()
    line.unsent = 1
    connection.data_received(JSON)
    assert await read_all(connection) == b'{"a":1}'
    connections.give_back(connection)
    assert (line.did, len(connections)) == (["abort"], 0)


async def test_leaving_before_the_end_ends_the_work_there() -> None:
    connections = Connections(URL("http://127.0.0.1:9"))
    connection, line = asked()
    connection.data_received(CHUNKED[:-5])
    connections.give_back(connection)
    assert (line.did, len(connections)) == (["abort"], 0)


async def test_the_connection_that_was_used_last_is_used_next_and_old_ones_are_closed() -> None:
    connections = Connections(URL("http://127.0.0.1:9"), kept_s=0.0)
    both = [asked(), asked()]
    for connection, _ in both:
        connection.data_received(JSON)
        connections.give_back(connection)
    assert connections.kept() is both[1][0]
    while len(connections):  # noqa: ASYNC110 (nobody else waits for it)
        await asyncio.sleep(0)
    assert both[0][1].did == ["close"]
    connections.close()
    connections.give_back(both[1][0])
    assert both[1][1].did == ["close"]


async def test_connections_are_opened_and_one_that_the_server_closed_is_not_used() -> None:
    left = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(REQUEST))
        writer.write(JSON)
        await left.wait()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        connections = Connections(URL(f"http://localhost:{port}"))
        connection = await connections.open(5.0)
        connection.send(REQUEST)
        assert await read_all(connection) == b'{"a":1}'
        connections.give_back(connection)
        left.set()
        while connection.usable:  # noqa: ASYNC110 (nobody else waits for it)
            await asyncio.sleep(0)
        assert connections.kept() is None
        assert len(connections) == 0
    with pytest.raises(OSError, match=str(port)):
        await connections.open(5.0)
    with pytest.raises(OSError, match="looked up"):
        await Connections(URL.build(scheme="http", host="a" * 70 + ".b", encoded=True)).open(5.0)


async def test_a_kept_connection_that_is_closed_without_a_word_is_replaced_at_once() -> None:
    async with upstream_server() as fake:
        url = URL(fake.url)
        connections, loop = Connections(url), asyncio.get_running_loop()
        head = head_of("POST", url / "chat/completions", {"Content-Type": "application/json"})
        asking = Asking(head, b"{}", UpstreamTimeoutsSection(), loop.time() + 10)
        for said in (b"", b"HTTP/1.1 2"):
            kept, _ = asked()
            kept.data_received(JSON)
            connections.give_back(kept)
            exchange = Exchange(connections, asking, AnswerReader(1), fresh=False)
            beginning = asyncio.create_task(exchange.begin())
            await asyncio.sleep(0)
            if said:
                kept.data_received(said)
            kept.connection_lost(None)
            if said:
                # It was asked there, and may have begun: that is an attempt.
                with pytest.raises(Failure, match="without a reply"):
                    await beginning
            else:
                await beginning
                assert exchange.first
            exchange.close()
        assert len(fake.asked) == 1
        connections.close()
