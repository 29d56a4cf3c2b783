"""Whether an upstream is asked again, when, and what its failures mean: over plain values and a clock of our own."""

from __future__ import annotations

import asyncio
from email.utils import formatdate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict
from pydantic import ValidationError

from headgate.gateway.road.attachments import Document, Picture, Sound
from headgate.gateway.road.request import ChatRequest, Message, Tool
from headgate.gateway.upstream.body import attached_to, size_of
from headgate.gateway.upstream.failures import Failure, cause_of, hiding, of_reply
from headgate.gateway.upstream.health import Standing
from headgate.gateway.upstream.hedging import race
from headgate.gateway.upstream.pace import Pace
from headgate.gateway.upstream.retrying import HedgeShare, Retrying, hedge_s
from headgate.gateway.upstream.sections import UpstreamHedgeSection, UpstreamRetriesSection, UpstreamSection
from headgate.routing.price import price

NOW = 1_700_000_000.0
BUSY = Failure("overloaded", "is busy.")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def retrying(clock: Clock, *, draw: float = 0.0, total_s: float = 600.0, **rule: Any) -> Retrying:
    return Retrying(UpstreamRetriesSection(**rule), clock, lambda: draw, total_s=total_s)


def reply(status: int, body: bytes = b"", **headers: str) -> Failure:
    given = CIMultiDict({name.replace("_", "-"): value for name, value in headers.items()})
    return of_reply(status, given, body, hiding(()), NOW)


def test_waits_double_and_end() -> None:
    tries = retrying(Clock(), most=3, first_wait_s=0.5, longest_wait_s=1.5)
    assert [tries.wait_s(BUSY) for _ in range(4)] == [0.5, 1.0, 1.5, None]
    assert retrying(Clock(), draw=0.999, first_wait_s=1.0).wait_s(BUSY) == pytest.approx(0.75, abs=0.01)
    assert retrying(Clock(), most=0).wait_s(BUSY) is None


def test_a_hint_is_kept_exactly_unless_it_is_beyond_the_deadline() -> None:
    clock = Clock()
    tries = retrying(clock, most=9, within_s=10.0)
    assert tries.wait_s(Failure("overloaded", "", after_s=7.25)) == 7.25
    assert tries.wait_s(Failure("overloaded", "", after_s=10.5)) is None
    clock.now = 9.9
    assert tries.wait_s(BUSY) is None
    assert retrying(Clock(), total_s=1.0).wait_s(Failure("failed", "", after_s=2.0)) is None


@pytest.mark.parametrize("kind", ["context", "policy", "refused", "setup"])
def test_what_would_be_refused_again_is_not_asked_again(kind: Any) -> None:
    assert retrying(Clock()).wait_s(Failure(kind, "")) is None
    # Unless the server itself says that it is of use.
    assert retrying(Clock()).wait_s(Failure(kind, "", again=True)) is not None
    assert retrying(Clock()).wait_s(Failure("failed", "", again=False)) is None


@given(
    st.lists(st.tuples(st.floats(0, 5), st.none() | st.floats(0, 100)), max_size=20),
    st.floats(0, 0.999),
    st.integers(0, 10),
)
def test_no_attempt_begins_beyond_the_deadline(
    failures: list[tuple[float, float | None]], draw: float, most: int
) -> None:
    clock = Clock()
    tries = retrying(clock, draw=draw, most=most, within_s=12.0)
    begun = 0
    for took_s, after_s in failures:
        clock.now += took_s
        wait_s = tries.wait_s(Failure("overloaded", "", after_s=after_s))
        if wait_s is None:
            break
        assert after_s is None or wait_s == after_s
        clock.now += wait_s
        begun += 1
        assert clock.now <= 12.0
    assert begun <= most


