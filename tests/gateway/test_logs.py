"""What a server writes to its log: lines of requests, whole and in order, and never a secret."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st

from headgate.gateway.parts import StartError
from headgate.gateway.settings import Settings
from headgate.gateway.teams.keys import new_secret
from headgate.gateway.telemetry.logs.access import LOGGER, AccessLog
from headgate.gateway.telemetry.logs.lines import LineHandler, dropped
from headgate.gateway.telemetry.logs.secrets import CarefulFormatter, without_secrets
from headgate.gateway.telemetry.logs.setup import logs
from headgate.gateway.telemetry.record import RequestRecord
from headgate.gateway.telemetry.sections import LoggingSection

SECRET = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-", min_size=20, max_size=60)
PASSWORD = st.text("abcXYZ0189!$&*()+,;=%._~-@:[]{}", min_size=6, max_size=30)
AROUND = st.text("ab 1.,:(){}\n", max_size=12)
NAMED = ("Authorization: Bearer {}", "authorization={}", '"Authorization": "Bearer {}"', "x-api-key: {}",
         "api_key='{}'", "API-KEY {}".replace(" ", "="), "password: {}", "Proxy-Authorization: Basic {}")  # fmt: skip


@given(secret=SECRET, form=st.sampled_from([*NAMED, "Bearer {}", "sk-{}", "hg-{}", "hf_{}", "ghp_{}"]), before=AROUND,
       after=AROUND)  # fmt: skip
def test_no_secret_is_shown(secret: str, form: str, before: str, after: str) -> None:
    shown = without_secrets(f"{before} {form.format(secret)} {after}")
    assert secret not in shown
    assert "[secret]" in shown


@given(password=PASSWORD, form=st.sampled_from(["redis://user:{}@host:6379/0", "https://{}@example.com/path", *NAMED]))
def test_no_password_is_shown(password: str, form: str) -> None:
    shown = without_secrets(f"cannot reach {form.format(password)} now")
    assert password not in shown
    assert shown.endswith("now")


@given(st.text("abcdefg 0123456789.,;:/-=", max_size=80))
def test_what_is_no_secret_stays(text: str) -> None:
    assert without_secrets(text) == text


@pytest.mark.parametrize(
    "text", ["max_tokens: 5", "tokens=512", "https://host/a@b", "the key 'ann' expired", "sk-short"]
)
def test_what_looks_much_like_one_stays(text: str) -> None:
    assert without_secrets(text) == text


def test_tracebacks_are_read_too() -> None:
    key, stream = new_secret(), io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(CarefulFormatter("%(message)s"))
    logger = logging.Logger("apart")
    logger.addHandler(handler)
    try:
        raise ValueError(f"no such key: {key}")
    except ValueError:
        logger.exception("asked with %s", {"Authorization": f"Bearer {key}"})
    assert "Traceback" in stream.getvalue()
    assert key not in stream.getvalue()


def written(handler: LineHandler, text: str) -> None:
    handler.emit(logging.LogRecord("apart", logging.INFO, "", 0, text, (), None))
    handler.flush()


def test_a_file_that_cannot_be_opened_leaves_no_handler(tmp_path: Path) -> None:
    before = len(logging._handlerList)
    with pytest.raises(IsADirectoryError):
        LineHandler(tmp_path)
    assert len(logging._handlerList) == before, "one would be closed at the end of the process, with a traceback"


def test_a_file_that_was_moved_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "access.log"
    handler = LineHandler(path)
    written(handler, "one")
    path.rename(path.with_suffix(".1"))
    written(handler, "two")
    path.unlink()
    written(handler, "three")
    handler.close()
    assert path.with_suffix(".1").read_text() == "one\n"
    assert path.read_text() == "three\n"
    assert handler.dropped == 0


def test_half_a_surrogate_pair_costs_no_line(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    handler = LineHandler(path)
    written(handler, "before\n\ud800 ä\nafter")
    handler.close()
    assert path.read_text(encoding="utf-8") == "before\n\\ud800 ä\nafter\n"
    assert handler.dropped == 0


def test_a_record_that_is_wrong_costs_its_line_and_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    handler, logger = LineHandler(path), logging.Logger("a.library")
    logger.addHandler(handler)
    logger.warning("%d models", "many")
    logger.warning("two")
    handler.close()
    first, second = path.read_text().splitlines()
    assert first.startswith(f"a.library ({__file__}:")
    assert first.endswith("cannot be written (TypeError)")
    assert second == "two"


def test_lines_that_cannot_be_written_are_counted(tmp_path: Path) -> None:
    full = LineHandler(tmp_path / "access.log", most=0)
    written(full, "no room")
    full.close()
    away = LineHandler(tmp_path / "gone" / "access.log")
    (tmp_path / "gone" / "access.log").unlink()
    (tmp_path / "gone").rmdir()
    (tmp_path / "gone").write_text("not a folder")
    written(away, "no folder")
    away.close()
    assert (full.dropped, away.dropped) == (1, 1)


def test_lines_of_the_server_are_counted_like_those_of_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # as a server has it, without pytest's
    monkeypatch.setattr(sys, "stderr", None)
    for file in (None, str(tmp_path / "access.log")):
        with logs(LoggingSection(file=file)):
            logging.getLogger("headgate.gateway").warning("for the operator")
            for handler in logging.getLogger().handlers:
                handler.flush()
            assert dropped(LOGGER, None) == 1


def test_lines_go_where_the_operator_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = RequestRecord("req-1", "/v1/chat/completions", "red team", "ann", status=200, total_s=0.5)
    for section in (LoggingSection(), LoggingSection(file=str(tmp_path / "access.log"))):
        with logs(section):
            AccessLog("json", lambda: 0.0).write(record)
            logging.getLogger("headgate.gateway").info("for the operator")
    lines = [*capsys.readouterr().err.splitlines(), (tmp_path / "access.log").read_text()]
    (line,) = [json.loads(line) for line in lines if line.startswith("{")][1:]
    assert (line["time"], line["id"], line["total_ms"]) == ("1970-01-01T00:00:00.000Z", "req-1", 500.0)
    assert all(name in line for name in ("team", "key", "status")), line
    assert not logging.getLogger(LOGGER).handlers
    with (
        pytest.raises(StartError, match=r"logging\.file is '/proc/nowhere/x'"),
        logs(LoggingSection(file="/proc/nowhere/x")),
    ):
        raise AssertionError("not reached")


def test_a_line_may_be_words_and_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    record = RequestRecord(
        new_secret(), "/v1/chat/completions", 'red "team"\n', status=503, error="overloaded", total_s=0.02
    )
    with caplog.at_level("INFO", logger=LOGGER):
        AccessLog("text", lambda: 1.5).write(record)
        AccessLog("off").write(record)
    (line,) = caplog.messages
    assert line.startswith("1970-01-01T00:00:01.500Z 503 /v1/chat/completions 20.0 ms id=[secret] ")
    assert r'team="red \"team\"\n"' in line
    assert line.endswith("error=overloaded")
    assert "\n" not in line


@pytest.mark.parametrize(("given", "meant"), [(True, "json"), (False, "off"), ("text", "text")])
def test_the_access_log_was_a_switch_once(given: object, meant: str) -> None:
    assert Settings(logging={"access": given}).logging.access == meant  # type: ignore[arg-type]


def test_a_closed_stderr_costs_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    handler = LineHandler()
    written(handler, "nobody reads this")
    handler.close()
    assert handler.dropped == 1


@pytest.fixture
def stuck() -> Iterator[tuple[TextIO, int]]:
    """A full pipe, and where it could be read."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    with suppress(BlockingIOError):
        while True:
            os.write(write, b"." * 4096)
    os.set_blocking(write, True)
    with os.fdopen(write, "w") as pipe, os.fdopen(read):
        yield pipe, read


