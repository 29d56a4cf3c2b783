"""Pieces of a stream are, to the byte, what encoding the whole event gives."""

from __future__ import annotations

from collections import defaultdict

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from headgate.engine.text.stream import TextLogprob, TopLogprob
from headgate.gateway.road.request import ChatRequest, Chunk, Message
from headgate.gateway.wire.chat_reply import (
    ChatCompletionChunk,
    ChatReply,
    ChoiceDelta,
    ChunkChoice,
)
from headgate.gateway.wire.chat_reply import logprobs_body as chat_logprobs
from headgate.gateway.wire.completions import Completion, CompletionChoice, CompletionReply, TextOffsets
from headgate.gateway.wire.completions import logprobs_body as completion_logprobs
from headgate.gateway.wire.identity import Identity

TEXT = st.text(st.characters(exclude_categories=("Cs",)))
NAMES = st.builds(Identity, TEXT, st.integers(0, 2**40), TEXT, TEXT)
LOGPROBS = st.builds(
    TextLogprob,
    TEXT,
    st.just((0xC3,)),
    st.floats(-50, 0),
    st.lists(st.builds(TopLogprob, TEXT, st.just((7,)), st.floats(-50, 0)), max_size=2).map(tuple),
)
CHUNKS = st.builds(
    Chunk,
    st.integers(0, 3),
    TEXT,
    st.lists(LOGPROBS, max_size=2).map(tuple),
    st.sampled_from((None, None, None, "stop", "length")),
)


@given(NAMES, st.lists(CHUNKS, max_size=6), st.booleans(), st.sampled_from((None, 0, 2)))
def test_a_chat_chunk_is_the_encoded_event(
    who: Identity, chunks: list[Chunk], include_usage: bool, logprobs: int | None
) -> None:
    request = ChatRequest(
        "chat.completions", "m", (Message("user", "x"),), include_usage=include_usage, logprobs=logprobs
    )
    reply = ChatReply(who, request)
    for chunk in chunks:
        delta = ChoiceDelta(content=chunk.text) if chunk.text else ChoiceDelta()
        body = chat_logprobs(chunk.logprobs) if logprobs is not None and chunk.logprobs else None
        choice = ChunkChoice(chunk.index, delta, body, chunk.finish_reason)
        usage = None if include_usage else UNSET
        event = ChatCompletionChunk(who.id, who.created, who.model, [choice], who.fingerprint, usage=usage)
        shows = chunk.text or body is not None or chunk.finish_reason is not None
        assert reply.chunk(chunk) == ([msgspec.json.encode(event)] if shows else [])


@given(NAMES, st.lists(CHUNKS, max_size=6), st.booleans(), st.sampled_from((None, 0, 2)))
def test_a_completion_chunk_is_the_encoded_event(
    who: Identity, chunks: list[Chunk], include_usage: bool, logprobs: int | None
) -> None:
    request = ChatRequest("completions", "m", prompt="x", include_usage=include_usage, logprobs=logprobs)
    reply = CompletionReply(who, request)
    offsets: defaultdict[int, TextOffsets] = defaultdict(TextOffsets)
    for chunk in chunks:
        body = None
        if logprobs is not None and chunk.logprobs:
            body = completion_logprobs(chunk.logprobs, logprobs, offsets[chunk.index])
        choice = CompletionChoice(chunk.index, chunk.text, body, chunk.finish_reason)
        usage = None if include_usage else UNSET
        event = Completion(who.id, who.created, who.model, [choice], who.fingerprint, usage=usage)
        shows = chunk.text or body is not None or chunk.finish_reason is not None
        assert reply.chunk(chunk) == ([msgspec.json.encode(event)] if shows else [])
