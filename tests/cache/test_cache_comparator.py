import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headgate.bench.cache.comparator_net import Net, Padded, log_odds
from headgate.cache.comparator import MAX_TOKENS, Comparator, Sketch
from headgate.cache.embedder import default_folder
from headgate.cache.encoder import BertEncoder, suits

STATES = 24


def comparator(seed: int = 0) -> tuple[Net, Comparator]:
    torch.manual_seed(seed)
    net = Net(STATES).eval()
    return net, Comparator(net.plain())


def drawn(rng: np.random.Generator, tokens: int) -> tuple[np.ndarray, np.ndarray]:
    return rng.integers(1000, 30_000, tokens), rng.standard_normal((tokens, STATES)).astype(np.float32)


@given(st.lists(st.integers(1, MAX_TOKENS), min_size=2, max_size=6), st.integers(0, 100))
def test_it_computes_what_was_fitted_whatever_the_lengths(lengths: list[int], seed: int) -> None:
    net, made = comparator()
    rng = np.random.default_rng(seed)
    texts = [drawn(rng, tokens) for tokens in lengths]
    # One wordpiece in common, so that the same ids meet.
    texts[1][0][0] = texts[0][0][0]
    vectors = np.eye(len(texts), 4, dtype=np.float32) + 0.5
    padded = Padded.of([i for i, _ in texts], [s.astype(np.float16) for _, s in texts], vectors, MAX_TOKENS)
    pairs = np.array([(0, other) for other in range(1, len(texts))])
    expected = log_odds(net, padded, pairs)
    sketches = [made.sketch(ids, states) for ids, states in texts]
    assert sketches[0] is not None
    cosines = [float(vectors[0] @ vectors[other]) for _, other in pairs]
    found = made.compare(sketches[0], [sketch for sketch in sketches[1:] if sketch is not None], cosines)
    # Sketches are rounded to 8 bits.
    np.testing.assert_allclose(found, expected, atol=0.03)


def test_the_order_of_the_two_texts_does_not_matter() -> None:
    _, made = comparator()
    rng = np.random.default_rng(1)
    one, other = (made.sketch(*drawn(rng, tokens)) for tokens in (5, 9))
    assert one is not None
    assert other is not None
    assert made.compare(one, [other], [0.5])[0] == pytest.approx(made.compare(other, [one], [0.5])[0], abs=1e-5)


def test_a_sketch_survives_its_bytes_and_refuses_anothers() -> None:
    _, made = comparator()
    sketch = made.sketch(*drawn(np.random.default_rng(2), 7))
    assert sketch is not None
    packed = sketch.to_bytes()
    assert len(packed) == 7 * (2 + made.width)
    again = Sketch.from_bytes(packed, made.width)
    assert again is not None
    np.testing.assert_array_equal(again.ids, sketch.ids)
    np.testing.assert_array_equal(again.states, sketch.states)
    assert Sketch.from_bytes(packed[:-1], made.width) is None
    assert Sketch.from_bytes(b"", made.width) is None


@pytest.mark.parametrize("tokens", [0, MAX_TOKENS + 1])
def test_a_text_without_words_or_with_too_many_has_no_sketch(tokens: int) -> None:
    _, made = comparator()
    assert made.sketch(*drawn(np.random.default_rng(3), tokens)) is None


def test_the_encoder_gives_the_vectors_of_sentence_transformers() -> None:
    from sentence_transformers import SentenceTransformer

    folder = default_folder()
    assert folder is not None
    assert suits(folder)
    texts = ["How do I reset my password?", "ok", "Convert 90 min to hours, please, and round it to one digit."]
    expected = SentenceTransformer(str(folder), device="cpu").encode(texts, normalize_embeddings=True)
    encoder = BertEncoder(folder)
    for seen, vector in zip(encoder.encode(texts), expected, strict=True):
        assert float(seen.vector @ vector) > 0.9995
        assert seen.states.shape == (len(seen.ids), 2 * encoder.dim)
    # Neighbours in a batch change nothing but the last digits.
    (alone,) = encoder.encode(texts[1:2])
    assert float(alone.vector @ expected[1]) > 0.9995


def test_another_kind_of_model_does_not_suit(tmp_path: object) -> None:
    from pathlib import Path

    folder = Path(str(tmp_path))
    assert not suits(folder)
    with pytest.raises(ValueError, match="holds no BERT"):
        BertEncoder(folder)
