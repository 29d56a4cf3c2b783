"""Which block tables a model needs, by what its layers keep of a sequence."""

from __future__ import annotations

from headgate.engine.kv.paged_tables import PagedTables
from headgate.engine.kv.state_tables import StateTables
from headgate.engine.kv.tables import KVTables
from headgate.engine.kv.window import Window
from headgate.engine.kv.window_tables import WindowTables


def kv_tables(
    blocks: int,
    block_size: int,
    key: bytes,
    *,
    prefix_cache: bool = True,
    dtype: str = "",
    states: int = 0,
    window: Window | None = None,
    pages: int = 0,
) -> KVTables:
    """The tables of a pool of so many blocks; the first five as of KVTables.

    Args:
        states: slots for states, of a model that keeps one of each sequence.
        window: of a model whose layers look no further back, or, with `pages`, some of whose layers do not.
        pages: what these layers keep lies in so many pages.

    Raises:
        ValueError: naming what does not go together.
    """
    if states and window is not None:
        raise ValueError("window and states are both given; a model that keeps states keeps all of its blocks")
    if states:
        return StateTables(states, blocks, block_size, key, prefix_cache=prefix_cache, dtype=dtype)
    if window is None:
        if pages:
            raise ValueError(f"pages is {pages}, which must be 0 without a window")
        return KVTables(blocks, block_size, key, prefix_cache=prefix_cache, dtype=dtype)
    if pages:
        return PagedTables(window, pages, blocks, block_size, key, prefix_cache=prefix_cache, dtype=dtype)
    return WindowTables(window, blocks, block_size, key, prefix_cache=prefix_cache, dtype=dtype)
