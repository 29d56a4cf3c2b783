"""What a task family makes, what a sample is, how it is split and how an answer is graded."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

Split = Literal["train", "test"]
Grading = Literal["text", "json"]
T = TypeVar("T")

TEST_SHARE = 10
"""One in so many contents belongs to the test split."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation; `role` is `system`, `user` or `assistant`."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Task:
    """One question with its reference answer, before it becomes a conversation.

    `content` is the canonical form of the slot values (and of the template where the answers are a closed list). Its
    hash decides the split, so the same content never occurs in both.
    """

    prompt: str
    answer: str
    content: str


@dataclass(frozen=True, slots=True)
class Sample:
    """A conversation that ends with a user turn, and the answer that is expected next."""

    messages: tuple[Message, ...]
    answer: str
    family: str
    difficulty: int
    content: str
    grading: Grading = "text"

    @property
    def prompt(self) -> str:
        """The last user text."""
        return self.messages[-1].content


class Draw:
    """The random choices of one task: a seeded generator, the difficulty, and the split whose templates may be used."""

    __slots__ = ("level", "rng", "split")

    def __init__(self, rng: random.Random, level: int, split: Split) -> None:
        self.rng = rng
        self.level = level
        self.split: Split = split

    def pick(self, items: Sequence[T]) -> T:
        """One item, uniformly."""
        return items[self.rng.randrange(len(items))]

    def some(self, items: Sequence[T], count: int) -> list[T]:
        """`count` different items in random order."""
        return self.rng.sample(items, count)

    def number(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, both included."""
        return self.rng.randint(low, high)

    def chance(self, probability: float) -> bool:
        """True with that probability."""
        return self.rng.random() < probability

    def phrase(self, templates: Sequence[str]) -> str:
        """One of an intent's templates. The last is held out: only the test split uses it.

        Now and then the first letter is written small, as people do.
        """
        last = len(templates) if self.split == "test" or len(templates) < 4 else len(templates) - 1
        text = templates[self.rng.randrange(last)]
        if self.chance(0.15) and text[:1].isalpha() and text[1:2].islower():
            text = text[0].lower() + text[1:]
        return text


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of task: its name, how one is made, its difficulties (1..levels) and its share of the mixture."""

    name: str
    make: Callable[[Draw], Task]
    levels: int = 3
    weight: float = 1.0
    grading: Grading = "text"


def split_of(family: str, content: str) -> Split:
    """The split a content belongs to: a BLAKE2b hash of family and content, the same on every machine."""
    digest = hashlib.blake2b(f"{family}\0{content}".encode(), digest_size=8).digest()
    return "test" if int.from_bytes(digest, "big") % TEST_SHARE == 0 else "train"


def grade(sample: Sample, text: str) -> bool:
    """Whether `text` is the reference answer: exact but for outer white space; JSON is compared as a structure."""
    if sample.grading == "text":
        return text.strip() == sample.answer
    try:
        given = json.loads(text)
    except ValueError:
        return False
    return _canonical(given) == _canonical(json.loads(sample.answer))


def _canonical(value: object) -> str:
    # Comparing texts, because Python's own == holds True for 1 and 1.0 for 1.
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
