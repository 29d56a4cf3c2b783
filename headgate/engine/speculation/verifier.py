"""Which of the tokens that were chosen behind a draft's are the answer's."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from collections.abc import Set as AbstractSet


def holding(chosen: Seq[int], drafted: Seq[int], ends: AbstractSet[int]) -> int:
    """How many of the chosen tokens hold, by the rule that makes a draft cost no answer anything.

    Each token was chosen by what would have chosen it without a draft, from logits of the tokens before it, drafted
    ones among them. So the first one holds whatever was drafted, and each other one as long as the drafted token before
    it is what was chosen there and does not end the answer.

    Args:
        chosen: one more than there are drafted tokens: behind the known tokens, then behind each drafted one. -1 where
            nothing could be chosen.
        drafted: tokens that were proposed.
        ends: tokens after which the answer ends.

    Returns:
        From 0, where not even the first could be chosen, to all of them.
    """
    if chosen[0] < 0:
        return 0
    count = 1
    for token, guess in zip(chosen, drafted, strict=False):
        if token != guess or token in ends or chosen[count] < 0:
            break
        count += 1
    return count
