"""Keys and values on their way back from a tier."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.engine.kv.block_table import BlockTable


@dataclass(slots=True, eq=False)
class Load:
    """Blocks that are filled with records. Sequences that begin with them wait until it is `done`."""

    table: BlockTable
    """What was resident before them, and then these blocks."""
    chain: list[tuple[bytes, bytes]]
    """Their identities, and each one's parent's."""
    blocks: list[int]
    done: bool = False
    """Nobody waits any more, though it may still go on where it took too long."""
    loaded: int = 0
    """Leading blocks that are filled."""
    from_disk: int = 0
    """Of these."""
    seconds: float = 0.0
