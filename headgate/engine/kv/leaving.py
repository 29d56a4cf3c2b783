"""Full blocks that others find, and those of them that have a new owner who has not written to them yet."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Full:
    """A block that holds what its identity says, and the identity of the block before it."""

    block: int
    identity: bytes
    parent: bytes


class Leaving:
    """Notes of block tables for tiers. Belongs to the step thread."""

    def __init__(self) -> None:
        self._full: dict[int, Full] = {}
        self._fresh: dict[int, Full] = {}
        self._taken: list[Full] = []
        self._distrusted: list[bytes] = []

    def add(self, block: int, identity: bytes, parent: bytes) -> None:
        """Others find it now."""
        if block not in self._full:
            self._full[block] = self._fresh[block] = Full(block, identity, parent)

    def pass_over(self, block: int) -> None:
        """It is found, but nobody is to keep it."""
        self._full.pop(block, None)
        self._fresh.pop(block, None)

    def give(self, block: int) -> None:
        """It has a new owner."""
        full = self._full.pop(block, None)
        self._fresh.pop(block, None)
        if full is not None:
            self._taken.append(full)

    def distrust(self, block: int) -> None:
        """What is in it may be wrong, wherever it is."""
        full = self._full.pop(block, None)
        self._fresh.pop(block, None)
        if full is not None:
            self._distrusted.append(full.identity)

    def forget(self) -> None:
        """Nothing is in any block."""
        self._full.clear()
        self._fresh.clear()
        self._taken.clear()

    def taken(self) -> list[Full]:
        """What is about to be overwritten, each once."""
        taken, self._taken = self._taken, []
        return taken

    def distrusted(self) -> list[bytes]:
        """What no tier may have, each once."""
        distrusted, self._distrusted = self._distrusted, []
        return distrusted

    def fresh(self, most: int) -> list[Full]:
        """Some that were not given out here before, the first to be found first."""
        found = [full for full, _ in zip(self._fresh.values(), range(most), strict=False)]
        for full in found:
            del self._fresh[full.block]
        return found

    @property
    def blocks(self) -> dict[int, bytes]:
        """Identities of the blocks that others find, but for those passed over."""
        return {block: full.identity for block, full in self._full.items()}
