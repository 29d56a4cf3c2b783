"""A given draft of an answer: how far the answer follows it, and how likely it goes on doing so.

An answer follows its draft from the beginning. Where it takes another token, that one is first taken for a replacement:
both go on behind it. If they do not, the place is lost until the answer's last few tokens are found together further
on in the draft.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence

from headgate.engine.speculation.odds import Odds, run

_AGREEING = 3
"""Tokens by which a lost place is found again: fewer are alike by chance too often."""
_CODE = f"utf-32-{'le' if sys.byteorder == 'little' else 'be'}"


class Draft:
    """What one choice has made of its draft so far. The step thread's own."""

    def __init__(self, tokens: Sequence[int], start: int) -> None:
        """`tokens`: the draft; `start`: of the answer in its sequence."""
        self._tokens = tokens
        self._text = text_of(tokens)
        self._start = start
        self._place: int | None = 0  # of the draft's token that may be the answer's next
        self._guessed = True  # whether the tokens before that do not say so
        self._behind = 0  # the draft before this is not looked for any more
        self._first, self._further = Odds(1, 1), Odds(3, 1)
        self._proposed = bytearray(len(tokens))  # 1 where a token was: places may lie before what was, too
        self._checked = 0
        self.accepted = 0
        """Tokens of the answer that were proposed."""

    @property
    def rejected(self) -> int:
        """Tokens of the draft that were proposed, and are not the answer's."""
        return self._checked - self.accepted

    @property
    def left(self) -> int:
        """Tokens that may be proposed now; none while the place is lost."""
        return 0 if self._place is None else len(self._tokens) - self._place

    @property
    def first(self) -> float:
        """How likely the next proposed token is the answer's."""
        return (self._first if self._guessed else self._further).share

    def expected(self, count: int) -> float:
        """How many of the next `count` proposed tokens are the answer's, probably."""
        return self.first * run(self._further.share, count)

    def propose(self, count: int) -> Sequence[int]:
        """The tokens that may come next, at most so many."""
        assert self._place is not None, "there is nothing to propose where the place is lost"
        return self._tokens[self._place : self._place + count]

    def follow(self, sequence: Sequence[int], new: int, proposed: int = 0) -> None:
        """The answer has grown.

        Args:
            sequence: prompt and answer.
            new: how many of its last tokens are new. None although some were proposed: nothing is proposed any more.
            proposed: how many tokens were proposed for their places.
        """
        if proposed:
            assert self._place is not None
            end = self._place + proposed
            self._checked += self._proposed.count(0, self._place, end)
            self._proposed[self._place : end] = b"\1" * proposed
            if not new:
                self._place, self._behind = None, len(self._tokens)
        for number, at in enumerate(range(len(sequence) - new, len(sequence))):
            if self._place is None:
                break
            agrees = self._place < len(self._tokens) and self._tokens[self._place] == sequence[at]
            self.accepted += agrees and number < proposed
            self._go_on(self._place, agrees=agrees)
        if self._place is None:
            self._find(sequence)

    def _go_on(self, place: int, *, agrees: bool) -> None:
        (self._first if self._guessed else self._further).see(so=agrees)
        if agrees:
            self._place = self._behind = place + 1
        else:
            self._place = None if self._guessed else place + 1
        self._guessed = not agrees

    def _find(self, sequence: Sequence[int]) -> None:
        if len(sequence) - self._start < _AGREEING or self._behind + _AGREEING >= len(self._tokens):
            return
        at = self._text.find(text_of(sequence[-_AGREEING:]), self._behind)
        if at >= 0:
            self._place, self._guessed = at + _AGREEING, True


def text_of(tokens: Sequence[int]) -> str:
    """A code point for each token; there are more of them than any vocabulary has tokens.

    A string is searched by whole ones. Bytes would be found across the ends of numbers too, in some drafts at nearly
    every place, and a step would wait for that.
    """
    return array("I", tokens).tobytes().decode(_CODE, "surrogatepass")
