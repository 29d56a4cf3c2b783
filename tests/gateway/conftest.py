"""Servers of the whole application, for tests that need nothing special of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from gateway_site import Serve, forget_environment, site


@pytest.fixture
async def serve(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serve]:
    """Starts servers, with sections of the settings of the test's own."""
    forget_environment(monkeypatch)
    async with AsyncExitStack() as stack:
        yield lambda **sections: stack.enter_async_context(site(tiny_checkpoint, **sections))
