"""The command line: commands of other packages, asking a server, and the words of the chat client."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Iterator
from importlib.metadata import EntryPoint

import click
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from click.testing import CliRunner

from headgate.gateway import cli
from headgate.gateway.commands import admin_client
from headgate.gateway.commands.chat import ChatClient, ChatError


@click.command()
def bench() -> None:
    """Measure."""
    click.echo("measured")


@pytest.fixture
def _offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another package offers `bench`, as its entry points would say."""

    def entry_points(*, group: str, name: str | None = None) -> Iterator[EntryPoint]:
        found = EntryPoint("bench", f"{__name__}:bench", group)
        return iter([found] if group == cli.COMMANDS and name in (None, "bench") else [])

    monkeypatch.setattr(cli, "entry_points", entry_points)


@pytest.mark.usefixtures("_offered")
def test_other_packages_add_commands() -> None:
    runner = CliRunner()
    listed = runner.invoke(cli.main, ["--help"])
    for name in ("bench", "serve", "chat", "config"):
        assert name in listed.output
    assert runner.invoke(cli.main, ["bench"]).output == "measured\n"
    unknown = runner.invoke(cli.main, ["fly"])
    assert unknown.exit_code == 2
    assert "No such command" in unknown.output


def test_a_sighup_does_not_end_a_server_that_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []

    def run(serving: Coroutine[None, None, None]) -> None:
        serving.close()
        found.append(signal.getsignal(signal.SIGHUP))

    monkeypatch.setattr("uvloop.run", run)
    before = signal.getsignal(signal.SIGHUP)
    try:
        assert CliRunner().invoke(cli.main, ["serve", "--port", "0"]).exit_code == 0
    finally:
        signal.signal(signal.SIGHUP, before)
    assert found == [signal.SIG_IGN]


async def _answers(body: bytes, status: int = 200) -> TestServer:
    async def chat(_: web.Request) -> web.Response:
        return web.Response(body=body, status=status, headers={"x-headgate-model": "m"})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    server = TestServer(app)
    await server.start_server()
    return server


async def _ask(server: TestServer) -> list[str]:
    client = ChatClient(str(server.make_url("")).rstrip("/"), "auto", None, None)
    try:
        return [piece async for piece in client.answer([{"role": "user", "content": "x"}])]
    finally:
        await server.close()


async def test_the_chat_client_reads_text_and_skips_the_rest() -> None:
    stream = (
        b': keep-alive\n\ndata: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'
        b'data: {"choices":[{"delta":{"content":"h\xc3\xa9"}}]}\n\n'
        b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
        b'data: {"choices":[],"usage":{}}\n\ndata: [DONE]\n\n'
    )
    assert await _ask(await _answers(stream)) == ["hé"]


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b'data: {"error":{"message":"the step failed"}}\n\n', 200, "broke off: the step failed"),
        (b'{"error":{"message":"no such model"}}', 404, r"refused \(404\): no such model"),
        (b"<html>", 502, r"refused \(502\): <html>"),
    ],
)
async def test_the_chat_client_tells_what_went_wrong(body: bytes, status: int, words: str) -> None:
    with pytest.raises(ChatError, match=words):
        await _ask(await _answers(body, status))


async def test_this_machine_is_asked_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async def told(_: web.Request) -> web.Response:
        return web.json_response({"models": []})

    app = web.Application()
    app.router.add_get("/admin/models", told)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # nobody is there
    monkeypatch.delenv("no_proxy", raising=False)
    async with TestServer(app) as server:
        for host in ("127.0.0.1", "localhost", "0.0.0.0"):
            url = f"http://{host}:{server.port}/admin/models"
            assert await asyncio.to_thread(admin_client.ask, url, None, None) == {"models": []}
