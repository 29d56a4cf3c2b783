import random

import pytest

from headgate.engine.demo import checkpoint
from headgate.engine.demo.tasks import Variety, generate
from headgate.engine.demo.tokenizer import SPECIALS, conversation_segments, load_tokenizer
from headgate.training.batches import encode
from headgate.training.rare import Resplit, rare_pieces

TOKENIZER = load_tokenizer(checkpoint("student"))


def rows(count: int):
    return [encode(TOKENIZER, conversation_segments(sample)) for sample in generate(count, seed=3)]


def test_words_of_rare_tokens_show_a_model_what_its_tokenizers_text_merges_further() -> None:
    pieces, heads = rare_pieces(TOKENIZER)
    # "statue" and "Edith" are words of the test split.
    assert {"stat", "ue"} <= set(pieces)
    assert "ed" in heads
    assert all(piece.isascii() and piece.isalpha() and piece.islower() and len(piece) > 1 for piece in pieces + heads)
    vocabulary = TOKENIZER.get_vocab()
    rare = {vocabulary[token] for token in (*pieces, *map(str.capitalize, heads)) if token in vocabulary}

    def unseen(variety: Variety) -> int:
        samples = generate(4_000, seed=0, variety=variety)
        text = (text for sample in samples for text, _ in conversation_segments(sample))
        return len(rare.difference(*(encoding.ids for encoding in TOKENIZER.encode_batch_fast(list(text)))))

    assert unseen(Variety(pieces, heads)) < unseen(Variety()) / 3


def test_rows_split_otherwise_say_the_same_and_answers_stay_as_they_are() -> None:
    resplit, rng = Resplit(TOKENIZER), random.Random(0)
    plain = rows(200)
    others = [resplit(row, rng) for row in plain]
    changed = [(row, other) for row, other in zip(plain, others, strict=True) if row != other]
    assert 60 < len(changed) < 140
    for (ids, learned), (other, marks) in changed:
        assert TOKENIZER.decode(other, skip_special_tokens=False) == TOKENIZER.decode(ids, skip_special_tokens=False)
        assert len(ids) < len(other) == len(marks)
        answer = [token for token, mark in zip(ids, learned, strict=True) if mark]
        assert [token for token, mark in zip(other, marks, strict=True) if mark] == answer
    again = random.Random(0)
    assert [resplit(row, again) for row in plain] == others


@pytest.mark.parametrize("special", SPECIALS)
def test_marks_of_turns_are_never_split(special: str) -> None:
    number = TOKENIZER.token_to_id(special)
    resplit, rng = Resplit(TOKENIZER), random.Random(1)
    row = ([number] * 50, [False] * 50)
    assert all(resplit(row, rng) == row for _ in range(20))
