"""Steps that nobody asked for: tokens of all kinds of sequences, whose keys go to blocks that belong to nobody."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from headgate.engine.stepping.inputs import StepInputs

_FARTHEST = 2048
"""Tokens that a sequence has at most where it goes on."""


def blocks_taken(tokens: int, block_size: int) -> int:
    """Most blocks that `made_up` writes to for so many tokens."""
    return tokens // block_size + 6


def made_up(
    tokens: int, sequences: int, longest: int, vocab_size: int, blocks: Sequence[int], block_size: int, seed: int
) -> StepInputs:
    """A step of `tokens` tokens, or fewer where `sequences` sequences of `longest` have no room for them.

    A quarter of them are each a sequence's next one, the others parts of two prompts, as far as there may be so many
    sequences. No two write to one slot of `blocks`; what comes before, they have anywhere there. `seed`: any number,
    for steps that differ in all that a step may.
    """
    inputs, own = StepInputs(), iter(blocks)
    reach = min(longest, _FARTHEST)
    decoded = min(max(0, sequences - 2), tokens // 4)
    # Next ones share a block, each at a place of its own.
    apart = min(block_size, reach)
    tail = -1
    for number in range(decoded):
        if number % apart == 0:
            tail = next(own)
        full = (7 * seed + 5 * number) % max(1, reach // block_size)
        table = _anywhere(full, blocks, seed + number)
        table.append(tail)
        _add(inputs, full * block_size + number % apart, 1, table, vocab_size, block_size, seed)
    left = tokens - decoded
    shares = [left] if sequences - decoded < 2 or left < 2 else [left // 3, left - left // 3]
    for share in shares:
        count = min(share, longest)
        start = (13 * seed) % (min(reach, longest - count) + 1) if longest > count else 0
        first, last = start // block_size, (start + count - 1) // block_size
        table = _anywhere(first, blocks, seed)
        table.extend([next(own) for _ in range(first, last + 1)])
        _add(inputs, start, count, table, vocab_size, block_size, seed)
    return inputs


def _anywhere(count: int, blocks: Sequence[int], seed: int) -> array[int]:
    return array("i", [blocks[(3 * at + seed) % len(blocks)] for at in range(count)])


def _add(
    inputs: StepInputs, start: int, count: int, table: array[int], vocab_size: int, block_size: int, seed: int
) -> None:
    places = range(start, start + count)
    inputs.tokens.extend([(31 * place + 17 * len(inputs.counts) + seed) % vocab_size for place in places])
    inputs.positions.extend(places)
    inputs.slots.extend([table[place // block_size] * block_size + place % block_size for place in places])
    inputs.counts.append(count)
    inputs.contexts.append(start + count)
    inputs.tables.append(table)
    inputs.rows.append(len(inputs.tokens) - 1)
