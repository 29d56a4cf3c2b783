"""Identities of blocks: equal exactly when tenant, adapter and all tokens up to the block's end are."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.cache.prefix import PrefixIndex

names = st.text(alphabet="ab:1", max_size=4)
blocks = st.lists(st.lists(st.integers(0, 2), min_size=2, max_size=2), max_size=4)


def chain(index: PrefixIndex, tenant: str, adapter: str, tokens: list[list[int]]) -> bytes:
    identity = index.root(tenant, adapter)
    for block in tokens:
        identity = index.identity(identity, block)
    return identity


@settings(max_examples=300, deadline=None)
@given(tenants=st.tuples(names, names), adapters=st.tuples(names, names), tokens=st.tuples(blocks, blocks))
def test_identities(
    tenants: tuple[str, str], adapters: tuple[str, str], tokens: tuple[list[list[int]], list[list[int]]]
) -> None:
    index = PrefixIndex(b"key")
    first, second = (chain(index, *parts) for parts in zip(tenants, adapters, tokens, strict=True))
    same = tenants[0] == tenants[1] and adapters[0] == adapters[1] and tokens[0] == tokens[1]
    assert (first == second) == same


def test_identities_tell_what_keys_and_values_are_kept_in() -> None:
    index = PrefixIndex(b"key")
    assert index.root("t", "", "torch.int8") != index.root("t", "", "torch.bfloat16")
    assert index.root("t", "a", "b") != index.root("t", "ab", "")


def test_identities_need_the_key() -> None:
    assert chain(PrefixIndex(b"one"), "t", "", [[1, 2]]) != chain(PrefixIndex(b"two"), "t", "", [[1, 2]])


def test_a_block_stands_for_one_identity_and_an_identity_for_one_block() -> None:
    index = PrefixIndex(b"key")
    a, b = index.identity(index.root("t"), [1]), index.identity(index.root("t"), [2])
    assert index.publish(a, 7)
    assert index.publish(a, 7)
    assert not index.publish(a, 8)
    assert index.find(a) == 7
    assert not index.holds(8)
    # The block was overwritten: its old identity is gone with its contents.
    assert index.publish(b, 7)
    assert index.find(a) is None
    assert index.find(b) == 7
    index.forget(7)
    index.forget(7)
    assert index.find(b) is None
    assert len(index) == 0


def test_a_long_chain_has_no_repeats() -> None:
    index = PrefixIndex(b"key")
    identities = [index.root("t")]
    for _ in range(1000):
        identities.append(index.identity(identities[-1], [5, 5]))
    assert len(set(identities)) == 1001
    assert all(a != b for a, b in pairwise(identities))
