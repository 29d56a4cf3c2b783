"""`headgate serve` and `headgate chat` as processes: starting, refusing to start, stopping."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import openai
import pytest
from click.testing import CliRunner
from server_process import ServerProcess, Start, run_server

from headgate.gateway.cli import main

PAUSE_S = 0.05
"""Between two questions to a server that is not there yet: without it they take the core that it starts on."""
# The embedding model takes seconds to load, and these tests do not need it.
PLAIN = {"HEADGATE_CACHE__SEMANTIC__ENABLED": "false"}
ASK: list[Any] = [{"role": "user", "content": "Tell me a long story."}]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts servers with arguments and environment of the test's own."""
    return partial(run_server, tmp_path)


def headgate(*arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headgate.gateway.cli", *arguments],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip


def test_chat_on_the_command_line_shows_route_and_cache(start: Start) -> None:
    with start(**PLAIN) as server:
        first = headgate("chat", "--url", server.url, "What is two plus two?")
        second = headgate("chat", "--url", server.url, "What is two plus two?")
    assert (first.returncode, second.returncode) == (0, 0), first.stderr
    assert "cache miss" in first.stdout
    assert "cache exact" in second.stdout
    assert "demo-" in first.stdout
    answers = [out.stdout.splitlines()[0] for out in (first, second)]
    assert answers[0] == answers[1]


def test_chat_without_a_server_says_how_to_start_one() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        result = headgate("chat", "--url", f"http://127.0.0.1:{held.getsockname()[1]}", "hello")
    assert result.returncode == 1
    assert "headgate serve" in result.stderr


def test_a_port_in_use_is_said_plainly() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        result = headgate("serve", "--port", str(port))
    assert result.returncode == 1
    assert f"port {port} on 127.0.0.1 is in use" in result.stderr
    assert "loaded" not in result.stderr, "models were loaded before"
    assert "Traceback" not in result.stderr


def test_a_server_whose_words_nothing_takes_serves_all_the_same(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "headgate.gateway.cli", "serve", "--port", str(port)]
    apart = {"HEADGATE_CACHE__REDIS": "off", "HEADGATE_STORAGE__FOLDER": str(tmp_path / "data")}
    with Path("/dev/full").open("w") as full, (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=Path(__file__).parents[2], env={**os.environ, **apart, **PLAIN}, stdout=full, stderr=log
        )
    try:
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="any", max_retries=0)
        end = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < end:
            with suppress(openai.APIConnectionError):
                assert client.models.list().data
                return
            time.sleep(PAUSE_S)
        raise AssertionError((tmp_path / "log").read_text())
    finally:
        process.kill()
        process.wait()


def test_a_server_without_standard_streams_serves_with_all_files_it_may_have_and_ends(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "headgate.gateway.cli", "serve", "--port", str(port)]
    apart = {"HEADGATE_CACHE__REDIS": "off", "HEADGATE_STORAGE__FOLDER": str(tmp_path / "data")}
    process = subprocess.Popen(
        ["/bin/sh", "-c", 'ulimit -Sn 300; exec "$@" <&- >&- 2>&-', "sh", *command],
        cwd=Path(__file__).parents[2], env={**os.environ, **apart, **PLAIN},
    )  # fmt: skip
    try:
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="any", max_retries=0)
        end, found = time.monotonic() + 60, 0
        while process.poll() is None and not found and time.monotonic() < end:
            with suppress(openai.APIConnectionError):
                found = len(client.models.list().data)
            time.sleep(PAUSE_S)
        assert found
        soft, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        assert soft == hard
        process.terminate()
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(("said", "holds"), [(None, "false"), ("true", "true")])
def test_tokenizers_are_to_take_no_threads_unless_told_to(
    monkeypatch: pytest.MonkeyPatch, said: str | None, holds: str
) -> None:
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", said or "")  # so that what is set meanwhile is taken back
    if said is None:
        monkeypatch.delenv("TOKENIZERS_PARALLELISM")
    result = CliRunner().invoke(main, ["serve", "--host", ""])
    assert result.exit_code == 2, result.output
    assert os.environ["TOKENIZERS_PARALLELISM"] == holds


def test_an_address_that_is_none_is_said_plainly() -> None:
    # An unset variable of a script, which would have opened the server to the network.
    empty = CliRunner().invoke(main, ["serve", "--host", ""])
    assert (empty.exit_code, "0.0.0.0" in empty.stderr) == (2, True)
    wrong = headgate("serve", "--host", "a..b")
    assert wrong.returncode == 1
    assert "cannot listen on a..b" in wrong.stderr
    assert "Traceback" not in wrong.stderr


