"""What a sequence has of the blocks, of the pages and of the states."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field


@dataclass(slots=True)
class Held:
    """What a sequence has of the slots for states. Only `StateSlots` changes it."""

    slot: int
    """Of its own state; -1 for one that is only to be kept."""
    source: int = -1
    """The slot of the state that its first step starts from, until that is computed."""
    branch: int = 0
    """Tokens up to which others had computed the same, where there was no state to go on from."""
    saves: list[tuple[int, int]] = field(default_factory=list)
    """Of the step under way: numbers of tokens, and the slots that get the state behind them."""
    answered: int = 0
    """That number of them at which the answer's latest full block ends."""
    latest: bytes | None = None
    """The identity of the last such block that has a state."""


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

    whole: bool = False
    """Whether all blocks are to be there, where all layers have a window, whatever is still read of them."""
    gone: int = 0
    """Leading blocks that were given back there, or never had: nobody reads them. One that is read stands in their
    places, since kernels look at keys that they mask."""
    given: array[int] = field(default_factory=lambda: array("i"))
    """Those of them that it had."""

    pages: array[int] = field(default_factory=lambda: array("i"))
    """Of its leading blocks, where layers with a window lie in pages."""
    behind: int = 0
    """Leading blocks whose pages it does not use any more, or never did; one that it reads stands in their places."""

    held: Held | None = None
    """Of a sequence that was admitted, where the model keeps a state of it."""

    @property
    def end(self) -> bytes:
        """The identity of its last full block, which is the parent of the next one's; the root before there is any."""
        return self.identities[-1] if self.identities else self.root
