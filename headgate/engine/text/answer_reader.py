"""An answer as it is read: what was thought, text, and calls of functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headgate.engine.text.reasoning import ReasoningReader
from headgate.engine.text.tool_calls import Said, ToolCallReader


class AnswerReader(Protocol):
    """Reads one choice. What it says does not depend on how the text is cut."""

    @property
    def tokens(self) -> int:
        """Tokens of what was thought."""
        ...

    @property
    def calls(self) -> int:
        """Calls that were told of."""
        ...

    @property
    def full(self) -> bool:
        """Whether nothing counts any more: after as many calls as there may be, and after a stop string."""
        ...

    @property
    def stop(self) -> str | None:
        """The stop string that ended it, of a reader that looks for them."""
        ...

    def push(self, text: str, token_ids: Sequence[int] = (), *, last: bool = False) -> Sequence[Said]:
        """What a piece says, in its order; in each thoughts come first, then text, then calls. `last`: no more."""
        ...


class MarkedReader:
    """An answer that is one text: thoughts before it, and calls in it, have marks around them."""

    def __init__(self, thoughts: ReasoningReader | None, calls: ToolCallReader | None) -> None:
        """None: of a model that does not think, or may not call."""
        self._thoughts = thoughts
        self._calls = calls
        self.full = False
        """Whether as many calls as there may be have come to their end."""
        self.stop = None

    @property
    def tokens(self) -> int:
        """Tokens of what was thought."""
        return 0 if self._thoughts is None else self._thoughts.tokens

    @property
    def calls(self) -> int:
        """Calls that were told of."""
        return 0 if self._calls is None else self._calls.calls

    def push(self, text: str, token_ids: Sequence[int] = (), *, last: bool = False) -> Sequence[Said]:
        """What a piece says. `last`: no more comes."""
        reasoning = ""
        if self._thoughts is not None:
            reasoning, text = self._thoughts.push(text, token_ids, last=last)
        if self._calls is None:
            return (Said(text, reasoning=reasoning),)
        said = self._calls.push(text)
        # Asked now: what is cut has no end, and finishing forgets that it had begun.
        self.full = self._calls.full
        if not last:
            return (Said(said.text, said.calls, reasoning),)
        rest = self._calls.finish()
        return (Said(said.text + rest.text, said.calls + rest.calls, reasoning),)
