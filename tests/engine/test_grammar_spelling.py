"""How the text that a grammar forces is spelled, by the vocabulary's kind and by what the text looks like."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, models, normalizers

from headgate.engine.sampling.grammar import GrammarError, Grammars, Guide
from headgate.engine.text.answer_grammar import CallForm, answer_grammar, json_grammar
from headgate.engine.text.tokenizer import Tokenizer
from headgate.engine.text.tool_calls import TOOL_FORMATS, ToolCallReader, ToolFormat

SPECIAL = ["<unk>", "<s>", "</s>", "<|im_end|>", "[INST]"]
LETTERS = [chr(code) for code in range(33, 127)]
MERGED = [("n", "a"), ("na", "m"), ("nam", "e"), ("▁", "na"), ("▁na", "m"), ('"', ":"), ("▁", '"'), ("▁", "{")]
PAIR: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 4}, "é": {"enum": ["yes", "yonder"]}},
    "required": ["name", "é"],
    "additionalProperties": False,
}
SCHEMAS: list[Any] = [
    PAIR,
    {"const": {"name": "find"}},
    {"enum": [" name", "name name", "日本"]},
    {"type": "array", "items": {"enum": ["a"]}, "minItems": 3, "maxItems": 3},
    # Special tokens, spelled out, are text.
    {"const": "<|im_end|>"},
    {"enum": ["[INST]</s>", "x<s>"]},
    {
        "type": "object",
        "properties": {"<|im_end|>": {"type": "boolean"}},
        "required": ["<|im_end|>"],
        "additionalProperties": False,
    },
]


def sentence_pieces(folder: Path, *, fallback: bool = True) -> Tokenizer:
    """Like Llama 2: each text begins with a space of its own. Without `fallback` only printable ASCII has tokens."""
    pieces = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256) if fallback), "▁", *LETTERS]
    pieces += [one + other for one, other in MERGED]
    model = models.BPE(
        vocab={piece: at for at, piece in enumerate(pieces)}, merges=MERGED, byte_fallback=fallback, unk_token="<unk>"
    )
    backend = FastTokenizer(model)
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = (
        decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
        if fallback
        else decoders.Metaspace()
    )
    backend.add_special_tokens(SPECIAL)
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
    return Tokenizer.load(folder)


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    return sentence_pieces(tmp_path)


def allowed(guide: Guide, made: list[int]) -> list[int]:
    guide.begin(made)
    forbidden = guide.forbidden().tolist()
    return [token for token, no in enumerate(forbidden) if not no]


def walked(tokenizer: Tokenizer, grammar: str, seed: int) -> str:
    """What somebody says who chooses at random."""
    guide, draw, made = Grammars(tokenizer, tokenizer.vocab_size).compile(grammar).guide(0), random.Random(seed), []
    while (token := draw.choice(allowed(guide, made))) not in tokenizer.eos_ids:
        made.append(token)
    return tokenizer.shown_bytes(made).decode()


@pytest.mark.parametrize("schema", SCHEMAS)
def test_whatever_is_forced_can_be_said(tokenizer: Tokenizer, schema: Any) -> None:
    for seed in range(5):
        jsonschema.validate(json.loads(walked(tokenizer, json_grammar(schema), seed)), schema)


def test_a_long_text_that_is_forced_is_said_to_its_end(tokenizer: Tokenizer) -> None:
    schema = {"const": "na name 日本 " * 300 + "<|im_end|>" + "x" * 50}
    jsonschema.validate(json.loads(walked(tokenizer, json_grammar(schema), 0)), schema)


@pytest.mark.parametrize("fmt", TOOL_FORMATS)
def test_calls_can_be_made(tokenizer: Tokenizer, fmt: ToolFormat) -> None:
    grammar = answer_grammar(None, CallForm(fmt, {"find": PAIR}, required=True, several=False))
    assert grammar is not None
    for seed in range(3):
        reader = ToolCallReader(fmt, [{"type": "function", "function": {"name": "find", "parameters": PAIR}}])
        said = [reader.push(walked(tokenizer, grammar, seed)), reader.finish()]
        jsonschema.validate(json.loads("".join(p.arguments for one in said for p in one.calls)), PAIR)


def test_a_text_that_goes_on_is_spelled_as_usual(tokenizer: Tokenizer) -> None:
    """As the model read it in training: by merges, without the space that begins a text."""
    guide = Grammars(tokenizer, tokenizer.vocab_size).compile(json_grammar({"const": {"name": "na"}})).guide(0)
    spelled = [tokenizer.token(piece) for piece in ("{", '"', "name", '":', '▁"', "na", '"', "}")]
    assert [guide.takes(-1 if token is None else token) for token in spelled] == [True] * len(spelled)


def test_a_vocabulary_without_the_bytes_loses_the_grammar(tmp_path: Path) -> None:
    tokenizer = sentence_pieces(tmp_path, fallback=False)
    with pytest.raises(GrammarError):
        walked(tokenizer, json_grammar({"const": "a日"}), 0)