def test_a_damaged_checkpoint_ends_the_server_with_its_file(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text("{")
    config = tmp_path / "headgate.yaml"
    config.write_text(json.dumps({"models": [{"id": "broken", "path": str(broken)}]}))
    result = headgate("serve", "--port", "0", "--config", str(config))
    assert result.returncode == 1
    assert str(broken) in result.stderr
    assert "Traceback" not in result.stderr


def test_a_key_is_asked_for(start: Start, tmp_path: Path) -> None:
    config = tmp_path / "headgate.yaml"
    config.write_text(json.dumps({"teams": {"folder": str(tmp_path / "teams")}}))
    (tmp_path / "teams").mkdir()
    key = {"id": "k", "secret": "env:RED_KEY"}
    (tmp_path / "teams" / "red.yaml").write_text(json.dumps({"team": {"name": "red"}, "keys": [key]}))
    with start("--config", str(config), RED_KEY="red-secret-key", **PLAIN) as server:
        with pytest.raises(openai.AuthenticationError) as caught:
            server.client("wrong").models.list()
        assert caught.value.code == "invalid_api_key"
        assert server.client("red-secret-key").models.list().data


def test_team_files_are_followed_and_sighup_reads_secrets_again(start: Start, tmp_path: Path) -> None:
    teams, secret = tmp_path / "teams", tmp_path / "secret"
    teams.mkdir()
    secret.write_text("first-secret")
    path = teams / "red.yaml"
    path.write_text(json.dumps({"team": {"name": "red"}, "keys": [{"id": "k", "secret": f"file:{secret}"}]}))
    with start(HEADGATE_TEAMS__FOLDER=str(teams), **PLAIN) as server:
        client = server.client("first-secret")
        stream = client.chat.completions.create(
            model="small", messages=ASK, max_tokens=600, stream=True, temperature=1.0, extra_body={"ignore_eos": True}
        )
        next(iter(stream))
        secret.write_text("second-secret")
        server.process.send_signal(signal.SIGHUP)
        assert _becomes_valid(server, "second-secret")
        with pytest.raises(openai.AuthenticationError):
            client.models.list()
        path.unlink()
        made = headgate("keys", "create", "laptop", "--team", "blue", "--teams", str(teams))
        assert made.returncode == 0, made.stderr
        assert _becomes_valid(server, made.stdout.strip())
        chunks = list(stream)
    assert chunks[-1].choices[0].finish_reason == "length", "no change of keys cuts a stream"


def _becomes_valid(server: ServerProcess, secret: str) -> bool:
    """Ask with a key until it holds, which on an idle machine is at once; half a minute at most."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            server.client(secret).models.list()
        except openai.AuthenticationError:
            time.sleep(PAUSE_S)
            continue
        return True
    return False


def test_sigterm_lets_running_requests_finish_and_refuses_new_ones(start: Start) -> None:
    with start(**PLAIN) as server:
        client = server.client()
        stream = client.chat.completions.create(
            model="small", messages=ASK, max_tokens=600, stream=True, temperature=1.0, extra_body={"ignore_eos": True}
        )
        next(iter(stream))
        status: list[int] = []
        stopping = threading.Thread(target=lambda: status.append(server.terminate()))
        stopping.start()
        while True:
            # Until the signal has arrived requests are still answered.
            refusal = _refusal(client)
            if refusal is not None:
                break
        chunks = list(stream)
        stopping.join()
    assert (refusal.status_code, refusal.headers["retry-after"]) == (503, "1")
    assert chunks[-1].choices[0].finish_reason == "length", "the stream was finished, not cut"
    assert status == [0]


def test_sigterm_while_models_load_ends_the_server(start: Start) -> None:
    with start(**PLAIN) as server:
        assert server.terminate() == 0


def test_what_loads_for_long_is_not_waited_for(start: Start, tmp_path: Path, tiny_checkpoint: Path) -> None:
    model = shutil.copytree(tiny_checkpoint, tmp_path / "model")
    (model / "generation_config.json").unlink()
    os.mkfifo(model / "generation_config.json")  # nobody writes to it: who reads it is never done
    config = tmp_path / "headgate.yaml"
    config.write_text(json.dumps({"models": [{"id": "m", "path": str(model)}]}))
    with start("--config", str(config), **PLAIN) as server:
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(timeout=30) == 0
        assert "Traceback" not in server.log.read_text()
        assert "stopping: 0 requests in flight" in server.log.read_text(), "what was said last is lost"


def _refusal(client: openai.OpenAI) -> Any:
    try:
        client.models.list()
    except openai.InternalServerError as error:
        return error.response
    return None


def test_signals_before_anything_is_loaded_are_followed_too(tmp_path: Path) -> None:
    os.mkfifo(config := tmp_path / "headgate.yaml")
    command = [sys.executable, "-m", "headgate.gateway.cli", "serve", "--config", str(config)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2]) as process, config.open("w"):  # it reads now
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0, "the first process of a container would not have ended"


def test_sigterm_cuts_what_outlasts_the_deadline(start: Start) -> None:
    with start(HEADGATE_SERVER__DRAIN_S="0", **PLAIN) as server:
        stream = server.client().chat.completions.create(
            model="large", messages=ASK, max_tokens=1900, stream=True, temperature=1.0, extra_body={"ignore_eos": True}
        )
        next(iter(stream))
        status = server.terminate()
        with pytest.raises(openai.APIError) as caught:
            list(stream)
    assert "shutting down" in str(caught.value)
    assert status == 0
