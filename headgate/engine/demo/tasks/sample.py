"""What a task, a family of tasks and a sample are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from headgate.engine.demo.tasks.draw import BEYOND, Draw, Split
from headgate.engine.demo.tasks.grading import Grading, written

Tools = tuple[Mapping[str, Any], ...]
"""Function tools in OpenAI's form: `{"type": "function", "function": {"name", "description", "parameters"}}`."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation; `role` is `system`, `user` or `assistant`."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Task:
    """One question with its reference answer, before it becomes a conversation.

    `content` is the canonical form of what is asked, whatever the wording: the same content has the same answer. Its
    hash decides the split, so the same content never occurs in two of them. Where the answers are a closed list, the
    content includes the wording. `question` is the prompt without what is asked about, where that can be told apart:
    what a user would ask next who has already sent the rest. `working` is what a model had better write first, where
    an answer takes more than one look.
    """

    prompt: str
    answer: str
    content: str
    tools: Tools = ()
    question: str = ""
    working: str = ""

    @property
    def written(self) -> str:
        """What a model is to write: the working, if there is one, and the answer."""
        return written(self.working, self.answer)


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of task: its name, how one is made, its difficulties (1..levels) and its share of the mixture.

    `beyond`: it also has the level `BEYOND`, in the test split alone. A closed list of questions has none: there is
    nothing to make longer.
    """

    name: str
    make: Callable[[Draw], Task]
    levels: int = 3
    weight: float = 1.0
    grading: Grading = "text"
    beyond: bool = True

    @property
    def hardest(self) -> int:
        """Its highest level, `BEYOND` if it has that."""
        return BEYOND if self.beyond else self.levels


@dataclass(frozen=True, slots=True)
class Sample:
    """A conversation that ends with a user turn, and the answer that is expected next, perhaps after some working."""

    messages: tuple[Message, ...]
    answer: str
    family: str
    difficulty: int
    content: str
    split: Split
    grading: Grading = "text"
    tools: Tools = ()
    working: str = ""

    @property
    def prompt(self) -> str:
        """The last user text."""
        return self.messages[-1].content

    @property
    def conversation(self) -> tuple[list[dict[str, str]], list[Mapping[str, Any]] | None]:
        """Messages and tools as chat templates are given them; None where there are no tools."""
        return [{"role": turn.role, "content": turn.content} for turn in self.messages], list(self.tools) or None

    @property
    def written(self) -> str:
        """What a model is to write: the working, if there is one, and the answer."""
        return written(self.working, self.answer)
