from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from headgate.cache.embedding.encoder import BertEncoder
from headgate.cache.embedding.sentence_model import default_folder
from headgate.cache.embedding.truncation import Beginnings


@pytest.fixture(scope="module")
def plain() -> Tokenizer:
    """The tokenizer as it comes, but for what the encoder has it cut and fill up."""
    found = tokenizer()
    found.enable_truncation(256)
    return found


def tokenizer() -> Tokenizer:
    folder = default_folder()
    assert folder is not None
    made = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
    made.no_padding()
    made.no_truncation()
    return made


LONG = [
    " ".join(["alpha beta"] * 40_000),
    "b" * 400_000,
    "б" * 400_000,
    "漢" * 400_000,
    " " * 400_000,
    "\u0301" * 400_000,
    "b\u0301" * 200_000,
    "\u200b " * 200_000,
    "\x0b\ue000" * 200_000,
    "🙂" * 200_000 + " so",
    "[" * 400_000,
    "[CLS]" * 80_000,
    "[\u200bCLS]" * 80_000,
    "b" * 400_000 + ". And then?",
    "b" * 101 + "\u0301" * 9000 + "b[SEP]" * 9000,
]
"""Of each kind that could take long."""
ODD = [
    *("a", "Hello", " ", "\n", "\t", "\x0b", "\x85", "\x00", "\ufffd", "\u0301", "\u0327", "\u200b", "\u302e"),
    *("é", "İ", "ß", "ﷺ", "각", "ア", "漢", "\U0002b820", "\uf900", "🙂", "≠", "\ue000", "\u3000", "\xa0"),
    *(".", "[", "]", "¿", "_", "$", "[CLS]", "[MASK]", "[SEP", "UNK]", "##s"),
]
PIECES = st.one_of(
    st.sampled_from(ODD),
    st.characters(exclude_categories=["Cs"]),
)
RUNS = st.lists(st.tuples(PIECES, st.sampled_from([1, 1, 1, 2, 30, 99, 100, 101, 300, 4095])), max_size=60)


@given(runs=RUNS, times=st.sampled_from([1, 5, 200]))
@settings(max_examples=150)
@example(runs=[("a", 1), (" ", 4095), (" ", 4095), ("b", 1)], times=1)
@example(runs=[(".", 259), ("[CLS]", 1), ("b", 4095)], times=2)
@example(runs=[("[SEP", 1), ("]", 1), (" ", 30)], times=200)
@example(runs=[("a", 101), ("\u0301", 300), ("a", 4095), ("[CLS]", 2)], times=200)
def test_of_a_long_text_the_very_same_is_read(
    encoder: BertEncoder, plain: Tokenizer, runs: list[tuple[str, int]], times: int
) -> None:
    text = ("".join(piece * count for piece, count in runs) * times)[:60_000]
    (whole,) = plain.encode_batch([text])
    assert encoder.read([text, "short"])[0] == whole.ids


@pytest.mark.parametrize("text", LONG, ids=lambda text: ascii(text[:6]))
def test_of_whatever_megabytes_little_is_tokenized(encoder: BertEncoder, plain: Tokenizer, text: str) -> None:
    (whole,) = plain.encode_batch([text])
    assert encoder.read([text])[0] == whole.ids
    head, _ = Beginnings(tokenizer()).of(text, 300)
    assert len(head) <= 30_000


def test_lengths_are_of_the_whole_text(encoder: BertEncoder) -> None:
    texts = ["b " * 9000, "one two"]
    assert encoder.lengths(texts) == [9002, 4]
    assert [len(ids) for ids in encoder.read(texts)] == [encoder.longest, 4]


def test_other_tokenizers_are_left_alone() -> None:
    made = tokenizer()
    assert Beginnings.can(made)
    made.add_tokens(["two words"])
    assert not Beginnings.can(made)
    assert not Beginnings.can(Tokenizer(models.BPE()))