@pytest.mark.parametrize(
    ("headers", "after_s", "again"),
    [
        ({"retry_after_ms": "1500"}, 1.5, None),
        ({"retry_after_ms": "20", "retry_after": "9"}, 0.02, None),
        ({"retry_after": "2.5"}, 2.5, None),
        ({"retry_after": formatdate(NOW + 30, usegmt=True)}, 30.0, None),
        ({"retry_after": formatdate(NOW - 30, usegmt=True)}, 0.0, None),
        ({"retry_after": "soon"}, None, None),
        ({"retry_after": "-1"}, None, None),
        ({"retry_after": "nan"}, None, None),
        ({"x_should_retry": "true"}, None, True),
        ({"X_Should_Retry": "False"}, None, False),
        ({}, None, None),
    ],
)
def test_hints_are_read(headers: dict[str, str], after_s: float | None, again: bool | None) -> None:
    found = reply(429, **headers)
    assert (found.kind, found.after_s, found.again) == ("overloaded", after_s, again)


@pytest.mark.parametrize(
    ("status", "body", "kind", "told", "code"),
    [
        (400, b'{"error": {"message": "x", "code": "context_length_exceeded"}}', "context", 400,
         "context_length_exceeded"),
        (400, b'{"message": "The model\'s maximum context length is 9 tokens"}', "context", 400,
         "context_length_exceeded"),
        (422, b'{"error": "`inputs` must have less than 10 tokens, too many tokens"}', "context", 400,
         "context_length_exceeded"),
        (400, b'{"error": {"message": "x", "code": "content_filter"}}', "policy", 400, "content_policy_violation"),
        (400, b'{"error": {"message": "x", "type": "content_policy_violation"}}', "policy", 400,
         "content_policy_violation"),
        (400, b'{"error": {"message": "top_k?", "param": "top_k", "code": "unknown"}}', "refused", 400, "unknown"),
        (422, b'{"detail": [{"msg": "field required"}]}', "refused", 422, "upstream_refused"),
        (418, b"teapot", "refused", 400, "upstream_refused"),
        (401, b"", "setup", 502, "upstream_setup"),
        (403, b"", "setup", 502, "upstream_setup"),
        (404, b"not json", "setup", 502, "upstream_setup"),
        (302, b"", "setup", 502, "upstream_setup"),
        (429, b'{"error": {"code": "insufficient_quota"}}', "overloaded", 503, "upstream_overloaded"),
        (402, b'{"error": {"message": "Insufficient Balance"}}', "overloaded", 503, "upstream_overloaded"),
        (529, b"", "overloaded", 503, "upstream_overloaded"),
        (408, b"", "failed", 502, "upstream_failed"),
        (500, b"[1]", "failed", 502, "upstream_failed"),
    ],
)  # fmt: skip
def test_replies_are_told_apart(status: int, body: bytes, kind: str, told: int, code: str) -> None:
    failure = reply(status, body)
    error = failure.told("up")
    assert (failure.kind, error.status, error.code) == (kind, told, code)
    assert "'up'" in error.message


@pytest.mark.parametrize(("status", "code"), [(429, "insufficient_quota"), (402, "")])
def test_a_spent_quota_is_not_waited_for(status: int, code: str) -> None:
    failure = reply(status, b'{"error": {"code": "%b"}}' % code.encode(), retry_after="1")
    assert not failure.retriable
    assert failure.told("up").headers["x-should-retry"] == "false"


def test_clients_are_told_when_to_come_again() -> None:
    assert reply(429, retry_after="60").told("up").headers["Retry-After"] == "60"


@given(st.integers(100, 999), st.binary(max_size=300))
def test_any_reply_is_some_failure(status: int, body: bytes) -> None:
    error = reply(status, body).told("up")
    assert error.status in (400, 413, 415, 422, 502, 503)
    assert error.encode()


def test_every_failure_that_is_the_upstreams_has_a_cause_for_the_route() -> None:
    kinds: tuple[Any, ...] = ("unreachable", "timeout", "failed", "broken", "cut", "stalled", "setup")
    assert {cause_of(Failure(kind, "").told("up")) for kind in kinds} == {"down"}
    named: tuple[Any, ...] = ("context", "policy", "overloaded")
    causes = [cause_of(Failure(kind, "").told("up")) for kind in named]
    assert causes == ["context", "policy", "overloaded"]


