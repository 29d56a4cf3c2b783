"""Slots for the states of sequences: whose is which, and which hold a state that others may go on from.

A state cannot be cut back to an earlier token as keys and values can. So copies of it are kept, each under the identity
of the block it is at the end of: where a prompt's last full block ends, where a prompt leaves what others had computed,
and where an answer's latest full block ends. They lie in slots that no sequence has at present, and the one that was
not used for the longest time is overwritten first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headgate.cache.prefix import PrefixIndex
from headgate.engine.kv.block_table import BlockTable, Held
from headgate.engine.kv.pool import BlockPool


class StateSlots:
    """Gives slots to sequences, keeps states that were copied, and takes both back."""

    def __init__(self, slots: int, block_size: int, key: bytes) -> None:
        """`block_size`: tokens per block. `key`: as of PrefixIndex."""
        self._index = PrefixIndex(key)
        self._pool = BlockPool(slots, self._index)
        self._block_size = block_size

    @property
    def free(self) -> int:
        """Slots that a sequence can have now."""
        return self._pool.free

    def behind(self, identities: Sequence[bytes]) -> int:
        """The last of these blocks that there is a state behind, from 1; 0 if none. From any thread."""
        return self._last(identities)[0]

    def begin(self, table: BlockTable) -> int:
        """Give a sequence that has just found the blocks of its table a slot; behind how many of them a state is there.

        OutOfBlocks where none is free.
        """
        blocks, source = self._last(table.identities)
        table.held = self._from(source)
        if len(table.identities) > blocks:
            table.held.branch = len(table.identities) * self._block_size
        return blocks

    def plan(self, table: BlockTable, start: int, stop: int, tokens: int, prompt: int) -> None:
        """Have the step over the tokens from `start` to `stop` copy the state at the ends of some blocks.

        As far as there are slots. `tokens`: that are known of the sequence, `prompt` of its prompt.
        """
        held, size = table.held, self._block_size
        if held is None:
            return
        held.answered = stop if stop > prompt and stop % size == 0 else 0
        last = (tokens - 1) // size * size
        ends = [end for end in sorted({held.branch, last}) if start < end <= stop and end != held.answered]
        if held.answered:
            ends.append(held.answered)  # in the place of the one before it
            if held.latest is not None:
                self._drop(held.latest)
                held.latest = None
        for end in ends:
            if self._pool.free:
                held.saves.append((end, self._pool.take()))

    def settle(self, table: BlockTable, *, keep: bool) -> None:
        """The step is computed: what it has copied can be found. Without `keep` it is the first to be overwritten."""
        held = table.held
        if held is None:
            return
        if held.source >= 0:
            self._pool.release(held.source)
            held.source = -1
        for end, slot in held.saves:
            identity = table.identities[end // self._block_size - 1]
            if self._index.publish(identity, slot) and end == held.answered:
                held.latest = identity
            self._pool.release(slot, keep=keep)
        held.saves.clear()

    def end(self, table: BlockTable, *, discard: bool = False) -> None:
        """Take back all that a sequence has. With `discard` no state behind its blocks is to be found any more."""
        held = table.held
        if held is None:
            return
        for slot in (held.slot, held.source, *(slot for _, slot in held.saves)):
            if slot >= 0:
                self._pool.release(slot)
        table.held = None
        if discard:
            for identity in table.identities:
                self._drop(identity)

    def hold(self, table: BlockTable) -> None:
        """Keep the last state behind a sequence's blocks until `end`, instead of its own.

        Unless fewer than half of all would be free then.
        """
        if table.held is None:
            return
        self.end(table)
        found = self._last(table.identities)[1]
        if found >= 0 and 2 * (self._pool.free - 1) >= self._pool.size:
            self._pool.share(found)
            table.held = Held(-1, found)

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

    def _last(self, identities: Sequence[bytes]) -> tuple[int, int]:
        """How many of these blocks the last state is behind, and its slot; 0 and -1 if there is none."""
        for number in range(len(identities), 0, -1):
            slot = self._index.find(identities[number - 1])
            if slot is not None:
                return number, slot
        return 0, -1

    def _from(self, source: int) -> Held:
        """A slot for a sequence that starts from the state in slot `source`, or from none."""
        if source < 0:
            return Held(self._pool.take())
        alone = self._pool.free == 1 and not self._pool.references(source)
        self._pool.share(source)
        if alone:  # its state is not kept any longer, but becomes that of the sequence
            self._index.forget(source)
            return Held(source)
        return Held(self._pool.take(), source)

    def _drop(self, identity: bytes) -> None:
        """Forget the state at the end of a block, unless a sequence starts from it."""
        slot = self._index.find(identity)
        if slot is not None and not self._pool.references(slot):
            self._index.forget(slot)
            self._pool.share(slot)
            self._pool.release(slot)
