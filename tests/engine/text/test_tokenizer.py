"""Reading tokenizer folders, and what tokens stand for."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, processors

from headgate.engine.text.folder import TokenizerError
from headgate.engine.text.tokenizer import Tokenizer

Folder = Callable[..., Path]


def test_text_survives_the_round_trip(folder: Folder) -> None:
    tokenizer = Tokenizer.load(folder())
    text = "How are you? 今日は 🎉 <|start|> two words\n  x\t"
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids, skip_special=False) == text
    assert tokenizer.decode(ids) == text.replace("<|start|>", "")
    assert b"".join(map(tokenizer.token_bytes, ids)) == text.encode()
    assert max(ids) < tokenizer.vocab_size


def test_lone_surrogates_do_not_break_encoding(byte_level: Tokenizer) -> None:
    ids = byte_level.encode("a\ud83cb 🎉", add_special_tokens=False)
    assert byte_level.decode(ids) == "a\ufffdb 🎉"


def test_others_go_on_while_a_long_text_is_read(byte_level: Tokenizer) -> None:
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(byte_level.encode, "The quick brown fox. " * 10_000, add_special_tokens=False)
        turns = 0
        while not reading.done():
            time.sleep(0)  # whoever holds the interpreter meanwhile leaves this a turn or two
            turns += 1
    assert turns > 100


@settings(max_examples=200)
@given(st.text() | st.lists(st.sampled_from(["two words", "<|start|>", "the ", "🎉", "\ud83c", "\u0301"])).map("".join))
def test_the_least_tokens_of_a_text_are_no_more_than_it_has(byte_level: Tokenizer, text: str) -> None:
    least = byte_level.least_tokens(text)
    assert (least > 0) == (text != "")
    assert least <= len(byte_level.encode(text, add_special_tokens=False))


def test_nothing_is_told_by_the_length_of_a_text_that_is_read_in_part(folder: Folder) -> None:
    path = folder()
    config = json.loads((path / "tokenizer.json").read_text())
    for change in (
        {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": True}},
        {
            "pre_tokenizer": {
                "type": "Sequence",
                "pretokenizers": [config["pre_tokenizer"], {"type": "WhitespaceSplit"}],
            }
        },
        {"added_tokens": [{**config["added_tokens"][0], "lstrip": True}]},
    ):
        (path / "tokenizer.json").write_text(json.dumps({**config, **change}))
        assert Tokenizer.load(path).least_tokens("x" * 10_000) == 0


def test_side_files_name_the_special_tokens(folder: Folder) -> None:
    path = folder(
        tokenizer_config={"bos_token": "<|start|>", "eos_token": {"content": "<|end|>"}, "pad_token": None},
        special_tokens_map={"eos_token": "<|stop|>", "additional_special_tokens": ["two words"]},
    )
    tokenizer = Tokenizer.load(path)
    ids = {text: tokenizer.encode(text, add_special_tokens=False) for text in ("<|start|>", "<|end|>", "two words")}
    assert [tokenizer.bos_id] == ids["<|start|>"]
    assert list(tokenizer.eos_ids) == ids["<|end|>"]
    assert {token for entry in ids.values() for token in entry} <= tokenizer.special_ids


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"generation_config": {"eos_token_id": [7, 9]}, "config": {"eos_token_id": 5}}, (7, 9)),
        ({"generation_config": {"top_p": 1.0}, "config": {"eos_token_id": 5}}, (5,)),
        ({"config": {"eos_token_id": None}, "tokenizer_config": {"eos_token": "<|stop|>"}}, (2,)),
        ({"config": {"eos_token_id": 0}, "tokenizer_config": {"eos_token": "<|stop|>"}}, (0, 2)),
        (
            {
                "generation_config": {"eos_token_id": [2, 0]},
                "config": {"eos_token_id": 5},
                "tokenizer_config": {"eos_token": "<|stop|>"},
            },
            (2, 0),
        ),
        ({}, ()),
    ],
)
def test_end_tokens_are_those_of_the_first_config_that_names_any_and_the_tokenizers_own(
    folder: Folder, files: dict, expected: tuple
) -> None:
    tokenizer = Tokenizer.load(folder(**files))
    assert tokenizer.eos_ids == expected
    assert set(expected) <= tokenizer.special_ids
    assert tokenizer.decode(expected) == ""


def test_ids_that_are_left_out_and_ends_without_a_token(folder: Folder) -> None:
    path = folder(generation_config={"eos_token_id": [500, 2, 99_999]}, tokenizer_config={"eos_token": "<|end|>"})
    before = Tokenizer.load(path).vocab_size
    config = json.loads((path / "tokenizer.json").read_text())
    vocabulary = config["model"]["vocab"]
    last = max(vocabulary, key=vocabulary.get)
    vocabulary[last] = 900
    (path / "tokenizer.json").write_text(json.dumps(config))
    tokenizer = Tokenizer.load(path)
    assert (before, tokenizer.vocab_size) == (len(vocabulary) + 3, 901)
    assert tokenizer.token_bytes(900) != b""
    assert tokenizer.eos_ids == (500, 2, 99_999, 1)
    assert tokenizer.known_eos_ids == (2, 1)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"tokenizer_config": "{"}, r"tokenizer_config\.json: not valid JSON"),
        ({"config": "[1]"}, r"config\.json: holds a JSON list; an object is expected"),
        ({"generation_config": {"eos_token_id": "x"}}, r"generation_config\.json: eos_token_id is 'x'"),
        ({"tokenizer_config": {"eos_token": 3}}, r"tokenizer_config\.json: eos_token is 3"),
        ({"special_tokens_map": {"additional_special_tokens": "ab"}}, r"special_tokens_map\.json: additional_spec"),
        ({"tokenizer_config": {"chat_template": [{"name": "x"}]}}, r"tokenizer_config\.json: chat_template"),
        ({"tokenizer": '{"version": "1.0"}'}, r"tokenizer\.json: not a tokenizer"),
    ],
)
def test_damaged_files_are_named(folder: Folder, files: dict, message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        Tokenizer.load(folder(**files))


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer\.json: the file is missing"):
        Tokenizer.load(tmp_path)
    with pytest.raises(TokenizerError, match="nowhere: no such folder"):
        Tokenizer.load(tmp_path / "nowhere")


def test_bytes_mixed_with_other_rules_are_refused(folder: Folder) -> None:

    path = folder() / "tokenizer.json"
    backend = tokenizers.Tokenizer.from_file(str(path))
    backend.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    backend.save(str(path))
    with pytest.raises(TokenizerError, match=r"tokenizer\.json: the decoder combines ByteLevel with \['Strip'\]"):
        Tokenizer.load(path.parent)


@pytest.mark.parametrize(
    ("family", "entry", "expected"),
    [
        ("byte_level", "Ġ", b" "),
        ("byte_level", "ð", b"\xf0"),
        ("byte_level", "two words", b"two words"),
        ("byte_level", "<tool🔧>", "<tool🔧>".encode()),
        ("byte_fallback", "<0x0A>", b"\n"),
        ("byte_fallback", "<0xE4>", b"\xe4"),
        ("byte_fallback", "▁the", b" the"),
        ("byte_fallback", "<0xZZ>", b"<0xZZ>"),
        ("metaspace", "<0x0A>", b"<0x0A>"),
        ("metaspace", "x▁y", b"x y"),
        ("word_piece", "##ing", b"ing"),
        ("word_piece", "play", b"play"),
    ],
)
def test_bytes_and_text_of_tokens(
    family: str, entry: str, expected: bytes, backends: dict, request: pytest.FixtureRequest
) -> None:
    tokenizer, token = request.getfixturevalue(family), backends[family].token_to_id(entry)
    assert tokenizer.token_bytes(token) == expected
    assert tokenizer.token_text(token) == expected.decode("utf-8", "replace")
    assert tokenizer.token_bytes(tokenizer.vocab_size) == b""
    assert tokenizer.token_text(tokenizer.vocab_size) == ""


def test_special_tokens_are_added_on_request(folder: Folder) -> None:
    path = folder() / "tokenizer.json"
    backend = tokenizers.Tokenizer.from_file(str(path))
    backend.post_processor = processors.TemplateProcessing(single="<|start|> $A", special_tokens=[("<|start|>", 0)])
    backend.enable_truncation(2)  # a leftover of training: must not cut prompts
    backend.save(str(path))
    tokenizer = Tokenizer.load(path.parent)
    plain = tokenizer.encode("How are you today?", add_special_tokens=False)
    assert len(plain) > 2
    assert tokenizer.encode("How are you today?", add_special_tokens=True) == [0, *plain]


@given(st.data())
@settings(deadline=None)
def test_byte_level_bytes_are_what_decoding_yields(byte_level: Tokenizer, data: st.DataObject) -> None:
    visible = sorted(set(range(byte_level.vocab_size)) - byte_level.special_ids)
    ids = data.draw(st.lists(st.sampled_from(visible), max_size=12))
    assert b"".join(map(byte_level.token_bytes, ids)).decode("utf-8", "replace") == byte_level.decode(ids)


def test_threads_share_a_tokenizer(byte_level: Tokenizer) -> None:
    texts = [f"thread {i} says 你好 🎉 {i * 37}" for i in range(200)]
    with ThreadPoolExecutor(4) as pool:
        ids = list(pool.map(lambda text: byte_level.encode(text, add_special_tokens=False), texts))
        assert list(pool.map(byte_level.decode, ids)) == texts
        assert list(pool.map(lambda row: b"".join(map(byte_level.token_bytes, row)).decode(), ids)) == texts