def test_the_data_of_a_picture_that_a_server_quotes_is_hidden() -> None:
    hide = hiding(())
    assert hide("cannot read data:image/png;base64,iVBORw0KGgo=, sorry") == "cannot read data:image/png;base64,…, sorry"
    assert hide(f"not a recording: {'QUJD' * 60}") == "not a recording: …"
    assert hide("a path /v1/chat/completions") == "a path /v1/chat/completions"


def test_secrets_are_hidden() -> None:
    hide = hiding(("hunter2-long", "abc"))
    assert hide("key hunter2-long; Bearer abcdef123, sk-proj-99aabbcc and abc") == "key …; …, … and abc"


def test_hedges_follow_what_was_measured() -> None:
    clock = Clock()
    pace = Pace(clock)
    rule = UpstreamHedgeSection(after="p90")
    for at in range(7):
        pace.began(float(at))
    assert hedge_s(rule, pace.quantile) is None
    for at in range(7, 20):
        pace.began(float(at))
    assert hedge_s(rule, pace.quantile) == 17.0
    assert hedge_s(UpstreamHedgeSection(after=0.25), pace.quantile) == 0.25
    assert hedge_s(UpstreamHedgeSection(), pace.quantile) is None


@pytest.mark.parametrize("after", ["p5", "p100", "soon", 0, -1, True])
def test_other_delays_are_refused(after: Any) -> None:
    with pytest.raises(ValidationError):
        UpstreamHedgeSection(after=after)


@given(st.lists(st.booleans(), max_size=200), st.floats(0.01, 1.0))
def test_second_attempts_are_a_share_of_the_first(slow: list[bool], share: float) -> None:
    hedges = HedgeShare(share)
    made = 0
    for one in slow:
        hedges.asked()
        made += one and hedges.take()
    assert made <= 1 + share * len(slow) + 1e-9


def test_prices_follow_what_was_measured() -> None:
    clock = Clock()
    pace = Pace(clock)
    for _ in range(200):
        clock.now += 1.0
        # 1000 tokens of prompt in 0.5 s, then 10 ms a token.
        pace.answered(1000, 101, 0.5, 1.5)
        _ = pace.rates
    cost = price(prompt_tokens=1000, resident_tokens=0, output_tokens=100, rates=pace.rates, load=pace.load)
    assert cost.prefill_s == pytest.approx(0.5, rel=0.15)
    assert cost.decode_s == pytest.approx(1.0, rel=0.15)
    pace.in_flight = 20
    busy = price(prompt_tokens=1000, resident_tokens=0, output_tokens=100, rates=pace.rates, load=pace.load)
    assert busy.score > cost.score


def test_the_size_of_prompts_is_learned() -> None:
    pace = Pace(Clock())
    request = ChatRequest("chat.completions", "up", (Message("user", "x" * 1000),), tools=(Tool("f"),))
    chars = size_of(request)
    assert chars > 1000
    for _ in range(200):
        pace.counted(chars, 2 * chars)
    assert pace.tokens(chars) == pytest.approx(2 * chars, rel=0.01)
    assert size_of(ChatRequest("completions", "up", prompt=(1, 2, 3))) == 12


def test_what_is_beside_text_is_worth_tokens_that_are_learned_apart() -> None:
    pace = Pace(Clock())
    data = "A" * 400_000
    parts = ("x" * 1000, Picture(f"data:image/png;base64,{data}"), Picture("https://x", "low"))
    request = ChatRequest("chat.completions", "up", (Message("user", "x" * 1000, parts=parts),))
    plain = ChatRequest("chat.completions", "up", (Message("user", "x" * 1000),))
    assert size_of(request) == size_of(plain), "data is no text"
    assert (attached_to(plain), attached_to(request)) == (0, 1100)
    before = pace.tokens(size_of(plain))
    assert pace.tokens(size_of(request), attached_to(request)) == before + 1100
    for _ in range(200):
        pace.counted(size_of(request), before + 330, attached_to(request))
    assert pace.tokens(size_of(plain)) == before, "text is not dearer for it"
    assert pace.tokens(size_of(request), attached_to(request)) == pytest.approx(before + 330, rel=0.01)
    long = [Sound(data, "mp3"), Document(data)]
    assert [attachment.tokens for attachment in long] == [301, 6001]
    before = pace.tokens(0, 1000)
    pace.counted(10, 0, 1000)
    assert pace.tokens(0, 1000) == before, "a server that counts nothing says nothing"


