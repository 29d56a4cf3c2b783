"""The embedded default as a process, and the official client pointed at it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from openai import OpenAI
from server_process import ServerProcess, run_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Shared by the tests of a module."""
    with run_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def client(server: ServerProcess) -> OpenAI:
    """As `ServerProcess.client` makes it."""
    return server.client()
