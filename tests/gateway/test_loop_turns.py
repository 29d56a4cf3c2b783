"""Requests begin a few at a time, between two looks of the event loop at what has come."""

from __future__ import annotations

import asyncio
from collections import Counter

from headgate.gateway.edge.loop_turns import Turns


class Site:
    """Requests that note when they began, in looks of the loop."""

    def __init__(self, most: int) -> None:
        self.turns = Turns(most)
        self.looks = 0
        self.begun: list[tuple[int, str]] = []

    def look(self) -> None:
        self.looks += 1
        asyncio.get_running_loop().call_soon(self.look)

    async def request(self, name: str) -> None:
        await self.turns.wait()
        self.begun.append((self.looks, name))


async def test_a_few_begin_between_two_looks_in_the_order_they_came() -> None:
    site = Site(3)
    site.look()
    async with asyncio.TaskGroup() as group:
        for name in "abcdefgh":
            group.create_task(site.request(name))
        await asyncio.sleep(0)
        group.create_task(site.request("late"))
    assert [name for _, name in site.begun] == [*"abcdefgh", "late"]
    assert max(Counter(looks for looks, _ in site.begun).values()) == 3
    assert site.looks < 12, "nobody waits for nothing"


async def test_who_has_left_takes_no_turn_and_who_comes_alone_waits_for_none() -> None:
    site = Site(1)
    tasks = {name: asyncio.create_task(site.request(name)) for name in "abcd"}
    await asyncio.sleep(0)
    tasks["b"].cancel()
    tasks["c"].cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)
    assert [name for _, name in site.begun] == ["a", "d"]
    await asyncio.sleep(0)
    alone = site.turns.wait()
    try:
        alone.send(None)
    except StopIteration:
        return
    raise AssertionError("it waited")
