"""A guess at how an answer goes on: as its prompt or itself did the last time that its latest tokens came.

Answers repeat what they were given: names, lines of code, sentences of a document. Nothing has to be computed for such
a guess, so that each sequence may have one.
"""

from __future__ import annotations

from collections.abc import Sequence

from headgate.engine.speculation.draft import text_of
from headgate.engine.speculation.odds import Odds, run

_ALIKE = 3
"""Tokens that have to be the same: fewer are by chance too often."""
_FAR = 16384
"""Tokens of a prompt that are looked through at most, from its end: some ten microseconds."""


class Lookup:
    """Implements Guess for one sequence. The step thread's own."""

    __slots__ = ("_first", "_found", "_further", "_place", "_prompt", "_text", "_tokens")

    def __init__(self, prompt: int, first: Odds, further: Odds) -> None:
        """`prompt`: length of the sequence's prompt. `first`: that a place which was found is right; `further`: that
        one goes on being right.
        """
        self._prompt = prompt
        self._tokens: Sequence[int] = ()
        self._text = ""  # of the prompt, made when it is first looked through
        self._place: int | None = None  # of the token that may come next
        self._found = False  # whether nothing but the tokens before it says so yet
        self._first, self._further = first, further

    @property
    def left(self) -> int:
        """Tokens that may be proposed now."""
        return 0 if self._place is None else len(self._tokens) - self._place

    @property
    def first(self) -> float:
        """See Guess."""
        return (self._first if self._found else self._further).share

    def expected(self, count: int) -> float:
        """See Guess."""
        return self.first * run(self._further.share, count)

    def propose(self, count: int) -> Sequence[int]:
        """The tokens that may come next, at most so many."""
        assert self._place is not None, "there is nothing to propose where nothing was found"
        return self._tokens[self._place : self._place + count]

    def follow(self, tokens: Sequence[int], new: int) -> None:
        """The answer has grown. `tokens`: prompt and answer, of which the last `new` are new."""
        self._tokens = tokens
        for at in range(len(tokens) - new, len(tokens)):
            if self._place is None:
                break
            agrees = tokens[self._place] == tokens[at]
            (self._first if self._found else self._further).see(so=agrees)
            self._found = False
            self._place = self._place + 1 if agrees else None
        if self._place is None and len(tokens) - self._prompt >= _ALIKE:
            self._find()

    def _find(self) -> None:
        latest = text_of(self._tokens[-_ALIKE:])
        answer = text_of(self._tokens[self._prompt :])
        # What is found has to end before the latest token.
        at = answer.rfind(latest, 0, len(answer) - 1) + self._prompt
        if at < self._prompt:
            if not self._text:
                self._text = text_of(self._tokens[: self._prompt])
            at = self._text.rfind(latest, max(0, self._prompt - _FAR))
            if at < 0:
                return
        self._place, self._found = at + _ALIKE, True
