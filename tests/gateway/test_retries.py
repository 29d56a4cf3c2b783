"""Requests that come again: the answer that was made is given again, and nobody pays for it twice."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from gateway_fakes import FakeDestination
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as replace_entry
from multidict import CIMultiDict
from prometheus_client import generate_latest
from road_site import ASK, Site

from headgate.engine.text.stream import TextLogprob, TopLogprob
from headgate.gateway.road.destinations import Outcome
from headgate.gateway.road.events import Opened
from headgate.gateway.road.request import CacheControl, Chunk, Usage
from headgate.gateway.teams.costs import NOTHING
from headgate.gateway.teams.keys import Principal
from headgate.gateway.teams.ledger_file import Entry
from headgate.gateway.teams.retries import Key, Retries, Whole, retry_of
from headgate.gateway.teams.sections import LimitsSection, TeamPolicy
from headgate.gateway.teams.tabs import Attempt, Tab
from headgate.gateway.telemetry.record import RequestRecord
from headgate.gateway.wire.errors import ApiError

FRESH = replace(ASK, cache=CacheControl(no_store=True))
RED = Principal("red", "laptop")
BLANK = Entry("2026-11-23", 0, "red", "laptop", "fake", "generated", "", "", "id")


async def ask(site: Site, body: bytes = b"{}", who: Principal = RED, **headers: str) -> RequestRecord:
    record = RequestRecord("id", "/v1/chat/completions")
    record.retry = retry_of(CIMultiDict({name.replace("_", "-"): value for name, value in headers.items()}), body)
    async with site.road.answer(FRESH, who, record) as answer:
        while await answer.next_batch():
            pass
    return record


async def test_an_official_clients_retry_gets_the_answer_that_was_lost() -> None:
    destination = FakeDestination()
    site = Site(destination)
    first = await ask(site, x_stainless_retry_count="0")
    again = await ask(site, x_stainless_retry_count="1")
    assert (first.verdict, again.verdict, destination.begun) == ("bypass", "exact", 1)
    assert site.count('headgate_cache_lookups_total{reason="retry",verdict="exact"} 1.0')
    await ask(site, x_stainless_retry_count="0")
    assert destination.begun == 2


async def test_only_the_same_key_and_body_are_the_same_request() -> None:
    destination = FakeDestination()
    site = Site(destination)
    await ask(site)
    await ask(site, b"{ }", x_stainless_retry_count="1")
    await ask(site, who=Principal("red", "phone"), x_stainless_retry_count="1")
    assert destination.begun == 3


async def test_an_idempotency_key_stands_for_its_body() -> None:
    destination = FakeDestination()
    site = Site(destination)
    await ask(site, idempotency_key="a")
    await ask(site, idempotency_key="a")
    assert destination.begun == 1
    with pytest.raises(ApiError) as caught:
        await ask(site, b"{ }", idempotency_key="a")
    assert (caught.value.status, caught.value.code) == (422, "idempotency_key_reused")
    await ask(site, b"{ }", idempotency_key="b")
    assert destination.begun == 2


async def test_a_retry_waits_for_the_answer_in_the_making() -> None:
    destination = FakeDestination(gate=asyncio.Event())
    site = Site(destination)
    first = asyncio.create_task(ask(site))
    await destination.started.wait()
    second = asyncio.create_task(ask(site, x_stainless_retry_count="1"))
    await asyncio.sleep(0)
    assert destination.gate is not None
    destination.gate.set()
    assert (await first).verdict == "bypass"
    assert (await second).verdict == "exact"
    assert destination.begun == 1


async def test_an_answer_that_was_left_is_made_anew() -> None:
    destination = FakeDestination(gate=asyncio.Event())
    site = Site(destination)
    first = asyncio.create_task(ask(site))
    await destination.started.wait()
    second = asyncio.create_task(ask(site, x_stainless_retry_count="1"))
    await asyncio.sleep(0)
    first.cancel()
    assert destination.gate is not None
    destination.gate.set()
    assert (await second).verdict == "bypass"
    assert destination.begun == 2


async def test_answers_are_forgotten_after_a_while_and_beyond_a_size() -> None:
    now = 0.0
    retries = Retries(window_s=10, most_bytes=15_000, clock=lambda: now)
    retry = retry_of(CIMultiDict(), b"{}")
    opened = Opened("miss", "absent", "m", "f", "r")
    said = TextLogprob("a", (97,), -0.1, (TopLogprob("b", (98,), -3.0),))
    chunks = (Chunk(0, "a", (said,), token_ids=(1,)), Chunk(0, "b", (said,), finish_reason="stop"))
    whole = Whole(opened, chunks, Outcome(Usage(1, 100, 0), 0.0, 0.0), 0.0)
    assert replace(whole, chunks=()).size + 1_000 < whole.size < 10_000
    for place in range(2):
        key = ("red", None, b"", str(place))
        assert retries.begin(key, retry)
        retries.end(key, whole)
    assert len(retries) == 1
    assert await retries.find(("red", None, b"", "1"), retry) is whole
    now = 10.0
    assert await retries.find(("red", None, b"", "1"), retry) is None


def used(site: Site, cause: str) -> tuple[int, int]:
    """Prompt and completion tokens, as Prometheus is told."""
    text = generate_latest(site.metrics.registry).decode()
    lines = [line for line in text.splitlines() if line.startswith("headgate_usage_tokens_total{")]
    found = {kind: line for line in lines for kind in ("prompt", "completion") if f'"{cause}",kind="{kind}"' in line}
    return tuple(int(float(found[kind].split()[-1])) if kind in found else 0 for kind in ("prompt", "completion"))  # type: ignore[return-value]


async def leave(site: Site, body: bytes = b"{}", **headers: str) -> None:
    record = RequestRecord("id", "/v1/chat/completions")
    record.retry = retry_of(CIMultiDict({name.replace("_", "-"): value for name, value in headers.items()}), body)
    async with site.road.answer(FRESH, RED, record) as answer:
        await answer.next_batch()


def two_pieces() -> Site:
    """A model whose first token is heard before its second, and whose account has 5 and 2."""
    return Site(FakeDestination(pieces=(Chunk(0, "a", token_ids=(1,)), Chunk(0, "b", finish_reason="stop"))))


async def test_of_an_answer_that_was_left_only_the_rest_is_billed_when_it_is_asked_for_again() -> None:
    site = two_pieces()
    await leave(site)
    assert used(site, "cancelled") == (5, 1)
    await leave(site)
    assert (used(site, "cancelled"), used(site, "retried")) == ((5, 1), (5, 1))
    await ask(site)
    assert (used(site, "generated"), used(site, "retried")) == ((0, 1), (10, 2))
    # His client has it now: who asks the same once more has a new answer.
    await ask(site)
    assert (used(site, "generated"), used(site, "retried")) == ((5, 3), (10, 2))


async def test_whatever_becomes_of_its_tab_nobody_waits_for_an_attempt_that_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = two_pieces()

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a fault")

    with monkeypatch.context() as patched:
        patched.setattr(site.admission.tabs, "leave", broken)
        with pytest.raises(RuntimeError, match="a fault"):
            await leave(site)
    async with asyncio.timeout(10):
        await ask(site, x_stainless_retry_count="1")


async def test_a_tab_is_of_one_body_and_key() -> None:
    site = two_pieces()
    await leave(site, idempotency_key="a")
    with pytest.raises(ApiError, match="given before with another body"):
        await ask(site, b"{ }", idempotency_key="a")
    await ask(site, b"{ }")
    await ask(site, who=Principal("red", "phone"))
    assert used(site, "retried") == (0, 0)


class Pool(dict[tuple[Key, bytes], list[tuple[Tab, float]]]):
    """What gateways keep tabs in together."""

    async def take(self, key: Key, body: bytes) -> tuple[Tab, float] | bool:
        tabs = self.get((key, body))
        return tabs.pop() if tabs else False

    async def put(self, key: Key, body: bytes, tab: Tab, seconds: float) -> None:
        kept = Tab()
        kept.used = True
        kept.billed.add(*tab.billed)
        self.setdefault((key, body), []).append((kept, seconds))


def shared() -> tuple[Site, Site]:
    """Two gateways."""
    sites, pool = (two_pieces(), two_pieces()), Pool()
    for site in sites:
        site.admission.tabs.share(pool)
    return sites


async def test_of_an_answer_that_was_left_at_another_gateway_only_the_rest_is_billed() -> None:
    one, two = shared()
    await leave(one)
    await one.admission.settled()
    await leave(two)
    await two.admission.settled()
    await ask(one)
    assert (used(one, "cancelled"), used(one, "generated"), used(one, "retried")) == ((5, 1), (0, 1), (5, 1))
    assert (used(two, "cancelled"), used(two, "retried")) == ((0, 0), (5, 1))


async def test_an_answer_that_was_lost_and_is_made_anew_by_another_gateway_is_billed_once() -> None:
    one, two = shared()
    await ask(one)
    await one.admission.settled()
    await ask(one, x_stainless_retry_count="1")
    await ask(two, x_stainless_retry_count="2")
    assert (used(one, "generated"), used(two, "generated"), used(two, "retried")) == ((5, 2), (0, 0), (5, 2))
    # Without a word of its client the same body is another request.
    await ask(two)
    assert used(two, "generated") == (5, 2)


async def test_a_retry_that_is_refused_leaves_the_tab_open() -> None:
    site = two_pieces()
    await leave(site)
    poor = TeamPolicy(limits=LimitsSection(tokens_per_minute=6))
    with pytest.raises(ApiError, match="Request too large"):
        await ask(site, who=replace(RED, policy=poor))
    await ask(site)
    assert used(site, "generated") == (0, 1)


ACCOUNTS = st.builds(
    lambda prompt, completion, device, usd: replace_entry(
        BLANK, prompt_tokens=prompt, completion_tokens=completion, device_us=device, nano_usd=usd
    ),
    *(st.integers(0, 20),) * 4,
)
COUNTS = ("prompt_tokens", "completion_tokens", "device_us", "nano_usd")


@given(st.lists(st.tuples(st.integers(0, 3), ACCOUNTS), max_size=12))
def test_attempts_are_billed_as_much_as_the_largest_of_them(accounts: list[tuple[int, Entry]]) -> None:
    """In whatever order they end, and however many generations each has."""
    tab = Tab()
    attempts = [Attempt(tab) for _ in range(4)]
    bills = [(entry, *attempts[number].bill(entry)) for number, entry in accounts]
    for name in COUNTS:
        sums = [sum(getattr(entry, name) for at, entry in accounts if at == number) for number in range(4)]
        assert sum(getattr(own, name) for _, own, _ in bills) == max(sums)
    for entry, own, before in bills:
        for name in COUNTS[:2]:
            assert getattr(own, name) + (getattr(before, name) if before else 0) == getattr(entry, name)
        assert before is None or (before.cause, before.requests, before.cost) == ("retried", 0, NOTHING)
