"""Servers of the whole application, for tests that need nothing special of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from gateway_site import Serve, forget_environment, site
from seeing_models import write_seeing

from headgate.routing.classes import TaskClassifier


@pytest.fixture(autouse=True)
def unfitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers here do not fit the classifier of tasks at their start, which takes longer than all else: the first
    request that needs it does, as it does where a server is none. Those of tests/e2e start as they are."""
    monkeypatch.setattr(TaskClassifier, "fit", lambda _: None)


@pytest.fixture
async def serve(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serve]:
    """Starts servers, with sections of the settings of the test's own."""
    forget_environment(monkeypatch)
    async with AsyncExitStack() as stack:
        yield lambda **sections: stack.enter_async_context(site(tiny_checkpoint, **sections))


@pytest.fixture(scope="session")
def seeing_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Mistral 3 that sees pictures, by at most 16 squares of each."""
    return write_seeing(tmp_path_factory.mktemp("seeing"), "mistral3")
