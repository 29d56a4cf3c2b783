"""Conversations become training rows exactly as serving would encode them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_models import write_tokenizer

from headgate.engine.text.chat_template import ChatTemplate
from headgate.engine.text.tokenizer import Tokenizer
from headgate.gateway.road.request import CacheControl
from headgate.gateway.wire.chat import parse_chat
from headgate.training.conversations import DataError, Encoder, Line, main, read_lines

TURN_END = 2


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tokenizer with a chat template."""
    write_tokenizer(tmp_path)
    return tmp_path


def test_learns_what_serving_renders(folder: Path) -> None:
    """Each answer stands behind the very tokens of its prompt and ends its turn; the rest is not learned."""
    tokenizer, template = Tokenizer.load(folder), ChatTemplate.load(folder)
    turns = [
        {"role": "user", "content": "the dog"},
        {"role": "assistant", "content": "the fox"},
        {"role": "user", "content": "and then"},
        {"role": "assistant", "content": "jumps over"},
    ]
    (row,) = Encoder(folder).rows(Line("x:1", "train", tuple(turns)))
    ids, learned = row
    served = tokenizer.encode(template.render(turns[:3]), add_special_tokens=False)
    assert ids[: len(served)] == served
    assert tokenizer.decode(ids[len(served) :], skip_special=False) == "jumps over<|im_end|>"
    answers = [token for token, flag in zip(ids, learned, strict=True) if flag]
    assert tokenizer.decode(answers, skip_special=False) == "the fox<|im_end|>jumps over<|im_end|>"


def test_template_that_rewrites_earlier_turns_gives_a_row_for_each_answer(folder: Path) -> None:
    """Qwen3's template drops the reasoning of earlier turns: a second answer does not stand behind the first's text."""
    path = folder / "tokenizer_config.json"
    template = (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
        "{% set keep = loop.last or m['role'] == 'user' %}"
        "{{ m['content'] if keep else m['content'].split('|')[-1] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": template}))
    turns = [{"role": "user", "content": "fox"}, {"role": "assistant", "content": "thought|dog"}] * 2
    rows = Encoder(folder).rows(Line("x:1", "train", tuple(turns)))
    tokenizer = Tokenizer.load(folder)
    learned = [[token for token, flag in zip(*row, strict=True) if flag] for row in rows]
    assert [tokenizer.decode(ids, False) for ids in learned] == ["thought|dog<|im_end|>"] * 2
    assert tokenizer.decode(rows[1][0]).count("thought") == 1


def test_what_openai_writes_in_several_ways_is_learned_as_it_is_served(folder: Path) -> None:
    """Arguments as a text, functions in any order of their keys, a developer's turn, contents in parts, a refusal, and
    what is empty or not read of a message: a template may ask whether it is there."""
    path = folder / "tokenizer_config.json"
    template = (
        "{{ tools | tojson }}{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] or '' }}"
        "{% for call in m['tool_calls'] or [] %}{{ call['function'] | tojson }}{% endfor %}<|im_end|>"
        "{{ m | list | sort }}\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": template}))
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    body = {
        "tools": [
            {"function": {"strict": True, "parameters": schema, "name": "weather"}, "type": "function"},
            {"type": "function", "function": {"description": "what time it is", "name": "now"}},
        ],
        "messages": [
            {"role": "developer", "content": "be kind"},
            {"role": "user", "content": [{"type": "text", "text": "Weather?"}, {"type": "text", "text": "In Rome."}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "1", "function": {"arguments": '{"city": "Rome"}', "name": "weather"}, "type": "function"},
                    {"id": "2", "function": {"arguments": "now", "name": "now"}, "type": "function"},
                ],
            },
            {"role": "tool", "tool_call_id": "1", "content": "sunny"},
            {"role": "assistant", "content": None, "refusal": "No.", "annotations": [], "tool_calls": [], "parsed": {}},
            {"role": "user", "content": "Why?"},
            {"role": "assistant", "content": "Sunny."},
        ],
    }
    data = folder / "data.jsonl"
    data.write_text(json.dumps(body))
    (line,) = read_lines(data, ("train",))
    (row,) = Encoder(folder).rows(line)
    served = parse_chat(json.dumps({"model": "any", **body}).encode(), CacheControl())
    text = ChatTemplate.load(folder).render(
        [message.for_template() for message in served.messages],
        tools=[tool.for_template() for tool in served.callable_tools],
        add_generation_prompt=False,
    )
    tokenizer = Tokenizer.load(folder)
    assert tokenizer.decode(row[0], skip_special=False) == text[: text.rindex("<|im_end|>") + len("<|im_end|>")]
    answers = tokenizer.decode([token for token, flag in zip(*row, strict=True) if flag], skip_special=False)
    assert answers.startswith('{"name": "weather", "arguments": {"city": "Rome"}}{"name": "now", "arguments": "now"}')


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (
            {"messages": [{"role": "user", "content": 3}]},
            r"messages\[0\].content is 3; a string or a list of text parts",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": ["a"]}]},
            r"messages\[0\].tool_calls is .*; a list of objects",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "1"}]}]},
            r"messages\[0\].tool_calls\[0\] is .*; a function with a string 'name'",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "now"}}]}]},
            r"messages\[0\].tool_calls\[0\].function.arguments is None; a JSON object, also as a string",
        ),
        (
            {"messages": [{"role": "user", "content": "a"}], "tools": [{}]},
            r"tools\[0\] is .*; a function with a string",
        ),
    ],
)
def test_calls_and_tools_that_are_none_are_refused_with_their_place(line: object, problem: str, folder: Path) -> None:
    data = folder / "data.jsonl"
    data.write_text(json.dumps(line))
    with pytest.raises(DataError, match=rf"data.jsonl:1: {problem}"):
        list(read_lines(data, ("train",)))


def test_what_is_nested_too_deeply_is_refused_with_its_line(folder: Path) -> None:
    data = folder / "data.jsonl"
    data.write_text('{"messages": ' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(DataError, match=r"data.jsonl:1: not valid JSON"):
        list(read_lines(data, ("train",)))


def test_an_end_token_that_the_tokenizer_does_not_have_ends_no_completion(folder: Path) -> None:
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [5000, TURN_END]}))
    ((ids, _),) = Encoder(folder).rows(Line("x:1", "train", prompt="the quick", completion=" fox"))
    assert ids[-1] == TURN_END


def test_completion_ends_with_the_end_token(folder: Path) -> None:
    encoder = Encoder(folder)
    ((ids, learned),) = encoder.rows(Line("x:1", "train", prompt="the quick", completion=" fox"))
    tokenizer = Tokenizer.load(folder)
    before = tokenizer.encode("the quick", add_special_tokens=True)
    assert ids[: len(before)] == before
    assert ids[-1] == TURN_END
    assert learned == [False] * len(before) + [True] * (len(ids) - len(before))


def test_demo_tasks_as_data(tmp_path: Path) -> None:
    path = tmp_path / "demo" / "data.jsonl"
    main(["--samples", "40", "--seed", "3", "--out", str(path)])
    lines = list(read_lines(path, ("train", "calibration")))
    assert [line.split for line in lines] == ["train"] * 40 + ["calibration"] * 4
    assert all(line.messages[-1]["role"] == "assistant" for line in lines)
    first = path.read_bytes()
    main(["--samples", "40", "--seed", "3", "--out", str(path)])
    assert path.read_bytes() == first
