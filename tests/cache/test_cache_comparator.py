import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headgate.bench.cache.comparator_net import Net, Padded, log_odds
from headgate.cache.embedding.comparator import MAX_TOKENS, Comparator, Sketch
from headgate.cache.embedding.comparator_native import NativeComparator
from headgate.cache.embedding.comparator_network import Network, rarity
from headgate.cache.embedding.encoder import BertEncoder, suits
from headgate.cache.embedding.encoder_native import instructions
from headgate.cache.embedding.sentence_model import default_folder

STATES = 24
LEVELS = [level for level in (1, 2) if level <= instructions()]
"""AMX is of no use here."""


def nets(seed: int = 0, count: int = 3) -> list[Net]:
    torch.manual_seed(seed)
    return [Net(STATES).eval() for _ in range(count)]


def comparator(seed: int = 0, *, native: bool = True) -> Comparator:
    return Comparator([net.plain() for net in nets(seed)], native=native)


def drawn(rng: np.random.Generator, tokens: int) -> tuple[np.ndarray, np.ndarray]:
    return rng.integers(1000, 30_000, tokens), rng.standard_normal((tokens, STATES)).astype(np.float32)


@given(st.lists(st.integers(1, MAX_TOKENS), min_size=2, max_size=6), st.integers(0, 100))
def test_it_computes_what_was_fitted_whatever_the_lengths(lengths: list[int], seed: int) -> None:
    fitted = nets()
    rng = np.random.default_rng(seed)
    texts = [drawn(rng, tokens) for tokens in lengths]
    # One wordpiece in common, so that the same ids meet.
    texts[1][0][0] = texts[0][0][0]
    vectors = np.eye(len(texts), 4, dtype=np.float32) + 0.5
    padded = Padded.of([i for i, _ in texts], [s.astype(np.float16) for _, s in texts], vectors, MAX_TOKENS)
    pairs = np.array([(0, other) for other in range(1, len(texts))])
    expected = [log_odds(net, padded, pairs) for net in fitted]
    cosines = [float(vectors[0] @ vectors[other]) for _, other in pairs]
    ids = [its.astype(np.uint16) for its, _ in texts]
    ends = np.cumsum(lengths)[:-1]
    for net, own in zip(fitted, expected, strict=True):
        network = Network(net.plain())
        states = np.split(network.project([states for _, states in texts]), ends)
        # States are rounded to 8 bits.
        np.testing.assert_allclose(network.compare(ids, states, cosines), own, atol=0.03)
    made = comparator()
    sketches = [sketch for its, states in texts if (sketch := made.sketch(its, states)) is not None]
    # A sketch's to 4, and the mean of all is what counts.
    found = made.compare(sketches[0], sketches[1:], cosines)
    np.testing.assert_allclose(found, np.mean(expected, axis=0), atol=0.15)


