"""How likely proposed tokens are an answer's, by how it went of late: in this answer, and in those before it."""

from __future__ import annotations

_REMEMBERED = 32.0
"""About how many tokens the odds are made of, the latest ones."""
_TOLD = 8
"""Tokens of an answer that count for those after it: a long one would drown out the others."""
_FORGOTTEN = 1 / 64
"""Part of what is known that each new answer is taken to be unlike."""


class Odds:
    """How often something was so of late, from a guess on."""

    __slots__ = ("_no", "_prior", "_told", "_yes")

    def __init__(self, yes: float, no: float, prior: Prior | None = None) -> None:
        """`prior`: what is to know of it for other answers."""
        self._yes, self._no = yes, no
        self._prior, self._told = prior, 0

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return self._yes / (self._yes + self._no)

    def see(self, *, so: bool) -> None:
        """Once more."""
        if self._prior is not None and self._told < _TOLD:
            self._told += 1
            self._prior.see(so=so)
        if so:
            self._yes += 1
        else:
            self._no += 1
        if self._yes + self._no > _REMEMBERED:
            self._yes /= 2
            self._no /= 2


class Prior(Odds):
    """How often something was so in the latest answers, from a guess on: where the odds of the next one begin.

    With each answer it goes back to the guess by a little. So what was never so is tried now and then: others may ask.
    """

    __slots__ = ("_guess",)

    def __init__(self, yes: float, no: float) -> None:
        super().__init__(yes, no)
        self._guess = yes, no

    def begin(self) -> Odds:
        """The odds of one more answer, which weigh as much as the guess."""
        yes, no = self._guess
        self._yes += (yes - self._yes) * _FORGOTTEN
        self._no += (no - self._no) * _FORGOTTEN
        return Odds((yes + no) * self.share, (yes + no) * (1 - self.share), self)


def run(share: float, count: int) -> float:
    """How many of `count` tokens come before one that is wrong, and the first of these, if each is right so often.

    That is 1 + share + … + share^(count - 1): the first one is taken to be right.
    """
    # 1 after hundreds of right tokens in a row: what was wrong before them has been halved away.
    return count if share == 1 else (1 - share**count) / (1 - share)
