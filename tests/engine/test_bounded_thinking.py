"""Thinking that is ended at its bound: random walks through the grammar, whatever a model would like to say."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import MakeCheckpoint, write_tokenizer
from tokenizers import AddedToken
from tokenizers import Tokenizer as FastTokenizer

from headgate.engine.sampling.grammar import Grammars
from headgate.engine.text.answer_grammar import after_thinking, any_text, json_grammar
from headgate.engine.text.tokenizer import Tokenizer

VOCABULARY = 322
SCHEMA = {"enum": ["yes", "no"]}


@pytest.fixture(scope="module")
def tokenizer(make_checkpoint: MakeCheckpoint) -> Tokenizer:
    folder: Path = make_checkpoint("qwen3", seed=3, vocab_size=VOCABULARY)
    write_tokenizer(folder)
    marked = FastTokenizer.from_file(str(folder / "tokenizer.json"))
    marked.add_tokens([AddedToken("<think>", special=False), AddedToken("</think>", special=False)])
    marked.save(str(folder / "tokenizer.json"))
    return Tokenizer.load(folder)


@pytest.fixture(scope="module")
def grammars(tokenizer: Tokenizer) -> Grammars:
    return Grammars(tokenizer, VOCABULARY)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), most=st.integers(1, 12), opened=st.booleans(), form=st.booleans())
def test_thinking_ends_by_itself_or_at_its_bound(
    tokenizer: Tokenizer, grammars: Grammars, seed: int, most: int, opened: bool, form: bool
) -> None:
    text = after_thinking(json_grammar(SCHEMA) if form else any_text(), opened=opened, most=most)
    guide, draw = grammars.compile(text).guide(0), random.Random(seed)
    mark, close = tokenizer.token("<think>"), tokenizer.token("</think>")
    assert mark is not None
    assert close is not None
    # Beginnings of the mark come often, and so does the mark.
    liked = [*tokenizer.encode("<</t", add_special_tokens=False), close, *range(VOCABULARY)]
    made: list[int] = []
    while len(made) < 40:
        guide.begin(made)
        forbidden = guide.forbidden()
        allowed = [token for token in liked if not forbidden[token]]
        if not made and not opened:
            assert mark in allowed
            made.append(mark)
            continue
        ends = [token for token in allowed if token in tokenizer.eos_ids]
        if ends and len(ends) == len(allowed):
            break
        made.append(draw.choice([token for token in allowed if token not in tokenizer.eos_ids]))
    # Who spells the mark letter by letter has thought to its end, too.
    thought = next(count for count in range(len(made) + 1) if "</think>" in tokenizer.decode(made[:count]))
    least = 1 if opened else 2
    assert least <= thought <= max(most, least)
    if form:
        assert json.loads(tokenizer.decode(made).partition("</think>")[2].strip()) in SCHEMA["enum"]
