"""Block tables: what is found of a prompt, for how long and by whom; and the pool behind them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.cache.prefix import PrefixIndex
from headgate.engine.kv.pool import BlockPool, OutOfBlocks
from headgate.engine.kv.tables import KVTables


def test_asking_what_is_cached_does_not_keep_it_longer() -> None:
    tables = KVTables(4, 2, b"key")
    for tokens in ((1, 2, 3), (4, 5, 6)):
        table = tables.table("")
        assert tables.extend(table, 3)
        tables.publish(table, tokens, 2)
        tables.release(table)
    assert [tables.resident("", tokens) for tokens in ((1, 2, 3), (4, 5, 6))] == [2, 2]
    other = tables.table("")
    assert tables.extend(other, 6)
    assert [tables.resident("", tokens) for tokens in ((1, 2, 3), (4, 5, 6))] == [0, 2]
    assert KVTables(4, 2, b"key", prefix_cache=False).resident("", (1, 2, 3)) == 0


def test_the_end_of_a_probed_prompt_is_for_one_who_goes_on_from_it() -> None:
    tables, prompt = KVTables(6, 4, b"key"), [1, 2, 3, 4, 5, 6]
    probed = tables.table("a")
    assert tables.extend(probed, 6)
    tables.publish(probed, prompt, 6)
    tables.publish_tail(probed, prompt)
    ends = probed.blocks[1]
    assert tables.resident("a", prompt) == 4, "its maker may still read it"
    tables.release(probed)
    assert [tables.resident("a", asked) for asked in (prompt, [*prompt, 7], prompt[:5])] == [5, 4, 4]
    assert tables.resident("b", prompt) == 0

    longer, first, second = (tables.table("a") for _ in range(3))
    assert tables.attach_prefix(longer, [*prompt, 7]) == 4
    assert tables.attach_prefix(first, prompt) == 5
    assert first.blocks[1] == ends
    assert tables.attach_prefix(second, prompt) == 4, "the first one writes behind it"
    tables.check([longer, first, second])
    # Who went on fills the block, which then stands for other tokens.
    tables.publish(first, [*prompt, 7, 8], 8)
    assert tables.resident("a", [*prompt, 7, 8, 9]) == 8
    for table in (longer, first, second):
        tables.release(table)
    tables.check([])


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["take", "share", "release", "publish"]), st.integers(0, 2)),
        min_size=40,
        max_size=120,
    )
)
def test_pool_against_a_list(actions: list[tuple[str, int]]) -> None:
    """The free list against a plain list: least recently used first, blocks that hold nothing before all others."""
    index = PrefixIndex(b"key")
    pool = BlockPool(3, index)
    free = [0, 1, 2]
    references = dict.fromkeys(free, 0)
    for number, (action, pick) in enumerate(actions):
        block = pick % 3
        if action == "take":
            if not free:
                with pytest.raises(OutOfBlocks):
                    pool.take()
                continue
            taken = pool.take()
            assert taken == free.pop(0)
            assert not index.holds(taken)
            references[taken] = 1
        elif action == "share" and (references[block] or index.holds(block)):
            pool.share(block)
            if references[block] == 0:
                free.remove(block)
            references[block] += 1
        elif action == "publish" and references[block]:
            index.publish(number.to_bytes(2), block)
        elif action == "release":
            if not references[block]:
                with pytest.raises(ValueError, match="no reference"):
                    pool.release(block)
                continue
            pool.release(block)
            references[block] -= 1
            if references[block] == 0:
                free.insert(len(free) if index.holds(block) else 0, block)
        pool.check()
        assert pool.free == len(free)
        assert {b: pool.references(b) for b in range(3)} == references
