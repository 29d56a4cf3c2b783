"""Asking a server's administration from the command line, of servers that answer oddly and keys that cannot be sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from click import ClickException
from click.testing import CliRunner, Result

from headgate.gateway.cli import main
from headgate.gateway.commands.admin_client import ask

KEY = "sk-ops-0123456789abcdef"
REPORT = {"store": "memory", "entries": 3, "lookups": {"exact": 1234567.0, "miss": 2.0}, "saved": {"usd": 0.25}}


def http(status: str, body: bytes = b"", *headers: str) -> bytes:
    """A whole reply."""
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that gives everybody the same bytes: its address, and what it was asked."""
    asked: list[bytes] = []

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(meet, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked


async def command(*arguments: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, main, ["cache", "stats", *arguments])


async def test_counts_are_told_to_the_last_digit() -> None:
    async with answering(http("200 OK", json.dumps(REPORT).encode())) as (url, _):
        told = await command("--url", url)
    assert "lookups      exact 1234567, miss 2\n" in told.output
    assert "saved        usd 0.25\n" in told.output


async def test_a_key_goes_to_the_server_that_is_named_and_is_shown_nowhere() -> None:
    async with answering(http("200 OK", json.dumps(REPORT).encode())) as (url, asked):
        assert (await command("--url", url, "--api-key", f" {KEY}\r\n")).exit_code == 0
        for key in (f"{KEY}\nx", f"{KEY}\x1bx", f"{KEY}\0"):
            refused = await command("--url", url, "--api-key", key)
            assert (refused.exit_code, KEY in refused.output) == (1, False)
            assert f"its character {len(KEY) + 1} of" in refused.output
        assert (await command("--url", url, "--api-key", f"{KEY} ü")).exit_code == 0
        sent = [f"Authorization: Bearer {KEY}{more}\r\n".encode() for more in ("", " ü")]
        assert [header in one for header, one in zip(sent, asked, strict=True)] == [True, True]
        async with answering(http("302 Found", b"", f"Location: {url}/login")) as (leads, _):
            refused = await command("--url", leads, "--api-key", KEY)
        assert (refused.exit_code, len(asked)) == (1, 2), "nobody else is asked"
        assert f"302 and leads to {url}/login" in refused.output


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda: b"SSH-2.0-OpenSSH_9\r\n", "SSH-2.0"),
        (lambda: http("200 OK", b"{}")[:-1], "IncompleteRead"),
        (lambda: http("200 OK", b"[]"), "no JSON object"),
        (lambda: http("200 OK", b"<html>"), "cannot be asked"),
        (lambda: b"", "no server answers"),
    ],
)
async def test_what_is_no_server_of_ours_is_told_in_words(answer: Callable[[], bytes], said: str) -> None:
    async with answering(answer()) as (url, _):
        told = await command("--url", url)
    assert (told.exit_code, said in told.output, url in told.output) == (1, True, True), told.output


async def test_a_refusal_that_breaks_off_is_told_by_its_status() -> None:
    async with answering(http("502 Bad Gateway", b"{}")[:-1]) as (url, _):
        told = await command("--url", url)
    assert (told.exit_code, "refuses with 502: Bad Gateway" in told.output) == (1, True), told.output


async def test_a_server_that_takes_long_is_not_taken_for_none() -> None:
    async def meet(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with await asyncio.start_server(meet, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(ClickException, match=r"has not answered within 0\.05 s"):
            await asyncio.to_thread(ask, url, None, {"model": "m"}, 0.05)


async def test_an_address_that_is_none_is_told_in_words() -> None:
    told = await command("--url", "http://127.0.0.1:80a")
    assert (told.exit_code, "nonnumeric port: '80a'" in told.output) == (1, True)
