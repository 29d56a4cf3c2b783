"""Answers of a given form in harmony: random walks through the grammar, whatever a model would like to say."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest
from harmony_model import WORDS, write_harmony
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.engine.sampling.grammar import Grammars
from headgate.engine.text.answer_grammar import CallForm
from headgate.engine.text.harmony import APART, CHANNEL, MARKS
from headgate.engine.text.harmony_grammar import harmony_grammar
from headgate.engine.text.harmony_reader import HarmonyReader
from headgate.engine.text.tokenizer import Tokenizer

BEGUN, OPENED = "<|start|>assistant", "<|start|>assistant<|channel|>analysis<|message|>"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "string", "maxLength": 6}},
    "required": ["a"],
    "additionalProperties": False,
}
FUNCTIONS = {"find": SCHEMA, "stop": {"type": "object", "properties": {}, "additionalProperties": False}}


def calls(*, required: bool) -> CallForm:
    return CallForm("harmony", FUNCTIONS, required=required, several=True)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.load(write_harmony(tmp_path_factory.mktemp("harmony")))


@pytest.fixture(scope="module")
def grammars(tokenizer: Tokenizer) -> Grammars:
    return Grammars(tokenizer, tokenizer.vocab_size)


def walked(tokenizer: Tokenizer, grammars: Grammars, grammar: str | None, seed: int) -> list[int]:
    """Tokens of somebody who likes marks, and ends where he may after a while."""
    assert grammar is not None
    guide, draw, made = grammars.compile(grammar).guide(0), random.Random(seed), list[int]()
    marks = tokenizer.special_ids - set(tokenizer.eos_ids)
    channel = tokenizer.token(CHANNEL)
    while len(made) < 300:
        guide.begin(made)
        allowed = [token for token, no in enumerate(guide.forbidden().tolist()) if not no]
        ends = [token for token in allowed if token in tokenizer.eos_ids]
        # Nobody spells a channel in letters.
        named = [token for word in WORDS if (token := tokenizer.token(word)) in allowed]
        if made[-1:] == [channel] and named:
            made.append(draw.choice(named))
            continue
        liked = [token for token in allowed if token in marks]
        if ends and (len(ends) == len(allowed) or draw.random() < 0.2):
            return [*made, draw.choice(ends)]
        rest = [token for token in allowed if token not in ends]
        made.append(draw.choice(liked if liked and draw.random() < 0.3 else rest))
    raise AssertionError(f"it does not end: {tokenizer.decode(made, skip_special=False)!r}")


def read(tokenizer: Tokenizer, tokens: list[int], begun: str = BEGUN) -> tuple[str, str, list[tuple[str, str]], int]:
    shown = tokenizer.showing(MARKS, APART)
    reader = HarmonyReader(shown, FUNCTIONS, tokenizer.encode(begun, add_special_tokens=False))
    said = reader.push(shown.shown_bytes(tokens).decode(errors="replace"), tokens, last=True)
    pieces = [piece for one in said for piece in one.calls]
    names = [piece.name for piece in pieces if piece.name is not None]
    made = ["".join(piece.arguments for piece in pieces if piece.index == at) for at in range(len(names))]
    thoughts, text = "".join(one.reasoning for one in said), "".join(one.text for one in said)
    return thoughts, text, list(zip(names, made, strict=True)), reader.tokens


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), opened=st.booleans())
def test_the_answer_follows_the_schema_after_any_thoughts(
    tokenizer: Tokenizer, grammars: Grammars, seed: int, opened: bool
) -> None:
    tokens = walked(tokenizer, grammars, harmony_grammar(SCHEMA, None, opened=opened, most=None), seed)
    _, text, made, _ = read(tokenizer, tokens, OPENED if opened else BEGUN)
    jsonschema.validate(json.loads(text), SCHEMA)
    assert made == []


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), form=st.sampled_from(["required", "or the schema", "or text"]))
def test_calls_follow_their_schemas(tokenizer: Tokenizer, grammars: Grammars, seed: int, form: str) -> None:
    schema = SCHEMA if form == "or the schema" else None
    grammar = harmony_grammar(schema, calls(required=form == "required"), opened=False, most=None)
    _, text, made, _ = read(tokenizer, walked(tokenizer, grammars, grammar, seed))
    assert len(made) == 1 or form != "required"
    for name, arguments in made:
        jsonschema.validate(json.loads(arguments), FUNCTIONS[name])
    if schema is not None:
        assert bool(text) != bool(made)
    if schema is not None and text:
        jsonschema.validate(json.loads(text), schema)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), most=st.integers(1, 12), opened=st.booleans(), form=st.booleans())
def test_thinking_ends_by_itself_or_at_its_bound(
    tokenizer: Tokenizer, grammars: Grammars, seed: int, most: int, opened: bool, form: bool
) -> None:
    grammar = harmony_grammar(SCHEMA if form else None, None, opened=opened, most=most)
    _, text, _, thought = read(tokenizer, walked(tokenizer, grammars, grammar, seed), OPENED if opened else BEGUN)
    assert thought <= max(most, 1 if opened else 4)
    if form:
        jsonschema.validate(json.loads(text), SCHEMA)


def test_an_answer_without_a_form_has_no_grammar() -> None:
    assert harmony_grammar(None, None, opened=False, most=None) is None


WELL_FORMED = [
    '<|channel|>final <|constrain|>json<|message|>{"a": "x"}',
    '<|channel|>analysis<|message|>Hm <|end|><|start|>assistant<|channel|>final<|message|>{"a": "x"}',
    '<|channel|>commentary to=functions.find <|constrain|>json<|message|>{"a": "x"}',
    ' to=functions.find<|channel|>commentary json<|message|>{"a": "x"}',
    "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant to=functions.stop<|channel|>commentary<|message|>{}",
]


@pytest.mark.parametrize("answer", WELL_FORMED)
def test_what_the_model_was_taught_may_be_said(tokenizer: Tokenizer, grammars: Grammars, answer: str) -> None:
    grammar = harmony_grammar(SCHEMA, calls(required=False), opened=False, most=None)
    assert grammar is not None
    guide, tokens = grammars.compile(grammar).guide(0), tokenizer.encode(answer, add_special_tokens=False)
    for at in range(len(tokens) + 1):
        guide.begin(tokens[:at])
        forbidden = guide.forbidden()
        assert not forbidden[tokens[at] if at < len(tokens) else tokenizer.eos_ids[0]]
