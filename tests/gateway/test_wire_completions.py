"""Bodies of plain completions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headgate.engine.text.stream import TextLogprob, TopLogprob
from headgate.gateway.road.request import CacheControl, ChatRequest, Choice, Chunk, Usage
from headgate.gateway.wire.completions import DEFAULT_MAX_TOKENS, CompletionReply, parse_completion
from headgate.gateway.wire.errors import ApiError
from headgate.gateway.wire.identity import Identity


def parse(**fields: Any) -> list[ChatRequest]:
    return parse_completion(json.dumps({"model": "auto", "prompt": "x", **fields}).encode(), CacheControl())


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("a", ["a"]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [(1, 2)]),
        ([[1], [2, 3]], [(1,), (2, 3)]),
    ],
)
def test_all_four_forms_of_prompt(prompt: Any, prompts: list[Any]) -> None:
    assert [r.prompt for r in parse(prompt=prompt)] == prompts


@pytest.mark.parametrize("prompt", ["", [], [""], [[]], ["a", 1], [1, [2]], ["a"] * 65, [-1], 3, None])
def test_other_prompts_are_refused(prompt: Any) -> None:
    with pytest.raises(ApiError) as caught:
        parse(prompt=prompt)
    assert caught.value.status == 400
    assert str(caught.value.param).startswith("prompt")


def test_max_tokens_defaults_to_that_of_openai() -> None:
    assert parse()[0].max_tokens == DEFAULT_MAX_TOKENS == 16
    assert parse(max_tokens=5)[0].max_tokens == 5


@pytest.mark.parametrize("fields", [{"suffix": "end"}, {"best_of": 2}, {"best_of": 3, "n": 2}])
def test_what_is_not_implemented_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as caught:
        parse(**fields)
    assert caught.value.code == "unsupported_parameter"
    assert caught.value.param in fields


def test_neutral_values_pass() -> None:
    assert parse(echo=False, suffix=None, best_of=2, n=2)[0].n == 2


def test_logprobs_are_bounded_as_openai_bounds_them() -> None:
    assert parse(logprobs=0)[0].logprobs == 0
    with pytest.raises(ApiError):
        parse(logprobs=6)


def test_offsets_run_on_across_chunks_and_equal_those_of_the_whole() -> None:
    request = parse(logprobs=1)[0]
    tokens = [TextLogprob(t, tuple(t.encode()), -0.5, (TopLogprob(t, (65,), -0.5),)) for t in ("ab", "c", "def")]
    identity = Identity("cmpl-1", 1, "m", "hg-1")
    streamed = CompletionReply(identity, request)
    chunks = [Chunk(0, "ab", (tokens[0],)), Chunk(0, "cdef", tuple(tokens[1:]), "stop")]
    offsets = [json.loads(e)["choices"][0]["logprobs"]["text_offset"] for c in chunks for e in streamed.chunk(c)]
    whole = CompletionReply(identity, request).whole([Choice(0, "abcdef", tuple(tokens), "stop", ())], Usage(1, 3, 0))
    logprobs = json.loads(whole)["choices"][0]["logprobs"]
    assert [o for run in offsets for o in run] == logprobs["text_offset"] == [0, 2, 3]
    assert logprobs["tokens"] == ["ab", "c", "def"]
    assert logprobs["top_logprobs"] == [{"ab": -0.5}, {"c": -0.5}, {"def": -0.5}]


def test_offsets_count_the_characters_of_the_text() -> None:
    """Tokens that hold parts of characters look like one each, but are not."""
    reply = CompletionReply(Identity("cmpl-1", 1, "m", "hg-1"), parse(logprobs=0)[0])
    parts = (b"\xc3", b"\x9cn", b" \xf0\x9f", b"\x98", b"\x80", b"s")
    told = tuple(TextLogprob(part.decode(errors="replace"), tuple(part), -0.5) for part in parts)
    chunks = [Chunk(0, "Ün", told[:2]), Chunk(0, " 😀", told[2:5]), Chunk(0, "s", told[5:], "stop")]
    found = [json.loads(e)["choices"][0]["logprobs"]["text_offset"] for c in chunks for e in reply.chunk(c)]
    assert found == [[0, 0], [2, 3, 3], [4]]
