"""What a step computes of one sequence."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from headgate.engine.sequence import Sequence


@dataclass(slots=True)
class Chunk:
    """`count` tokens of a sequence from position `start` on. Never changed; not frozen, as for `Delta`."""

    sequence: Sequence
    start: int
    count: int
    drafted: Seq[int] = ()
    """The last of them, where they are not known but proposed."""

    @property
    def samples(self) -> bool:
        """Whether its known tokens end with the last one, whose logits give the next."""
        request = self.sequence.request
        if request.score or request.probe:
            return False
        return self.start + self.count - len(self.drafted) == len(self.sequence.tokens)

    @property
    def scored(self) -> range:
        """Positions whose logits score a token of the continuation that the request brought."""
        first = self.sequence.scores_from if self.sequence.request.score else self.start + self.count
        return range(max(self.start, first), self.start + self.count)
