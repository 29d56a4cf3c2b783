"""How likely proposed tokens are an answer's, by how it went of late."""

from __future__ import annotations

_REMEMBERED = 32.0
"""About how many tokens the odds are made of, the latest ones."""


class Odds:
    """How often something was so of late, from a guess on."""

    __slots__ = ("_no", "_yes")

    def __init__(self, yes: float, no: float) -> None:
        self._yes, self._no = yes, no

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return self._yes / (self._yes + self._no)

    def see(self, *, so: bool) -> None:
        """Once more."""
        if so:
            self._yes += 1
        else:
            self._no += 1
        if self._yes + self._no > _REMEMBERED:
            self._yes /= 2
            self._no /= 2


def run(share: float, count: int) -> float:
    """How many of `count` tokens come before one that is wrong, and the first of these, if each is right so often.

    That is 1 + share + … + share^(count - 1): the first one is taken to be right.
    """
    # 1 after hundreds of right tokens in a row: what was wrong before them has been halved away.
    return count if share == 1 else (1 - share**count) / (1 - share)
