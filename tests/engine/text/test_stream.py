"""Text and log-probabilities of one choice."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.engine.request import TokenLogprob
from headgate.engine.text.stream import ChoiceText, TextLogprob, TextPiece, TopLogprob
from headgate.engine.text.tokenizer import Tokenizer

chunkings = st.lists(st.integers(1, 4), max_size=40)


def entries(ids: list[int]) -> list[TokenLogprob]:
    return [TokenLogprob(token, -1.0 - place, ((token, -1.0 - place),)) for place, token in enumerate(ids)]


def answer(tokenizer: Tokenizer, ids: list[int], chunks: list[int], stops: tuple[str, ...], logprobs: bool):
    """The joined answer (text, entries, stopped, tokens) of tokens pushed in chunks."""
    choice = ChoiceText(tokenizer, stops)
    told = entries(ids)
    pieces, start = [], 0
    for length in [*chunks, len(ids) + 1]:
        part = slice(start, start + length)
        pieces.append(choice.push(ids[part], told[part] if logprobs else ()))
        start += length
    pieces.append(choice.finish())
    joined = tuple(entry for piece in pieces for entry in piece.logprobs)
    tokens = sum(piece.tokens for piece in pieces)
    return "".join(piece.text for piece in pieces), joined, pieces[-1].stopped, tokens


@given(data=st.data(), chunks=chunkings, logprobs=st.booleans())
@settings(deadline=None, max_examples=150)
@pytest.mark.parametrize("family", ["byte_level", "byte_fallback"])
def test_joined_pieces_do_not_depend_on_chunks(
    family: str, data: st.DataObject, chunks: list[int], logprobs: bool, request: pytest.FixtureRequest
) -> None:
    tokenizer = request.getfixturevalue(family)
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=20))
    stops = tuple(data.draw(st.lists(st.sampled_from(["a", " a", "the", "\ufffd", "ab"]), max_size=2)))
    text, joined, stopped, tokens = answer(tokenizer, ids, chunks, stops, logprobs)
    assert (text, joined, stopped, tokens) == answer(tokenizer, ids, [], stops, logprobs)
    whole = tokenizer.decode(ids)
    assert whole.startswith(text)
    assert stopped == any(stop in whole for stop in stops)
    if stopped:
        assert any(stop in tokenizer.decode(ids[:tokens]) for stop in stops)
    else:
        assert (text, tokens) == (whole, len(ids))
        assert len(joined) == (sum(token not in tokenizer.special_ids for token in ids) if logprobs else 0)


def one_token_each(tokenizer: Tokenizer, text: str) -> list[int]:
    """A token for each byte of `text`."""
    single = {tokenizer.token_bytes(token): token for token in reversed(range(3, tokenizer.vocab_size))}
    return [single[bytes((byte,))] for byte in text.encode()]


def test_entries_describe_tokens_and_their_rivals(byte_level: Tokenizer) -> None:
    a, b = one_token_each(byte_level, "ab")
    choice = ChoiceText(byte_level)
    piece = choice.push([a], [TokenLogprob(a, -0.5, ((a, -0.5), (b, -1.5)))])
    rivals = (TopLogprob("a", (97,), -0.5), TopLogprob("b", (98,), -1.5))
    assert piece == TextPiece("a", (TextLogprob("a", (97,), -0.5, rivals),), tokens=1)
    assert choice.finish() == TextPiece()


def test_entries_come_with_the_first_of_their_text(byte_level: Tokenizer) -> None:
    ids = one_token_each(byte_level, "é!")
    choice = ChoiceText(byte_level, ("!!",))
    pieces = [choice.push([token], [entry]) for token, entry in zip(ids, entries(ids), strict=True)]
    assert [piece.text for piece in pieces] == ["", "é", ""]
    assert [len(piece.logprobs) for piece in pieces] == [0, 2, 0]
    assert [entry.bytes for entry in pieces[1].logprobs] == [(0xC3,), (0xA9,)]
    last = choice.finish()
    assert (last.text, [entry.token for entry in last.logprobs], last.stopped) == ("!", ["!"], False)


def test_nothing_of_the_stop_string_or_after_it_is_reported(byte_level: Tokenizer) -> None:
    ids = one_token_each(byte_level, "ok.END more")
    for chunk in (1, 3, 20):
        text, joined, stopped, tokens = answer(byte_level, ids, [chunk] * 20, ("END",), logprobs=True)
        assert (text, stopped, tokens) == ("ok.", True, 6)
        assert [entry.token for entry in joined] == ["o", "k", "."]


def test_after_a_stop_string_nothing_comes(byte_level: Tokenizer) -> None:
    choice = ChoiceText(byte_level, ("b",))
    ids = one_token_each(byte_level, "abab")
    assert choice.push(ids) == TextPiece("a", (), stopped=True, tokens=2)
    assert choice.push(ids, entries(ids)) == TextPiece(stopped=True)
    assert choice.finish() == TextPiece(stopped=True)


def test_end_tokens_and_stop_tokens_are_hidden(byte_level: Tokenizer) -> None:
    a, b = one_token_each(byte_level, "ab")
    end = min(byte_level.special_ids)
    choice = ChoiceText(byte_level, stop_token_ids=(b,))
    ids = [a, end, a, b]
    piece = choice.push(ids, entries(ids))
    assert piece.text == "aa"
    assert [entry.logprob for entry in piece.logprobs] == [-1.0, -3.0]
    assert (choice.push([b]), choice.finish()) == (TextPiece(tokens=1), TextPiece())


def test_entries_must_match_tokens(byte_level: Tokenizer) -> None:
    with pytest.raises(ValueError, match="shorter"):
        ChoiceText(byte_level).push([3, 4], entries([3]))
