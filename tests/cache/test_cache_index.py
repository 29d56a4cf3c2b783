import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.cache.index import BUCKET_BYTES, KEY_BYTES, FlatIndex, Vector

DIM = 6


def unit(seed: int) -> Vector:
    vector = np.random.default_rng(seed).standard_normal(DIM).astype(np.float32)
    return vector / np.linalg.norm(vector)


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "remove"]), st.integers(0, 30), st.sampled_from("xy"), st.integers(0, 999)
    ),
    max_size=80,
)


@given(OPERATIONS, st.integers(0, 99), st.integers(1, 5))
def test_search_agrees_with_comparing_everything(operations: list, seed: int, k: int) -> None:
    index = FlatIndex(DIM)
    model: dict[str, tuple[str, Vector]] = {}
    for action, number, bucket, vector_seed in operations:
        key = str(number)
        if action == "add":
            index.add(key, bucket, unit(vector_seed))
            model[key] = (bucket, unit(vector_seed))
        else:
            index.remove(key)
            model.pop(key, None)
    assert len(index) == len(model)
    asked = unit(seed)
    for bucket in "xyz":
        cosines = {key: float(v @ asked) for key, (b, v) in model.items() if b == bucket}
        found = index.search(bucket, asked, k)
        assert len(found) == min(k, len(cosines))
        assert [c for _, c in found] == pytest.approx(sorted(cosines.values(), reverse=True)[:k], abs=1e-6)
        assert all(cosines[key] == pytest.approx(c, abs=1e-6) for key, c in found)


def test_the_same_vector_has_cosine_one_in_its_bucket_only() -> None:
    index = FlatIndex(DIM)
    index.add("a", "x", unit(1))
    assert index.search("x", unit(1), 3) == [("a", pytest.approx(1.0, abs=1e-6))]
    assert index.search("x", unit(1), 3)[0][1] <= 1.0
    assert index.search("y", unit(1), 3) == []
    assert index.search("x", unit(1), 0) == []


@pytest.mark.parametrize(
    "vector",
    [np.ones(3, np.float32), np.zeros(DIM, np.float32), np.full(DIM, np.nan, np.float32), 2 * unit(1)],
)
def test_what_is_no_unit_vector_is_refused(vector: Vector) -> None:
    index = FlatIndex(DIM)
    with pytest.raises(ValueError, match="the vector has"):
        index.add("a", "x", vector)
    with pytest.raises(ValueError, match="the vector has"):
        index.search("x", vector, 1)
    assert len(index) == 0


def test_a_key_of_a_new_bucket_takes_its_vector_and_what_a_bucket_takes() -> None:
    index = FlatIndex(384)
    alone = index.row_bytes("b")
    index.add("k", "b", np.eye(384, dtype=np.float32)[0])
    assert index.row_bytes("b") == KEY_BYTES + 4 * 384
    assert index.bytes_used == alone
    index.add("l", "b", np.eye(384, dtype=np.float32)[1])
    assert index.bytes_used == alone + index.row_bytes("b")
    assert (alone, index.row_bytes("c")) == (index.row_bytes("b") + BUCKET_BYTES,) * 2
