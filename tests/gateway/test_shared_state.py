"""What gateways agree on through a journal, when one of them ends."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from headgate.cache.audits.audit import Auditor
from headgate.cache.audits.label_log import LabelLog
from headgate.cache.audits.watch import Watch
from headgate.cache.store.journal import FileJournal
from headgate.cache.store.memory import MemoryStore
from headgate.gateway.caching import shared_state
from headgate.gateway.caching.shared_state import Epoch, SharedState


class Slow(FileJournal):
    """Says only when it may that it has counted."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.counted, self.may_say = asyncio.Event(), asyncio.Event()

    async def add(self, amounts: Mapping[str, int]) -> dict[str, int]:
        sums = await super().add(amounts)
        self.counted.set()
        await self.may_say.wait()
        return sums


async def test_what_is_being_counted_at_the_end_is_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_state, "FOLLOW_S", 0.001)
    journal = Slow(tmp_path)
    auditor = Auditor(0.02, 0.05, 0.05, b"secret")
    watch = Watch(MemoryStore(1 << 20, lambda: 0.0), auditor, (0.7,), 0.7, LabelLog(), lambda: 0.0, journal)
    await watch.resume("rule", None)
    state = SharedState(journal, Epoch("", journal), watch)
    await state.start()
    for number in range(3):
        watch.draw("k", str(number))
    await journal.counted.wait()
    watch.draw("k", "another")
    closing = asyncio.create_task(state.close())
    for _ in range(20):
        await asyncio.sleep(0)
    journal.may_say.set()
    await closing
    values = await journal.values()
    assert sum(int(count) for name, count in values.items() if name.endswith(":hits")) == 4
    journal.close()
