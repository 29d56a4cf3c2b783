import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.cache.fingerprint import CacheQuery, Fingerprinter, canonical_json

SECRET = b"0123456789abcdef"
FIELDS = st.tuples(
    st.text(max_size=4), st.text(max_size=4), st.text(max_size=4), st.binary(max_size=4), st.text(max_size=4)
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(FIELDS, FIELDS)
def test_keys_are_equal_exactly_when_the_fields_are(one: tuple, other: tuple) -> None:
    prints = Fingerprinter(SECRET)
    a, b = prints.fingerprint(CacheQuery(*one)), prints.fingerprint(CacheQuery(*other))
    assert (a.bucket == b.bucket) == (one[:4] == other[:4])
    assert (a.exact_key == b.exact_key) == (one == other)
    assert (a.scope_tag == b.scope_tag) == (one[0] == other[0])


def test_fields_that_only_shift_a_boundary_do_not_collide() -> None:
    prints = Fingerprinter(SECRET)
    a = prints.fingerprint(CacheQuery("ab", "c", "r", b"", "t"))
    b = prints.fingerprint(CacheQuery("a", "bc", "r", b"", "t"))
    assert a.bucket != b.bucket


def test_keys_are_short_hex_and_depend_on_the_secret() -> None:
    query = CacheQuery("team", "auto", "r1", b"{}", "hello \ud800")
    one, other = Fingerprinter(SECRET).fingerprint(query), Fingerprinter(SECRET[::-1]).fingerprint(query)
    for key in (one.bucket, one.exact_key, one.scope_tag):
        assert len(key) == 32
        int(key, 16)
    assert {one.bucket, one.exact_key, one.scope_tag}.isdisjoint({other.bucket, other.exact_key, other.scope_tag})
    assert one.scope_tag == Fingerprinter(SECRET).scope_tag("team")


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="3 bytes; at least 16"):
        Fingerprinter(b"abc")


@given(JSON)
def test_canonical_json_reads_back_and_repeats(value: object) -> None:
    import json

    data = canonical_json(value)
    assert canonical_json(json.loads(data.decode("utf-8", "surrogatepass"))) == data


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"a": 1, "b": 2}, {"b": 2.0, "a": 1.0}, True),
        ([1], (1,), True),
        (-0.0, 0, True),
        (1e22, 10**22, True),
        (True, 1, False),
        ("1", 1, False),
        (0.1, 0.2, False),
        (2**53 + 1, float(2**53), False),
        ({"a": None}, {}, False),
        ("é", "e", False),
    ],
)
def test_canonical_json_equality(one: object, other: object, same: bool) -> None:
    assert (canonical_json(one) == canonical_json(other)) is same


@pytest.mark.parametrize("value", [b"x", {1: 2}, {"a": object()}])
def test_canonical_json_refuses_what_is_not_json(value: object) -> None:
    with pytest.raises(TypeError, match="JSON"):
        canonical_json(value)


@pytest.mark.parametrize("value", [float("nan"), [float("inf")]])
def test_canonical_json_refuses_numbers_json_has_not(value: object) -> None:
    with pytest.raises(ValueError, match="finite"):
        canonical_json(value)