def test_checks_and_answers_say_how_it_stands() -> None:
    standing = Standing(failures=2)
    assert not standing.checked(well=False)
    assert standing.well
    assert standing.checked(well=False)
    assert not standing.well
    assert not standing.checked(well=False)
    standing.answered()
    assert not standing.well
    assert standing.checked(well=True)
    assert standing.well
    assert standing.ends == {"answered": 1}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"base_url": "ftp://x/v1"}, "not an http"),
        ({"base_url": "http://user:pw-123@x/v1"}, "a user or a password"),
        ({"base_url": "http:///v1"}, "without a host"),
        ({"base_url": "http://x:99999/v1"}, "port between"),
        ({"base_url": "http://x/v1?key=1"}, "a query"),
        ({"id": "auto"}, "is a route"),
        ({"inputs": ["video"]}, "'image', 'audio' or 'file'"),
        ({"inputs": ["image"], "lacks": ["vision"]}, "take one of them out"),
        ({"input_urls": True}, "inputs does not have image"),
        ({"api_key": "sk-literal-123"}, "pattern"),
        ({"headers": {"Authorization": "x"}}, "give the key as api_key"),
        ({"headers": {"a b": "x"}}, "no name of a header"),
        ({"headers": {"x-a": "x\ny"}}, "line break"),
        ({"price": {"usd_per_million_prompt_tokens": -1}}, "greater than or equal to 0"),
        ({"retries": {"first_wait_s": 9}}, "must not be above"),
        ({"timeouts": {"stall_s": 0}}, "greater than 0"),
    ],
)
def test_sections_that_cannot_be_meant_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message) as caught:
        UpstreamSection(**{"id": "up", "base_url": "http://x/v1", "model": "m", **fields})
    assert "pw-123" not in caught.value.errors()[0]["msg"]


class Attempt:
    """Begins when it is let, or fails."""

    def __init__(self) -> None:
        self.let: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.begun = asyncio.Event()
        self.closed = False

    async def begin(self) -> None:
        self.begun.set()
        await asyncio.shield(self.let)

    def close(self) -> None:
        self.closed = True


async def raced(first: Attempt, second: Attempt | None, *, after_s: float = 0.0) -> tuple[Attempt, Attempt | None]:
    return await race(first, lambda: second, after_s)


async def test_who_begins_first_is_heard_and_the_other_is_closed() -> None:
    for late in (False, True):
        first, second = Attempt(), Attempt()
        (second if late else first).let.set_result(None)
        winner, lost = await raced(first, second, after_s=0.0 if late else 10.0)
        assert winner is (second if late else first)
        assert lost is (first if late else None)
        assert (winner.closed, lost is None or lost.closed) == (False, True)


async def test_one_that_fails_leaves_it_to_the_other() -> None:
    first, second = Attempt(), Attempt()
    racing = asyncio.create_task(raced(first, second))
    await second.begun.wait()
    first.let.set_exception(BUSY)
    await asyncio.sleep(0)
    second.let.set_result(None)
    assert (await racing)[0] is second


async def test_where_none_begins_the_first_says_why_and_both_are_closed() -> None:
    first, second = Attempt(), Attempt()
    first.let.set_exception(BUSY)
    with pytest.raises(Failure, match="busy"):
        await raced(first, second, after_s=10.0)
    assert (first.closed, second.closed) == (True, False)
    first, second = Attempt(), Attempt()
    racing = asyncio.create_task(raced(first, second))
    await second.begun.wait()
    racing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await racing
    assert (first.closed, second.closed) == (True, True)
