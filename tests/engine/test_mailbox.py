"""Tokens go over to the event loop at once where it matters, and together where the loop is short of time."""

from __future__ import annotations

import asyncio

from headgate.engine.front.mailbox import Mailbox
from headgate.engine.request import Delta, Finish


def _token(request: str, token: int) -> Delta:
    return Delta(request, 0, (token,))


def _end(request: str, token: int) -> Delta:
    return Delta(request, 0, (token,), finish=Finish("length", 1, 1, 0))


async def _settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_loop_with_time_to_spare_hands_over_every_step() -> None:
    mailbox = Mailbox(asyncio.get_running_loop(), cpu_clock=lambda: 0.0)
    mailbox.open("a")
    for token in range(4):
        mailbox.post([_token("a", token)])
        assert await mailbox.take("a") == [_token("a", token)]


async def test_tokens_wait_for_each_other_while_the_loop_has_spent_its_share() -> None:
    spent = iter(float(n) for n in range(1000))
    mailbox = Mailbox(asyncio.get_running_loop(), longest_s=3600.0, cpu_clock=lambda: next(spent))
    for request in ("busy", "late"):
        mailbox.open(request)
        mailbox.post([_token(request, 0)])
        assert await mailbox.take(request) == [_token(request, 0)]
    # Whatever was spent before counts as of the first hand-over: nobody had waited until then.
    mailbox.post([_token("busy", 1)])
    assert await mailbox.take("busy") == [_token("busy", 1)]
    readers = {request: asyncio.create_task(mailbox.take(request)) for request in ("busy", "late")}
    mailbox.post([_token("busy", 2), _token("late", 1)])
    mailbox.post([_token("busy", 3)])
    await _settle()
    assert not any(reader.done() for reader in readers.values())
    mailbox.post([_end("busy", 4)])
    assert await readers["busy"] == [_token("busy", 2), _token("busy", 3), _end("busy", 4)]
    await _settle()
    assert not readers["late"].done()
    mailbox.post([_end("late", 2)])
    assert await readers["late"] == [_token("late", 1), _end("late", 2)]


async def test_what_waits_is_handed_over_in_the_end() -> None:
    spent = iter(float(n) for n in range(1000))
    mailbox = Mailbox(asyncio.get_running_loop(), longest_s=0.001, cpu_clock=lambda: next(spent))
    mailbox.open("a")
    got: list[Delta] = []
    for token in range(5):
        mailbox.post([_token("a", token)])
    while len(got) < 5:
        got += await mailbox.take("a")
    assert got == [_token("a", token) for token in range(5)]


async def test_an_eager_request_never_waits() -> None:
    spent = iter(float(n) for n in range(1000))
    mailbox = Mailbox(asyncio.get_running_loop(), longest_s=3600.0, cpu_clock=lambda: next(spent))
    mailbox.open("patient")
    mailbox.open("eager", eager=True)
    for token in range(4):
        mailbox.post([_token("patient", token), _token("eager", token)])
        assert await mailbox.take("eager") == [_token("eager", token)]


async def test_closed_requests_are_dropped() -> None:
    mailbox = Mailbox(asyncio.get_running_loop(), cpu_clock=lambda: 0.0)
    mailbox.open("gone")
    mailbox.open("here")
    mailbox.close("gone")
    mailbox.post([_token("gone", 1), _token("here", 1)])
    assert await mailbox.take("here") == [_token("here", 1)]


async def test_a_reader_that_was_cancelled_may_read_again() -> None:
    mailbox = Mailbox(asyncio.get_running_loop(), cpu_clock=lambda: 0.0)
    mailbox.open("a")
    reader = asyncio.create_task(mailbox.take("a"))
    await _settle()
    reader.cancel()
    await asyncio.wait([reader])
    mailbox.post([_token("a", 1)])
    assert await mailbox.take("a") == [_token("a", 1)]
