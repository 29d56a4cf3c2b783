"""Incremental text: joined pieces are the whole text, and nothing shown ever changes."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.engine.text.detokenizer import detokenizer
from headgate.engine.text.folder import TokenizerFolder
from headgate.engine.text.tokenizer import Tokenizer

chunkings = st.lists(st.integers(1, 4), max_size=60)


def pieces_of(tokenizer: Tokenizer, ids: list[int], chunks: list[int]) -> list[str]:
    """Pieces of one choice, pushed in chunks of the given lengths and then one by one; the last is the flush."""
    stream = detokenizer(tokenizer)
    pieces, start = [], 0
    for length in [*chunks, *[1] * len(ids)]:
        if start < len(ids):
            pieces.append(stream.push(ids[start : start + length]))
        start += length
    return [*pieces, stream.flush()]


def check(tokenizer: Tokenizer, ids: list[int], chunks: list[int]) -> None:
    whole = tokenizer.decode(ids)
    pieces = pieces_of(tokenizer, ids, chunks)
    assert "".join(pieces) == whole
    assert sum(piece.count("\ufffd") for piece in pieces) == whole.count("\ufffd")


@pytest.mark.parametrize("family", ["byte_level", "byte_fallback", "metaspace", "word_piece"])
@given(data=st.data())
@settings(deadline=None, max_examples=200)
def test_random_tokens(family: str, data: st.DataObject, request: pytest.FixtureRequest) -> None:
    tokenizer = request.getfixturevalue(family)
    # Ids beyond the vocabulary as well: a model's own may be padded.
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size + 2), max_size=30))
    check(tokenizer, ids, data.draw(chunkings))


@given(data=st.data())
@settings(deadline=None, max_examples=200)
def test_random_byte_runs(byte_fallback: Tokenizer, data: st.DataObject) -> None:
    """Bytes of real characters, cut and mixed with spaces, so that valid, invalid and unfinished runs all occur."""
    parts = st.one_of(
        st.text(max_size=3).map(lambda text: [3 + byte for byte in text.encode("utf-8", "ignore")]),
        st.lists(st.integers(3, 258), max_size=2),
        st.sampled_from([[259], [260], [261], [267], [268], [2]]),
    )
    ids = [token for part in data.draw(st.lists(parts, max_size=10)) for token in part]
    check(byte_fallback, ids, data.draw(chunkings))


@given(st.text(max_size=40), chunkings)
@settings(deadline=None, max_examples=200)
def test_any_text_comes_through_in_whole_characters(byte_level: Tokenizer, text: str, chunks: list[int]) -> None:
    ids = byte_level.encode(text, add_special_tokens=False)
    pieces = pieces_of(byte_level, ids, chunks)
    assert "".join(pieces) == byte_level.decode(ids)
    if not set(ids) & byte_level.special_ids:
        assert "".join(pieces) == text
    assert pieces[-1] == ""
    assert "\ufffd" in text or not any("\ufffd" in piece for piece in pieces)


def test_each_character_appears_with_its_last_token(byte_level: Tokenizer) -> None:
    rocket = [
        next(t for t in range(3, byte_level.vocab_size) if byte_level.token_bytes(t) == bytes((b,)))
        for b in "🛰".encode()
    ]
    stream = detokenizer(byte_level)
    assert [stream.push([token]) for token in rocket] == ["", "", "", "🛰"]
    assert stream.push(rocket[:2]) == ""
    assert stream.flush() == "\ufffd"


def test_invalid_bytes_are_shown_as_they_come(byte_level: Tokenizer) -> None:
    invalid = next(t for t in range(3, byte_level.vocab_size) if byte_level.token_bytes(t) == b"\xff")
    stream = detokenizer(byte_level)
    assert [stream.push([invalid]) for _ in range(3)] == ["\ufffd"] * 3


def test_a_byte_run_waits_for_its_end(byte_fallback: Tokenizer) -> None:
    """The decoder turns a whole run into U+FFFD if any of it is invalid: its good part must not be shown before."""
    byte = {b: 3 + b for b in range(256)}
    stream = detokenizer(byte_fallback)
    assert [stream.push([byte[b]]) for b in "你".encode()] == ["", "", ""]
    assert stream.push([261]) == "你 a"
    assert [stream.push([byte[b]]) for b in b"\xe4\xbd\xa0\xff"] == [""] * 4
    assert stream.push([261]) == "\ufffd" * 4 + " a"


class CountingTokenizer(Tokenizer):
    """Counts the tokens it is asked about."""

    asked = 0

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        ids = list(ids)
        self.asked += len(ids)
        return super().decode(ids, skip_special)

    def token_bytes(self, token_id: int) -> bytes:
        self.asked += 1
        return super().token_bytes(token_id)

    def is_byte_fallback(self, token_id: int) -> bool:
        self.asked += 1
        return super().is_byte_fallback(token_id)


@pytest.mark.parametrize("family", ["byte_level", "byte_fallback"])
def test_long_outputs_cost_the_same_per_token(family: str, backends: dict[str, tokenizers.Tokenizer]) -> None:
    """Words, and an endless run of bytes that never make a character: a few look-ups per token, however many."""
    tokenizer = CountingTokenizer(backends[family], TokenizerFolder({}, (), (), {}))
    ids = [3 + 0xFF] * 3000 + list(range(259, 270)) * 300
    stream = detokenizer(tokenizer)
    text = "".join(stream.push([token]) for token in ids) + stream.flush()
    assert tokenizer.asked < 8 * len(ids)
    assert text == tokenizer.decode(ids)
