from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from headgate.cache.embedding.encoder import BertEncoder, BertWeights, Pass, fastest
from headgate.cache.embedding.encoder_native import NativePass, instructions
from headgate.cache.embedding.encoder_torch import TorchPass
from headgate.cache.embedding.sentence_model import default_folder

TEXTS = [
    "How do I reset my password?",
    "ok",
    "Convert 90 min to hours, please, and round it to one digit.",
    "How do I get a refund for shoes that I bought online last week?",
    "How can I get my money back for the shoes from last week's order?",
    "Which trains leave before noon? " * 40,
]
LEVELS = [level for level in (1, 2, 3) if level <= instructions()]


@pytest.fixture(scope="module")
def folder() -> Path:
    found = default_folder()
    assert found is not None
    return found


@pytest.fixture(scope="module")
def weights(folder: Path) -> BertWeights:
    return BertWeights.read(folder)


@pytest.fixture(scope="module")
def exact(folder: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    """Of float32: the vector, and the states after the third layer and the last."""
    import torch
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")
    found = []
    for text in TEXTS:
        with torch.inference_mode():
            inputs = model.tokenize([text])
            own = model[0].auto_model(**inputs, output_hidden_states=True).hidden_states
        vector = model.encode([text], normalize_embeddings=True)[0]
        found.append((vector, torch.cat([own[3], own[6]], -1)[0, 1:-1].numpy()))
    return found


def passes(weights: BertWeights) -> list[Pass]:
    return [TorchPass(weights), *(NativePass(weights, level) for level in LEVELS)]


def unit(rows: np.ndarray) -> np.ndarray:
    made: np.ndarray = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
    return made


def test_every_way_keeps_to_float32(
    folder: Path, weights: BertWeights, exact: Sequence[tuple[np.ndarray, np.ndarray]]
) -> None:
    vectors = np.stack([vector for vector, _ in exact])
    for compute in passes(weights):
        found = BertEncoder(folder, compute).encode(TEXTS)
        own = np.stack([seen.vector for seen in found])
        assert np.abs(np.linalg.norm(own, axis=1) - 1.0).max() < 1e-5
        # What is decided by: cosines of two texts.
        assert np.abs(own @ own.T - vectors @ vectors.T).max() < 0.005
        for seen, (vector, states) in zip(found, exact, strict=True):
            assert float(seen.vector @ vector) > 0.9995
            assert seen.states.shape == states.shape
            # What the comparator is given: either half of every wordpiece's state.
            for half in (slice(0, 384), slice(384, 768)):
                assert (unit(seen.states[:, half]) * unit(states[:, half])).sum(axis=1).min() > 0.995


@pytest.mark.skipif(not LEVELS, reason="the kernel is not compiled, or not for this processor")
@pytest.mark.parametrize("level", LEVELS)
def test_neighbours_change_no_bit(folder: Path, weights: BertWeights, level: int) -> None:
    encoder = BertEncoder(folder, NativePass(weights, level))
    # Enough for several walks through the layers, at lengths that end anywhere in a block of rows.
    many = [" ".join([text] * times) for times in (1, 2, 5) for text in TEXTS[:5]] * 3
    for text, together in zip(many, encoder.encode(many), strict=True):
        (alone,) = encoder.encode([text])
        assert alone.vector.tobytes() == together.vector.tobytes()
        assert alone.states.tobytes() == together.states.tobytes()


@pytest.mark.skipif(not LEVELS, reason="the kernel is not compiled, or not for this processor")
@pytest.mark.parametrize("level", LEVELS)
def test_a_second_thread_changes_no_bit_whoever_else_computes(weights: BertWeights, level: int) -> None:
    alone, helped = (NativePass(weights, level, together=own) for own in (False, True))
    rng = np.random.default_rng(0)
    texts = [[101, *rng.integers(1000, 30_000, tokens).tolist(), 102] for tokens in (0, 1, 14, 15, 18, 31, 60)]
    expected = [alone([text]) for text in texts]

    def run(seed: int) -> None:
        order = np.random.default_rng(seed).integers(0, len(texts), 60)
        for at in order.tolist():
            vectors, states = helped([texts[at]])
            assert vectors.tobytes() == expected[at][0].tobytes()
            assert states.tobytes() == expected[at][1].tobytes()

    # More threads than cores, of which one at a time is helped.
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(run, range(3)))


@pytest.mark.skipif(not LEVELS, reason="the kernel is not compiled, or not for this processor")
def test_the_compiled_way_is_taken_and_refuses_what_is_outside_its_tables(folder: Path, weights: BertWeights) -> None:
    compute = fastest(folder)
    assert compute.kind.startswith("C++")
    for text in ([101, len(weights.words), 102], [101, -1, 102], [101] * (len(weights.positions) + 1)):
        with pytest.raises(IndexError, match="are accepted"):
            compute([[101, 102], text])
    with pytest.raises(ValueError, match="level is 4"):
        NativePass(weights, 4)
