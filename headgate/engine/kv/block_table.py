"""What a sequence has of the blocks, of the pages and of the states."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from headgate.engine.kv.states import Held


@dataclass(slots=True)
class BlockTable:
    """Blocks of one sequence in order of position. Only `KVTables` changes it."""

    root: bytes
    blocks: array[int] = field(default_factory=lambda: array("i"))
    """An array, because kernels take many tables as one: that copies memory and no numbers."""
    identities: list[bytes] = field(default_factory=list)
    """Identities of the leading blocks that are full and computed."""
    found: int = 0
    """Leading blocks that others had computed."""
    held: Held | None = None
    """Of a sequence that was admitted, where the model keeps a state of it."""
    whole: bool = False
    """Whether all blocks are to be there, whatever is still read of them."""
    gone: int = 0
    """Leading blocks that were given back, or never had: nobody reads them. One that is read stands in their places,
    since kernels look at keys that they mask."""
    given: array[int] = field(default_factory=lambda: array("i"))
    """Those of them that it had."""
    pages: array[int] = field(default_factory=lambda: array("i"))
    """Of its leading blocks, where layers with a window lie in pages."""
    behind: int = 0
    """Leading blocks whose pages it does not use any more, or never did; one that it reads stands in their places."""
