"""An upstream's answer from its bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.engine.text.stream import TextLogprob, TopLogprob
from headgate.gateway.road.request import Choice, Chunk, Joiner, ToolCall, Usage
from headgate.gateway.upstream.answer import AnswerReader, joined
from headgate.gateway.upstream.failures import Failure, hiding


def event(**choice: Any) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, **choice}]}).encode() + b"\n\n"


def text(said: str, index: int = 0) -> bytes:
    return event(index=index, delta={"content": said})


STOP = event(delta={}, finish_reason="stop")


def choices(reader: AnswerReader, *data: bytes) -> tuple[Choice, ...]:
    """What the answer is when all of it was read."""
    chunks = [chunk for part in data for chunk in reader.feed(part)] + reader.end()
    apart, at_once = Joiner(), Joiner()
    for chunk in chunks:
        apart.add(chunk)
    found = apart.choices()
    whole = joined(chunks)
    for chunk in whole:
        at_once.add(chunk)
    assert (at_once.choices(), len(whole)) == (found, len(found))
    return found


def test_text_and_account_of_several_choices() -> None:
    reader = AnswerReader(2)
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 3, "image_tokens": 6},
        "completion_tokens_details": {
            "reasoning_tokens": 2,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 3,
            "rejected_prediction_tokens": 1,
        },
    }
    account = b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n"
    first, second = choices(
        reader, text("a"), text("x", 1), text("b"), event(index=1, delta={}, finish_reason="length"), STOP, account
    )
    assert (first.text, first.finish_reason, second.text, second.finish_reason) == ("ab", "stop", "x", "length")
    assert reader.usage == Usage(9, 4, 3, reasoning_tokens=2, drafted_tokens=3, misdrafted_tokens=1, image_tokens=6)
    assert reader.pieces == 3


def call(**fields: Any) -> bytes:
    return event(delta={"tool_calls": [fields]})


def test_calls_come_with_id_and_name_once_whoever_numbers_them() -> None:
    numbered = (
        call(index=0, id="c1", type="function", function={"name": "f", "arguments": ""}),
        call(index=0, function={"arguments": '{"a"'}),
        call(index=0, id="c1", function={"name": "f", "arguments": ": 1}"}),
        call(index=1, function={"name": "g", "arguments": "{}"}),
        event(delta={}, finish_reason="tool_calls"),
    )
    (choice,) = choices(AnswerReader(1), *numbered)
    first, second = choice.tool_calls
    assert (first, second.name, second.arguments) == (ToolCall("c1", "f", '{"a": 1}'), "g", "{}")
    (again,) = choices(AnswerReader(1), *numbered)
    assert again.tool_calls[1].id != second.id, "no two calls of a conversation have one id"
    whole = (
        call(id="c1", function={"name": "f", "arguments": {"a": 1}}),
        call(id="c2", function={"name": "g", "arguments": None}),
        STOP,
    )
    (choice,) = choices(AnswerReader(1), *whole)
    assert choice.tool_calls == (ToolCall("c1", "f", '{"a":1}'), ToolCall("c2", "g", ""))
    assert choice.finish_reason == "tool_calls"


def test_calls_that_all_have_one_number_are_told_apart() -> None:
    (choice,) = choices(
        AnswerReader(1),
        call(index=0, id="c1", function={"name": "f", "arguments": '{"a": 1}'}),
        call(index=0, id="c2", function={"name": "f", "arguments": '{"a": 2}'}),
        STOP,
    )
    assert choice.tool_calls == (ToolCall("c1", "f", '{"a": 1}'), ToolCall("c2", "f", '{"a": 2}'))


@given(st.permutations([0] * 5 + [1] * 5 + [2] * 2 + ["a", "b"]))
def test_one_call_comes_after_the_other_however_the_upstream_mixes_them(order: list[Any]) -> None:
    arguments = (["", '{"x', '": "}', '"', "}"], [" ", '{"y":', " [", "1]}", "\n"], [None, None])
    begun: list[int] = []
    sent = []
    for what in order:
        if isinstance(what, str):
            sent.append(text(what))
            continue
        piece: dict[str, Any] = {"arguments": arguments[what].pop(0)}
        if what not in begun:
            begun.append(what)
            piece["name"] = f"f{what}"
        sent.append(call(index=what, id=f"c{what}", function=piece))
    reader = AnswerReader(1)
    chunks = [chunk for part in (*sent, STOP) for chunk in reader.feed(part)] + reader.end()
    kinds: list[Any] = []
    joiner = Joiner()
    for chunk in chunks:
        # What is in one chunk is written in this order.
        kinds += ["text"] * bool(chunk.text) + [piece.index for piece in chunk.tool_calls]
        joiner.add(chunk)
    for number in range(3):
        first, last = kinds.index(number), len(kinds) - kinds[::-1].index(number)
        assert set(kinds[first:last]) == {number}, "nothing comes between its pieces"
    (choice,) = joiner.choices()
    assert choice.text == "".join(what for what in order if isinstance(what, str))
    whole = [(c.id, c.name, c.arguments.strip()) for c in choice.tool_calls]
    said = ('{"x": "}"}', '{"y": [1]}', "")
    assert whole == [(f"c{number}", f"f{number}", said[number]) for number in begun]


def test_probabilities_reasoning_refusals_and_stop_strings_are_read() -> None:
    logprobs = {"content": [{"token": "a", "logprob": -0.5, "bytes": None,
                             "top_logprobs": [{"token": "b", "logprob": -1.0, "bytes": [98]}]}]}  # fmt: skip
    (choice,) = choices(
        AnswerReader(1, logprobs=True),
        event(delta={"reasoning_content": "so "}),
        event(delta={"reasoning": "what"}),
        event(delta={"content": "a"}, logprobs=logprobs),
        event(delta={"refusal": "!"}),
        event(delta={}, finish_reason="stop", stop_reason="END"),
    )
    assert (choice.reasoning, choice.text, choice.stop) == ("so what", "a!", "END")
    assert choice.logprobs == (TextLogprob("a", (97,), -0.5, (TopLogprob("b", (98,), -1.0),)),)


def test_plain_completions_are_read() -> None:
    logprobs = {"tokens": ["é"], "token_logprobs": [-0.25], "top_logprobs": [{"e": -2.0}], "text_offset": [0]}
    reader = AnswerReader(1, logprobs=True)
    (choice,) = choices(reader, event(text="é", logprobs=logprobs), event(text="", finish_reason="length"))
    assert (choice.text, choice.finish_reason) == ("é", "length")
    assert choice.logprobs == (TextLogprob("é", (195, 169), -0.25, (TopLogprob("e", (101,), -2.0),)),)


def test_a_finish_comes_once_and_nothing_after_it() -> None:
    reader = AnswerReader(1)
    chunks = reader.feed(text("a") + STOP + STOP + text("b"))
    assert [(chunk.text, chunk.finish_reason) for chunk in chunks] == [("a", None), ("", "stop")]
    assert reader.end() == []


def test_the_last_chunk_knows_what_was_thought() -> None:
    reader = AnswerReader(1)
    *_, last = reader.feed(text("a") + STOP)
    reader.feed(b'data: {"choices": [], "usage": {"completion_tokens_details": {"reasoning_tokens": 5}}}\n\n')
    assert last.reasoning_tokens == 5
    usage = {"completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 4}}
    ended = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage}
    *_, last = AnswerReader(1).feed(text("a") + b"data: " + json.dumps(ended).encode() + b"\n\n")
    assert last.reasoning_tokens == 4
    whole = {"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}], "usage": usage}
    (last,) = AnswerReader(1).body(json.dumps(whole).encode())
    assert last.reasoning_tokens == 4


def test_an_answer_in_one_piece_is_read() -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": {"name": "f"}}]}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": 1}}
    (chunk,) = AnswerReader(1).body(json.dumps(body).encode())
    assert (chunk.finish_reason, chunk.tool_calls[0].name) == ("tool_calls", "f")


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (text("a"), "cut"),
        (text("a") + b"data: [DONE]\n\n", "cut"),
        (b"data: {]}\n\n", "broken"),
        (b'data: {"choices": 3}\n\n', "broken"),
        (b"data: \xff\xfe\n\n", "broken"),
        (event(delta={"tool_calls": [{"index": 9_000_000, "function": {"name": "f"}}]}), "broken"),
        (event(delta={"tool_calls": [{"function": {"name": "f"}}] * 1025}), "broken"),
        (b'data: {"usage": {"prompt_tokens": -1}}\n\n', "broken"),
        (b'data: {"usage": {"prompt_tokens": 18446744073709551615}}\n\n', "broken"),
        (event(delta={"content": "a"}, logprobs={"content": [{"token": 3}]}), "broken"),
        (event(delta={}, finish_reason="error"), "failed"),
        (b'data: {"error": {"message": "no memory", "code": 500}}\n\n', "failed"),
        (b'data: {"error": "no memory"}\n\n', "failed"),
        (b'data: {"object": "error", "message": "prompt is too long"}\n\n', "context"),
        (b'data: {"error": {"message": "slow down", "code": 429}}\n\n', "overloaded"),
        (b'data: {"error": {"message": "no", "code": "content_filter"}}\n\n', "policy"),
    ],
)
def test_what_is_no_answer_is_told_apart(data: bytes, kind: str) -> None:
    with pytest.raises(Failure) as caught:
        choices(AnswerReader(1, logprobs=True), data)
    assert caught.value.kind == kind


def test_secrets_are_not_repeated() -> None:
    reader = AnswerReader(1, hide=hiding(("hunter2-secret",)))
    with pytest.raises(Failure) as caught:
        reader.feed(b'data: {"error": {"message": "bad key hunter2-secret or sk-abcdefgh", "code": 400}}\n\n')
    assert "hunter2" not in str(caught.value)
    assert "abcdefgh" not in str(caught.value)


def test_every_chunk_shows_something() -> None:
    reader = AnswerReader(1)
    assert reader.feed(event(delta={"role": "assistant", "content": ""}) + event(delta={})) == []
    assert reader.feed(text("a")) == [Chunk(0, "a")]
