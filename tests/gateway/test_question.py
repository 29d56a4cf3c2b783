"""Which requests the cache takes part in, under which key, and for how long."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from gateway_fakes import FakeDestination
from hypothesis import given
from hypothesis import strategies as st

from headgate.cache.fingerprint import Fingerprinter
from headgate.engine.demo import checkpoint
from headgate.engine.engine import Engine
from headgate.engine.settings import EngineSettings, ModelSpec
from headgate.gateway.caching.question import Bypass, CachePolicy, Question, normalized, question_of
from headgate.gateway.local.destination import LocalDestination
from headgate.gateway.road.attachments import Document, Picture, Piece, Sound
from headgate.gateway.road.request import (
    CacheControl,
    ChatRequest,
    Draft,
    Message,
    ResponseFormat,
    Sampling,
    Tool,
    ToolCall,
    ToolUse,
)
from headgate.gateway.teams.keys import Principal
from headgate.gateway.teams.sections import LimitsSection, TeamCacheSection, TeamPolicy

PRINTS = Fingerprinter(b"0" * 16)
RED = Principal("red", "one")
ASK = ChatRequest("chat.completions", "fake", (Message("system", "Be kind."), Message("user", "Two plus two?")))
SEEDED = Sampling(temperature=0.5, seed=1)


def asked(
    request: ChatRequest = ASK, principal: Principal = RED, policy: CachePolicy | None = None, **fake: Any
) -> Question | Bypass:
    return question_of(request, principal, [FakeDestination(**fake)], policy or CachePolicy(), PRINTS)


def key(request: ChatRequest = ASK, principal: Principal = RED, policy: CachePolicy | None = None, **fake: Any) -> str:
    question = asked(request, principal, policy, **fake)
    assert isinstance(question, Question)
    return question.fingerprint.exact_key


def user(text: str) -> ChatRequest:
    return replace(ASK, messages=(Message("user", text),))


PAGE = "It rained. " * 1000
WORDS = st.text(max_size=5)
TOKENS = st.lists(st.integers(0, 99), max_size=2).map(tuple)
CALLS = st.lists(st.builds(ToolCall, WORDS, WORDS, WORDS), max_size=2).map(tuple)
PARTS = st.lists(WORDS | st.builds(Picture, WORDS.map("data:".__add__)) | st.builds(Document, WORDS), max_size=2)
MESSAGES = st.builds(
    Message,
    st.sampled_from(["system", "user", "assistant"]),
    WORDS,
    st.none() | WORDS,
    st.none() | WORDS,
    CALLS,
    parts=PARTS.map(tuple),
)
TOOLS = st.builds(Tool, WORDS, st.none() | WORDS, st.dictionaries(WORDS, st.integers(), max_size=2), st.booleans())
SAMPLINGS = st.builds(
    Sampling,
    temperature=st.sampled_from([0.5, 0.7]),
    top_p=st.none() | st.sampled_from([0.1, 0.2]),
    top_k=st.none() | st.integers(0, 3),
    min_p=st.sampled_from([0.0, 0.1]),
    presence_penalty=st.sampled_from([0.0, 1.0]),
    frequency_penalty=st.sampled_from([0.0, 1.0]),
    repetition_penalty=st.sampled_from([1.0, 1.5]),
    logit_bias=st.lists(st.tuples(st.integers(0, 9), st.sampled_from([1.0, 2.0])), max_size=2).map(tuple),
    seed=st.integers(0, 3),
    stop_token_ids=TOKENS,
    ignore_eos=st.booleans(),
)
MATTERS: dict[str, st.SearchStrategy[Any]] = {
    "endpoint": st.sampled_from(["chat.completions", "completions"]),
    "model": st.sampled_from(["fake", "auto"]),
    "messages": st.lists(MESSAGES, max_size=3).map(tuple),
    "prompt": st.none() | WORDS | TOKENS,
    "sampling": SAMPLINGS,
    "max_tokens": st.none() | st.integers(1, 3),
    "n": st.integers(1, 3),
    "stop": st.lists(WORDS, max_size=2).map(tuple),
    "logprobs": st.none() | st.integers(0, 3),
    "tools": st.lists(TOOLS, max_size=2).map(tuple),
    "echo": st.booleans(),
    "drops": st.booleans(),
    "reasoning_effort": st.sampled_from([None, "none", "high"]),
    "thinking_tokens": st.none() | st.integers(1, 3),
    "response_format": st.builds(
        ResponseFormat,
        st.sampled_from(["text", "json_schema"]),
        st.none() | st.dictionaries(WORDS, st.integers(), max_size=2),
    ),
    "unknown": st.lists(st.tuples(WORDS, WORDS), max_size=2).map(tuple),
    "tool_use": st.builds(ToolUse, st.sampled_from(["auto", "none"]), st.none() | WORDS, st.booleans()),
}
NO_MATTER: dict[str, st.SearchStrategy[Any]] = {
    "stream": st.booleans(),
    "include_usage": st.booleans(),
    "cache": st.builds(CacheControl, max_age_s=st.none() | st.just(5.0), tags=st.just(("a",))),
    "user": st.none() | WORDS,
    "session": st.none() | WORDS,
    "priority": st.sampled_from(["interactive", "foreground", "background"]),
    "service_tier": st.sampled_from(["auto", "default", "flex", "priority"]),
    "metadata": st.lists(st.tuples(WORDS, WORDS), max_size=2).map(tuple),
    "draft": st.none() | st.builds(Draft, st.just("prediction"), WORDS),
    "arm": st.booleans(),
}
REQUESTS = st.fixed_dictionaries(MATTERS)


def test_every_field_of_a_request_is_known_to_change_its_answer_or_not() -> None:
    assert {f.name for f in fields(ChatRequest)} == {*MATTERS, *NO_MATTER}


@given(REQUESTS, REQUESTS, st.fixed_dictionaries(NO_MATTER), st.sets(st.sampled_from(sorted(MATTERS)), max_size=2))
def test_keys_are_equal_exactly_when_all_is_equal_that_can_change_the_answer(
    one: dict[str, Any], other: dict[str, Any], rest: dict[str, Any], changed: set[str]
) -> None:
    two = {**one, **{name: other[name] for name in changed}}
    assert (key(ChatRequest(**one)) == key(ChatRequest(**two, **rest))) == (one == two)


@given(SAMPLINGS, SAMPLINGS)
def test_a_greedy_answer_depends_on_what_remains_of_the_sampling(one: Sampling, other: Sampling) -> None:
    def greedy(sampling: Sampling) -> Sampling:
        return replace(sampling, temperature=0.0)

    def neutral(sampling: Sampling) -> Sampling:
        return replace(sampling, temperature=0.0, top_p=None, top_k=None, min_p=0.0, seed=None)

    same = neutral(one) == neutral(other)
    assert (key(replace(ASK, sampling=greedy(one))) == key(replace(ASK, sampling=greedy(other)))) == same


def test_weights_epochs_and_teams_change_the_key() -> None:
    keys = [key(), key(revision="other"), key(policy=CachePolicy(epoch="2")), key(principal=Principal("blue", "one"))]
    assert len(set(keys)) == 4


def test_keys_share_only_where_they_may_read_and_write_as_much() -> None:
    def of(most: int | None) -> str:
        return key(principal=Principal("red", "two", policy=TeamPolicy(limits=LimitsSection(max_context_tokens=most))))

    assert len({of(None), of(40), of(41)}) == 3
    assert (of(None), of(40)) == (key(), of(40))


def test_how_much_a_model_reads_and_how_it_calls_is_in_its_revision() -> None:
    engine, folder = Engine(EngineSettings(kv_bytes=16 << 20, threads=1)), checkpoint("student")
    try:
        engine.load(ModelSpec("a", folder))
        engine.load(ModelSpec("b", folder))
        engine.load(ModelSpec("short", folder, context_length=48))
        engine.load(ModelSpec("calls", folder, tool_calls="mistral"))
        revisions = {name: LocalDestination(model).revision for name, model in engine.models.items()}
    finally:
        engine.stop()
    assert revisions["a"] == revisions["b"]
    assert len(set(revisions.values())) == 3


def test_what_is_beside_text_is_in_the_key_and_never_served_by_meaning() -> None:
    def seen(*pieces: Piece, asks: CacheControl | None = None) -> ChatRequest:
        return replace(ASK, messages=(Message("user", "Two?", parts=pieces),), cache=asks or CacheControl())

    here, there = Picture("data:image/png;base64,AAAA", None, "a"), Picture("data:image/png;base64,AAAA", None, "b")
    texts = [seen("Two?", here), seen(here, "Two?"), seen("Two?", Picture("data:image/png;base64,AAAB"))]
    sounds = [seen("Two?", Sound("AAAA", "wav")), seen("Two?", Document("AAAA")), seen("Two?", Sound("AAAA", "mp3"))]
    assert len({key(request) for request in [user("Two?"), *texts, *sounds]}) == 7
    assert key(seen("Two?", here)) == key(seen("Two?", there)), "where it was written is no part of it"
    question = asked(replace(ASK, messages=(*seen("Two?", here).messages, Message("user", "And three?"))))
    assert isinstance(question, Question)
    assert (question.findable, question.semantic) == (False, False)
    away = Picture("https://example.com/a.png")
    assert asked(seen("Two?", away)) == Bypass("url")
    assert isinstance(asked(seen("Two?", away, asks=CacheControl(max_age_s=5.0))), Question)


def test_moving_text_between_turns_changes_the_key() -> None:
    a = replace(ASK, messages=(Message("user", "a"), Message("assistant", "b"), Message("user", "c")))
    b = replace(ASK, messages=(Message("user", "a"), Message("assistant", ""), Message("user", "bc")))
    assert key(a) != key(b)


def test_keys_of_a_team_share_unless_its_policy_says_otherwise() -> None:
    two = Principal("red", "two")
    assert key() == key(principal=two)
    alone = CachePolicy(share="user")
    assert key(policy=alone) != key(principal=two, policy=alone)
    assert key(replace(ASK, user="ann"), policy=alone) != key(replace(ASK, user="bob"), policy=alone)
    assert key(replace(ASK, user="ann")) == key(replace(ASK, user="bob"))
    own = TeamPolicy(cache=TeamCacheSection(share="user"))
    assert key(principal=Principal("red", "one", policy=own)) == key(principal=Principal("red", "one"), policy=alone)
    assert key(principal=Principal("red", "one", policy=own)) != key(principal=Principal("red", "two", policy=own))


def test_a_team_keeps_answers_as_long_and_serves_them_as_strictly_as_it_says() -> None:
    def of(**cache: Any) -> Question | Bypass:
        return asked(principal=Principal("red", "one", policy=TeamPolicy(cache=TeamCacheSection(**cache))))

    assert of(enabled=False) == Bypass("off")
    short, exact, strict = of(ttl_s=5), of(max_error=0), of(max_error=0.01)
    assert isinstance(short, Question)
    assert isinstance(exact, Question)
    assert isinstance(strict, Question)
    assert (short.ttl_s, exact.semantic, exact.findable, strict.max_error) == (5, False, True, 0.01)


def test_a_user_of_their_own_is_forgotten_with_the_team() -> None:
    question = asked(policy=CachePolicy(share="user"))
    assert isinstance(question, Question)
    assert PRINTS.scope_tag("red") in question.tags


@pytest.mark.parametrize(
    ("request_", "policy", "reason"),
    [
        (replace(ASK, sampling=Sampling(temperature=0.3)), CachePolicy(), "random"),
        (replace(ASK, sampling=Sampling(temperature=0.3)), CachePolicy(max_temperature=0.2), "random"),
        (replace(ASK, sampling=Sampling(temperature=0.3)), CachePolicy(max_temperature=0.3), None),
        (replace(ASK, sampling=Sampling(temperature=0.3, seed=1)), CachePolicy(), None),
        (replace(ASK, sampling=Sampling(temperature=0.3), cache=CacheControl(max_age_s=9)), CachePolicy(), None),
        (replace(ASK, sampling=Sampling(temperature=2), cache=CacheControl(only_if_cached=True)), CachePolicy(), None),
        (replace(ASK, messages=(Message("tool", "4", tool_call_id="1"),)), CachePolicy(), "tools"),
        (replace(ASK, messages=(Message("tool", "4", tool_call_id="1"),)), CachePolicy(tool_results=True), None),
        (
            replace(ASK, messages=(Message("tool", "4", tool_call_id="1"),), cache=CacheControl(max_age_s=9)),
            CachePolicy(),
            None,
        ),
        (user("What is the latest release?"), CachePolicy(time_sensitive_ttl_s=0), "time_sensitive"),
        (replace(ASK, cache=CacheControl(no_store=True)), CachePolicy(), "no_store"),
    ],
)
def test_what_takes_no_part(request_: ChatRequest, policy: CachePolicy, reason: str | None) -> None:
    found = asked(request_, policy=policy)
    assert (found.reason if isinstance(found, Bypass) else None) == reason


@pytest.mark.parametrize(
    "request_",
    [
        user("What's today’s weather?"),
        replace(
            ASK, messages=(Message("user", "Any news?"), Message("assistant", "Yes."), Message("user", "Of Rome?"))
        ),
        replace(ASK, endpoint="completions", messages=(), prompt="The current president is"),
        user(f"What's the weather today? {PAGE}"),
        user(f"{PAGE} What's the weather today?"),
    ],
)
def test_questions_about_now_live_shortly_and_match_word_for_word_only(request_: ChatRequest) -> None:
    question = asked(request_, policy=CachePolicy(ttl_s=100.0, time_sensitive_ttl_s=5.0))
    assert isinstance(question, Question)
    assert (question.ttl_s, question.semantic) == (5.0, False)
    later = asked(request_, policy=CachePolicy(ttl_s=3.0, time_sensitive_ttl_s=5.0))
    assert isinstance(later, Question)
    assert later.ttl_s == 3.0
    for request in (ASK, user(f"Summarise this. {PAGE} He left today. {PAGE}")):
        plain = asked(request)
        assert isinstance(plain, Question)
        assert (plain.ttl_s, plain.semantic) == (3600.0, True)


def test_who_accepts_no_error_gets_no_similar_answer() -> None:
    for accepted, semantic in ((0.0, False), (0.01, True), (None, True)):
        question = asked(replace(ASK, cache=CacheControl(max_error=accepted)))
        assert isinstance(question, Question)
        assert (question.semantic, question.max_error) == (semantic, accepted)


def test_text_is_normalized_only_where_that_is_set() -> None:
    one, other = user("Where is Malmo\u0308?\n"), user("  Where  is\tMalm\u00f6?")
    assert key(one) != key(other)
    folded = CachePolicy(normalize_text=True)
    assert key(one, policy=folded) == key(other, policy=folded)
    assert key(one, policy=folded) != key(user("Where is Malmo?"), policy=folded)


@given(st.text())
def test_normalizing_twice_changes_nothing(text: str) -> None:
    assert normalized(normalized(text)) == normalized(text)


def test_answers_that_may_call_functions_are_never_served_to_similar_questions() -> None:
    for tools, findable in (((), True), ((Tool("find"),), False)):
        question = asked(replace(ASK, tools=tools, sampling=Sampling(temperature=0.0)))
        assert isinstance(question, Question)
        assert (question.findable, question.semantic) == (findable, findable)
