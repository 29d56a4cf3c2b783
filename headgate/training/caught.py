"""Answers caught in a loop, and how to leave it: rows that teach a model to end what goes round in circles.

A small model that does not know how to go on may repeat a piece of a word until its limit. No right answer shows it a
way out, since none contains such a loop; a few rows that do, learned only where they end, are enough.
"""

from __future__ import annotations

import random

from headgate.training.batches import Encoded, last_answer

LONGEST_PERIOD = 3
"""Tokens of the piece that is repeated, at most."""
ROUNDS = (4, 12)
"""How often it is repeated, at least and at most: more often than any right answer repeats anything."""


def caught(row: Encoded, rng: random.Random) -> Encoded | None:
    """The row with its last answer cut off, its last tokens repeated, and ended there.

    Tokens before the cut are learned as they were and so is the token that ends the answer; the loop itself is only
    read. None where the last answer is shorter than two tokens and its end.
    """
    ids, answer = row
    start = last_answer(row)
    if len(ids) - start < 3:
        return None
    cut = rng.randint(start + 1, len(ids) - 1)
    period = rng.randint(1, min(LONGEST_PERIOD, cut - start))
    loop = ids[cut - period : cut] * rng.randint(*ROUNDS)
    return [*ids[:cut], *loop, ids[-1]], [*answer[:cut], *[False] * len(loop), True]
