import asyncio
import gc
import weakref
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.cache.single_flight import FlightLostError, SingleFlight


class Producer:
    """Gives items when it is told to, and notes its end."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[int | Exception | None] = asyncio.Queue()
        self.started = 0
        self.ended = 0
        self.cancelled = 0

    async def run(self) -> AsyncIterator[int]:
        self.started += 1
        try:
            while True:
                item = await self.queue.get()
                if item is None:
                    return
                if isinstance(item, Exception):
                    raise item
                yield item
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            try:
                await asyncio.sleep(0)  # cleaning up takes a turn of the loop
            finally:
                self.ended += 1


async def collect(flights: SingleFlight[int], producer: Producer, into: list[int]) -> None:
    async with flights.subscribe("k", producer.run) as items:
        async for item in items:
            into += [item]


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_every_subscriber_sees_every_item_of_one_generation() -> None:
    flights, producer = SingleFlight[int](), Producer()
    early: list[int] = []
    late: list[int] = []
    first = asyncio.create_task(collect(flights, producer, early))
    producer.queue.put_nowait(1)
    producer.queue.put_nowait(2)
    await turns()
    assert early == [1, 2]
    second = asyncio.create_task(collect(flights, producer, late))
    await turns()
    assert late == [1, 2]
    producer.queue.put_nowait(3)
    producer.queue.put_nowait(None)
    await asyncio.gather(first, second)
    assert early == late == [1, 2, 3]
    assert (producer.started, producer.ended, producer.cancelled, len(flights)) == (1, 1, 0, 0)


async def test_only_the_first_leads() -> None:
    flights, producer = SingleFlight[int](), Producer()
    async with flights.subscribe("k", producer.run) as one, flights.subscribe("k", producer.run) as two:
        assert (one.leads, two.leads) == (True, False)
        async with flights.subscribe("other", producer.run) as three:
            assert three.leads
            assert len(flights) == 2


async def test_the_leader_may_leave_while_others_wait() -> None:
    flights, producer = SingleFlight[int](), Producer()
    leader = asyncio.create_task(collect(flights, producer, []))
    await turns()
    got: list[int] = []
    follower = asyncio.create_task(collect(flights, producer, got))
    await turns()
    leader.cancel()
    await asyncio.wait([leader])
    producer.queue.put_nowait(7)
    producer.queue.put_nowait(None)
    await follower
    assert got == [7]
    assert producer.cancelled == 0


async def test_the_last_to_leave_cancels_the_generation_and_waits_for_its_cleanup() -> None:
    flights, producer = SingleFlight[int](), Producer()
    producer.queue.put_nowait(1)
    async with flights.subscribe("k", producer.run) as items:
        async for _ in items:
            break
    assert (producer.cancelled, producer.ended, len(flights)) == (1, 1, 0)


async def test_a_cancelled_generation_is_not_joined_again() -> None:
    flights, old, new = SingleFlight[int](), Producer(), Producer()
    leaving = asyncio.create_task(collect(flights, old, []))
    await turns()
    leaving.cancel()
    await asyncio.sleep(0)  # it is cleaning up now
    assert old.ended == 0
    new.queue.put_nowait(5)
    new.queue.put_nowait(None)
    got: list[int] = []
    await collect(flights, new, got)
    await asyncio.wait([leaving])
    assert got == [5]
    assert (old.ended, new.started, len(flights)) == (1, 1, 0)


async def test_an_error_goes_to_all_after_the_items_before_it() -> None:
    flights, producer = SingleFlight[int](), Producer()
    got: list[list[int]] = [[], [], []]
    tasks = [asyncio.create_task(collect(flights, producer, into)) for into in got]
    await turns()
    producer.queue.put_nowait(1)
    producer.queue.put_nowait(LookupError("broken"))
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [str(result) for result in results] == ["broken"] * 3
    assert got == [[1]] * 3
    assert len(flights) == 0


async def test_a_start_that_raises_is_an_error_of_the_flight() -> None:
    def start() -> AsyncIterator[int]:
        raise LookupError("no engine")

    flights = SingleFlight[int]()
    async with flights.subscribe("k", start) as items:
        with pytest.raises(LookupError, match="no engine"):
            await anext(items)
    assert len(flights) == 0


async def test_a_generation_cancelled_from_outside_does_not_cancel_its_subscribers() -> None:
    async def cancelled() -> AsyncIterator[int]:
        yield 1
        raise asyncio.CancelledError

    flights = SingleFlight[int]()
    async with flights.subscribe("k", cancelled) as items:
        assert await anext(items) == 1
        with pytest.raises(FlightLostError, match="cancelled"):
            await anext(items)


async def test_a_subscription_is_one_seat() -> None:
    flights, producer = SingleFlight[int](), Producer()
    seat = flights.subscribe("k", producer.run)
    with pytest.raises(RuntimeError, match="not open"):
        await anext(seat)
    async with seat:
        with pytest.raises(RuntimeError, match="already open"):
            await seat.__aenter__()
    assert len(flights) == 0
    assert producer.started == producer.ended


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["join", "join", "leave", "item", "item", "end", "error", "turn"]), st.integers(0, 5)),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(ACTIONS)
def test_any_interleaving_leaves_nothing_behind(actions: list[tuple[str, int]]) -> None:
    async def run() -> None:
        flights = SingleFlight[int]()
        producers: list[Producer] = []
        seats: list[tuple[asyncio.Task[None], list[int]]] = []
        sent = 0

        def start() -> AsyncIterator[int]:
            producers.append(Producer())
            return producers[-1].run()

        async def sit(into: list[int]) -> None:
            async with flights.subscribe("k", start) as items:
                async for item in items:
                    into += [item]

        for action, number in actions:
            if action == "join":
                into: list[int] = []
                seats.append((asyncio.create_task(sit(into)), into))
            elif action == "leave" and seats:
                seats[number % len(seats)][0].cancel()
            elif action == "turn":
                await turns(number)
            elif producers:
                sent += 1
                queue = producers[-1].queue
                queue.put_nowait(sent if action == "item" else None if action == "end" else LookupError("broken"))
        await turns()
        if producers:
            producers[-1].queue.put_nowait(None)
        tasks = [task for task, _ in seats]
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
        for task, into in seats:
            # A run of items without a gap: nobody misses or repeats one.
            assert into == sorted(set(into))
            if not task.cancelled() and task.exception() is not None:
                assert isinstance(task.exception(), LookupError)
        assert len(flights) == 0
        assert all(producer.started == producer.ended for producer in producers)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


async def test_a_subscription_knows_whether_it_would_have_to_wait() -> None:
    flights: SingleFlight[int] = SingleFlight()
    producer = Producer()
    async with flights.subscribe("k", producer.run) as items:
        assert not items.pending
        producer.queue.put_nowait(1)
        producer.queue.put_nowait(2)
        assert await anext(items) == 1
        await turns()
        assert items.pending
        assert await anext(items) == 2
        assert not items.pending
        # A reader that gives up a wait leaves nothing behind, and the next one is woken as ever.
        reader = asyncio.create_task(anext(items))
        await turns()
        reader.cancel()
        await asyncio.wait([reader])
        producer.queue.put_nowait(3)
        assert await anext(items) == 3
    assert not items.pending


@pytest.mark.parametrize("fails", [False, True])
async def test_what_a_generation_held_is_free_once_nobody_listens(fails: bool) -> None:
    """Without the garbage collector: a prompt's pictures are megabytes."""

    class Pictures:
        pass

    flights, held = SingleFlight[int](), list[weakref.ref[Pictures]]()

    async def run() -> AsyncIterator[int]:
        pictures = Pictures()
        held.append(weakref.ref(pictures))
        yield 1
        if fails:
            raise ValueError("broken")
        await asyncio.Event().wait()
        del pictures

    async def ask() -> None:
        async with flights.subscribe("key", run) as items:
            async for _ in items:
                if not fails:
                    return

    gc.disable()
    try:
        asking = asyncio.create_task(ask())
        await asyncio.wait([asking])
        assert (asking.exception() is not None) == fails
        del asking
        await asyncio.sleep(0)
        assert [one() for one in held] == [None]
    finally:
        gc.enable()
