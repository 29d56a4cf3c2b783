from headgate.engine.demo import checkpoint
from headgate.engine.demo.tasks import Variety, generate
from headgate.engine.demo.tokenizer import conversation_segments, load_tokenizer
from headgate.training.rare import rare_pieces

TOKENIZER = load_tokenizer(checkpoint("student"))


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
