"""Calls that a model makes by itself: its text is free, and whatever is read as a call follows the schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import write_tokenizer

from headgate.engine.sampling.grammar import Grammar, Grammars
from headgate.engine.text.answer_grammar import CallForm, answer_grammar
from headgate.engine.text.tokenizer import Tokenizer
from headgate.engine.text.tool_calls import TOOL_FORMATS, ToolCallReader, ToolFormat

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"q": {"type": "string"}},
    "required": ["q"],
    "additionalProperties": False,
}
TOOLS = [{"type": "function", "function": {"name": "find", "parameters": SCHEMA}}]
GOOD: dict[ToolFormat, str] = {
    "hermes": '<tool_call>\n{"name": "find", "arguments": {"q": "a"}}\n</tool_call>',
    "llama3": '<|python_tag|>{"name": "find", "parameters": {"q": "a"}}',
    "mistral": '[TOOL_CALLS][{"name": "find", "arguments": {"q": "a"}}]',
    "qwen3-coder": "<tool_call>\n<function=find>\n<parameter=q>\na\n</parameter>\n</function>\n</tool_call>",
    "deepseek": (
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>find<｜tool▁sep｜>{"q": "a"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
    ),
    "deepseek-v3": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>find\n"
        '```json\n{"q": "a"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
    ),
}
PIECES = [
    *GOOD.values(),
    *('{"name": "find", "arguments": {"q": 1}}', '{"name": "find", "parameters": {"b": 1}}', 'find[ARGS]{"b": 1}'),
    *("<function=find>\n<parameter=b>\n1\n</parameter>\n</function>", "<function=find>", "</function>"),
    *(
        "<tool_call>",
        "</tool_call>",
        "<|python_tag|>",
        "[TOOL_CALLS]",
        "<｜tool▁calls▁begin｜>",
        "find<｜tool▁sep｜>{}",
    ),
    *("Well, ", " ", "\n", "\u3000", "\x1c", "; ", "{", "<", "x"),
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder)
    return Tokenizer.load(folder)


@pytest.fixture(scope="module")
def forms(tokenizer: Tokenizer) -> dict[tuple[ToolFormat, bool], Grammar]:
    grammars, made = Grammars(tokenizer, tokenizer.vocab_size), {}
    for fmt in TOOL_FORMATS:
        for several in (False, True):
            text = answer_grammar(None, CallForm(fmt, {"find": SCHEMA}, required=False, several=several))
            assert text is not None
            made[fmt, several] = grammars.compile(text)
    return made


def may_be_said(tokenizer: Tokenizer, form: Grammar, text: str) -> bool:
    guide, made, rest = form.guide(0), list[int](), text.encode()
    while True:
        guide.begin(made)
        allowed = [token for token, no in enumerate(guide.forbidden().tolist()) if not no]
        if not rest:
            return any(token in tokenizer.eos_ids for token in allowed)
        spelled = [(len(b), t) for t in allowed if (b := tokenizer.shown_bytes([t])) and rest.startswith(b)]
        if not spelled:
            return False
        length, token = max(spelled)
        made.append(token)
        rest = rest[length:]


def calls_in(fmt: ToolFormat, text: str) -> list[str]:
    """The arguments of what is read as calls."""
    reader = ToolCallReader(fmt, TOOLS)
    pieces = [*reader.push(text).calls, *reader.finish().calls]
    return ["".join(p.arguments for p in pieces if p.index == at) for at in range(reader.calls)]


@pytest.mark.parametrize("fmt", TOOL_FORMATS)
@pytest.mark.parametrize("several", [False, True])
@settings(max_examples=40)
@given(text=st.lists(st.sampled_from(PIECES), max_size=4).map("".join))
def test_what_is_read_as_a_call_follows_its_schema(
    tokenizer: Tokenizer, forms: dict[tuple[ToolFormat, bool], Grammar], fmt: ToolFormat, several: bool, text: str
) -> None:
    if may_be_said(tokenizer, forms[fmt, several], text):
        for arguments in calls_in(fmt, text):
            jsonschema.validate(json.loads(arguments), SCHEMA)


@pytest.mark.parametrize("fmt", TOOL_FORMATS)
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("before", ["", "Well, let me see.\n", "  ", "x < y {z} "])
def test_text_and_calls_may_be_said(
    tokenizer: Tokenizer,
    forms: dict[tuple[ToolFormat, bool], Grammar],
    fmt: ToolFormat,
    several: bool,
    before: str,
) -> None:
    assert may_be_said(tokenizer, forms[fmt, several], before)
    assert may_be_said(tokenizer, forms[fmt, several], before + GOOD[fmt])
    assert calls_in(fmt, before + GOOD[fmt]) == ['{"q": "a"}']
    bad = GOOD[fmt].replace('"q"', '"b"').replace("=q>", "=b>")
    assert calls_in(fmt, before + bad) == ['{"b": "a"}']
    assert not may_be_said(tokenizer, forms[fmt, several], before + bad)


@pytest.mark.parametrize("space", ["", " ", "\n\n", "\u3000", "\x1c"])
def test_a_call_without_a_mark_is_one_behind_white_space_too(
    tokenizer: Tokenizer, forms: dict[tuple[ToolFormat, bool], Grammar], space: str
) -> None:
    bad = space + '{"name": "find", "parameters": {"b": 1}}'
    assert calls_in("llama3", bad) == ['{"b": 1}']
    assert not may_be_said(tokenizer, forms["llama3", True], bad)