def test_a_stuck_stderr_holds_up_nobody(stuck: tuple[TextIO, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stuck[0])
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # as a server has it, without pytest's
    with logs(LoggingSection()):
        told = threading.Thread(target=logging.getLogger("headgate.gateway").info, args=("for the operator",))
        told.daemon = True
        told.start()
        told.join(5)
        assert not told.is_alive()
        said = b""
        while b"for the operator" not in said:
            said += os.read(stuck[1], 1 << 20)
    assert not logging.getLogger().handlers


def test_a_stuck_stderr_does_not_keep_the_server_from_its_end(
    stuck: tuple[TextIO, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", stuck[0])
    handler = LineHandler()
    handler.emit(logging.LogRecord("apart", logging.INFO, "", 0, "first", (), None))
    handler.close()
    ending = threading.Thread(target=handler.flush, daemon=True)  # as logging does at an interpreter's end
    ending.start()
    ending.join(5)
    assert not ending.is_alive()
    os.read(stuck[1], 1 << 20)


async def test_what_is_no_request_is_a_line_and_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=request.path)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    with logs(LoggingSection()):
        async with TestServer(app) as server:
            for sent in (
                b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer hush\0\r\n\r\n",
                b"GET /" + b"hush" * 5000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
                b"GET http://hush:hush HTTP/1.1\r\nHost: a\r\n\r\n",
                b"POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nhush",
                b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
                b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"hush" * 5000 + b"\r\n\r\n",
                b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            ):
                reader, writer = await asyncio.open_connection(server.host, server.port)
                writer.write(sent)
                assert b"HTTP/1" in await reader.read()
                writer.close()
    assert len(caplog.records) == 7, caplog.text
    for record in caplog.records:
        assert (record.name, record.levelname, record.exc_info) == ("headgate.gateway", "INFO", None)
        assert " is no request that can be read: " in record.getMessage()
        assert "hush" not in record.getMessage()
    with logs(LoggingSection()):
        logging.getLogger("aiohttp.server").error("of another kind", exc_info=ValueError("ours"))
    assert caplog.records[-1].exc_info is not None