@pytest.mark.skipif(not LEVELS, reason="the kernels are not compiled, or not for this processor")
@given(
    st.sampled_from(LEVELS or [0]),
    st.lists(st.integers(1, MAX_TOKENS), min_size=2, max_size=9),
    st.sampled_from((16, 32, 48, 64)),
    st.integers(0, 100),
)
def test_the_kernel_computes_what_numpy_does(level: int, lengths: list[int], width: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shapes = {"project": (width, STATES), "sharpness": (1,), "same": (1,), "f1.weight": (48, 4 * width + 4)}
    shapes |= {"f2.weight": (48, 48), "o1.weight": (48, 98), "o2.weight": (1, 48), "o2.bias": (1,)}
    shapes |= {f"{name}.bias": (48,) for name in ("f1", "f2", "o1")}
    weights = {name: rng.standard_normal(shape).astype(np.float32) / 4 for name, shape in shapes.items()}
    kernel, plain = NativeComparator(weights, rarity(np.arange(1 << 16)), level), Network(weights, native=False)
    ids, states = drawn(rng, MAX_TOKENS)
    # Some wordpieces in common, states that are close, and rows that do not lie together.
    own_ids = [
        np.where(rng.random(tokens) < 0.5, ids[:tokens], rng.integers(0, 1 << 16, tokens)).astype(np.uint16)
        for tokens in lengths
    ]
    own_states = [
        np.repeat(states + rng.standard_normal(states.shape).astype(np.float32) / 2, 2, axis=0)[::2][:tokens]
        for tokens in lengths
    ]
    projected = plain.project(own_states)
    # Sums in another order: what lies between two numbers may fall to either.
    assert np.abs(kernel.sketches(own_states).astype(int) - projected).max() <= 1
    sketches = np.split(projected, np.cumsum(lengths)[:-1])
    cosines = rng.random(len(lengths) - 1).tolist()
    expected = plain.compare(own_ids, sketches, cosines)
    np.testing.assert_allclose(kernel.compare(own_ids, sketches, cosines), expected, atol=1e-4, rtol=1e-4)


def test_sketches_of_another_width_are_refused() -> None:
    made = comparator()
    one = made.sketch(*drawn(np.random.default_rng(4), 5))
    assert one is not None
    narrow = Sketch(one.ids, one.states[:, :16].copy())
    with pytest.raises(ValueError, match=r"are accepted"):
        made.compare(narrow, [narrow], [0.5])
    with pytest.raises(ValueError, match=r"are accepted"):
        made.compare(one, [one], [0.5, 0.6])


def test_longer_sketches_than_are_made_compare_as_well() -> None:
    made = comparator()
    one, other = (made.sketch(*drawn(np.random.default_rng(seed), MAX_TOKENS)) for seed in (5, 6))
    assert one is not None
    assert other is not None
    longer = Sketch(np.tile(one.ids, 2), np.tile(one.states, (2, 1)))
    assert np.isfinite(made.compare(longer, [other, longer], [0.5, 1.0])).all()


def test_the_order_of_the_two_texts_does_not_matter() -> None:
    made = comparator()
    rng = np.random.default_rng(1)
    one, other = (made.sketch(*drawn(rng, tokens)) for tokens in (5, 9))
    assert one is not None
    assert other is not None
    assert made.compare(one, [other], [0.5])[0] == pytest.approx(made.compare(other, [one], [0.5])[0], abs=1e-5)


def test_a_sketch_survives_its_bytes_and_refuses_anothers() -> None:
    made = comparator()
    sketch = made.sketch(*drawn(np.random.default_rng(2), 7))
    assert sketch is not None
    packed = sketch.to_bytes()
    assert len(packed) == 7 * (2 + made.width // 2)
    assert made.packed_tokens(made.pack(sketch)) == 7
    again = Sketch.from_bytes(packed, made.width)
    assert again is not None
    np.testing.assert_array_equal(again.ids, sketch.ids)
    np.testing.assert_array_equal(again.states, sketch.states)
    assert Sketch.from_bytes(packed[:-1], made.width) is None
    assert Sketch.from_bytes(b"", made.width) is None


def test_a_packed_sketch_is_read_by_the_comparator_that_made_it_and_by_no_other() -> None:
    made, other = comparator(0), comparator(1)
    sketch = made.sketch(*drawn(np.random.default_rng(2), 7))
    assert sketch is not None
    packed = made.pack(sketch)
    again = comparator(0).unpack(packed)
    assert again is not None
    np.testing.assert_array_equal(again.ids, sketch.ids)
    np.testing.assert_array_equal(again.states, sketch.states)
    assert other.width == made.width
    assert other.unpack(packed) is None
    # As they were before they named their comparator.
    assert made.unpack(sketch.to_bytes()) is None
    assert made.unpack(b"") is None


@pytest.mark.parametrize("tokens", [0, MAX_TOKENS + 1])
def test_a_text_without_words_or_with_too_many_has_no_sketch(tokens: int) -> None:
    made = comparator()
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
