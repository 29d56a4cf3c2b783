"""Slots for the states of sequences: whose is which, and which hold a state that others may go on from.

A state cannot be cut back to an earlier token as keys and values can. So copies of it are kept, each under the identity
of the block it is at the end of: where a prompt's last full block ends, where a prompt leaves what others had computed,
and where an answer's latest full block ends. They lie in slots that no sequence has at present, and the one that was
not used for the longest time is overwritten first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from headgate.cache.prefix import PrefixIndex
from headgate.engine.kv.pool import BlockPool


@dataclass(slots=True)
class Held:
    """What a sequence has of the slots. Only `StateSlots` changes it."""

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


class StateSlots:
    """Gives slots to sequences, keeps states that were copied, and takes both back."""

    def __init__(self, slots: int, key: bytes) -> None:
        """`key`: as of PrefixIndex."""
        self._index = PrefixIndex(key)
        self._pool = BlockPool(slots, self._index)

    @property
    def free(self) -> int:
        """Slots that a sequence can have now."""
        return self._pool.free

    def kept(self, identity: bytes) -> bool:
        """Whether there is the state at the end of a block; may be asked from another thread."""
        return self._index.find(identity) is not None

    def begin(self, identities: Sequence[bytes]) -> tuple[Held, int]:
        """A slot for a sequence whose first blocks have these identities, and behind how many of them a state is there.

        OutOfBlocks where none is free.
        """
        blocks, source = 0, -1
        for number in range(len(identities), 0, -1):
            slot = self._index.find(identities[number - 1])
            if slot is not None:
                blocks, source = number, slot
                break
        if source < 0:
            return Held(self._pool.take()), 0
        alone = self._pool.free == 1 and not self._pool.references(source)
        self._pool.share(source)
        if alone:  # its state is not kept any longer, but becomes that of the sequence
            self._index.forget(source)
            return Held(source), blocks
        return Held(self._pool.take(), source), blocks

    def plan(self, held: Held, ends: Iterable[int], answered: int) -> None:
        """Have the step under way copy the state where these numbers of tokens, or those `answered`, are computed.

        As far as there are slots. `answered`, if not 0, takes the place of the last one.
        """
        if answered and held.latest is not None:
            self.drop(held.latest)
            held.latest = None
        held.answered = answered
        for end in (*ends, answered) if answered else ends:
            if self._pool.free:
                held.saves.append((end, self._pool.take()))

    def settle(self, held: Held, identities: Sequence[bytes], block_size: int, *, keep: bool) -> None:
        """The step is computed: what it has copied can be found. Without `keep` it is the first to be overwritten."""
        if held.source >= 0:
            self._pool.release(held.source)
            held.source = -1
        for end, slot in held.saves:
            identity = identities[end // block_size - 1]
            if self._index.publish(identity, slot) and end == held.answered:
                held.latest = identity
            self._pool.release(slot, keep=keep)
        held.saves.clear()

    def end(self, held: Held) -> None:
        """Take back all that a sequence has."""
        for slot in (held.slot, held.source, *(slot for _, slot in held.saves)):
            if slot >= 0:
                self._pool.release(slot)

    def hold(self, identities: Sequence[bytes]) -> Held | None:
        """Keep the last state that is there for these blocks until `end`; None where fewer than half would be free."""
        found = next((slot for each in reversed(identities) if (slot := self._index.find(each)) is not None), None)
        if found is None or 2 * (self._pool.free - 1) < self._pool.size:
            return None
        self._pool.share(found)
        return Held(-1, found)

    def drop(self, identity: bytes) -> None:
        """Forget the state at the end of a block, unless a sequence starts from it."""
        slot = self._index.find(identity)
        if slot is not None and not self._pool.references(slot):
            self._index.forget(slot)
            self._pool.share(slot)
            self._pool.release(slot)

    def forget(self) -> None:
        """Nothing that is in the slots can be found any more."""
        for slot in range(self._pool.size):
            self._index.forget(slot)

    def check(self, held: Iterable[Held]) -> None:
        """Raise AssertionError unless these are all that has slots."""
        self._pool.check()
        uses = [0] * self._pool.size
        written = set[int]()
        for each in held:
            for slot in (each.slot, *(slot for _, slot in each.saves)):
                assert slot not in written, "a slot is written to by two"
                written.add(slot)
                assert slot < 0 or not self._index.holds(slot), "a state that others may go on from is written to"
            written.discard(-1)
            for slot in (each.slot, each.source, *(slot for _, slot in each.saves)):
                if slot >= 0:
                    uses[slot] += 1
        assert uses == [self._pool.references(slot) for slot in range(self._pool.size)], "slots are lost or held twice"
