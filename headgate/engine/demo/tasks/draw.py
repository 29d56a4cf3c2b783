"""The random choices of a task, kept apart by what they decide: its content and its wording.

Content choices are recorded. Replaying a record with other wording gives a paraphrase; replaying it with one choice
changed gives a near miss (see `variants`). So every family has both without a line of its own.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeVar

from headgate.engine.demo.tasks.loosen import loosened
from headgate.engine.demo.tasks.words import listed

Split = Literal["train", "calibration", "test"]
SPLITS: tuple[Split, ...] = ("train", "calibration", "test")
BEYOND = 4
"""The level that nothing is trained on: one notch harder by the knob of its family, and in the test split alone."""
T = TypeVar("T")

INVENTED = 0.5
"""Share of open slots that get a made-up word, so that copying is learned for any word and not for those known."""

PIECED = 0.4
"""Share of made-up words that are of given pieces, where there are any."""


@dataclass(frozen=True, slots=True)
class Variety:
    """What tasks may say beside their own words, so that a model trained on them knows more than those.

    Attributes:
        pieces: lower-case letters that some of the made-up words are of (`Draw.invented`).
        heads: those that such a word begins with where it gets a capital.
        loosened: share of the wordings that are said otherwise (`loosened`).
    """

    pieces: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()
    loosened: float = 0.0


PLAIN = Variety()

_ONSETS = listed(
    """b bl br c ch cl cr d dr f fl fr g gl gr h j k kl kn l m n p ph pl pr qu r s sc sh sk sl sm sn sp st str sw t th
    tr tw v w wh y z"""
)
_VOWELS = listed("a e i o u a e i o u ai au ea ee ie oa oo ou y")
_CODAS = ("", "", "", *listed("b ck d ft g k l ld lt m mp n nd ng nt p r rd rk rn rt s sh st t th x"))
_ENDINGS = ("", "", "", *listed("a berg by el er ford ia ing ley man o son ton ville wood y"))


def hashed(text: str, count: int) -> int:
    """A number below `count` from the BLAKE2b hash of the text, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") % count


def split_of(family: str, content: str) -> Split:
    """The split a content belongs to: one in ten to `test`, one in ten to `calibration`, the rest to `train`."""
    place = hashed(f"{family}\0{content}", 10)
    return "test" if place == 0 else "calibration" if place == 1 else "train"


def check_level(level: int, split: Split) -> None:
    """Raises `ValueError` for a level that no task of the split has."""
    if 1 <= level < BEYOND or (level == BEYOND and split == "test"):
        return
    accepted = f"1 to {BEYOND - 1}, and {BEYOND} in split 'test' alone, so that nothing is trained on it"
    raise ValueError(f"level {level} is not in split {split!r}; accepted: {accepted}")


@cache
def held(values: tuple[str, ...], split: Split) -> tuple[str, ...]:
    """The values of an open slot that a split may use: about 70, 10 and 20 % of them, disjoint, none empty.

    Raises `ValueError` with fewer than 10 values.
    """
    if len(values) < 10:
        raise ValueError(f"an open slot has {len(values)} values; 10 or more are needed to hold some out of training")
    order = sorted(values, key=lambda value: hashed(value, 1 << 60))
    test, calibration = len(order) // 5, len(order) // 10
    parts = {
        "test": order[:test],
        "calibration": order[test : test + calibration],
        "train": order[test + calibration :],
    }
    return tuple(sorted(parts[split]))


def held_templates(templates: Sequence[T], split: Split) -> Sequence[T]:
    """The wordings a split may use: the last sixth (at least one) is `test`'s, the one before `calibration`'s.

    Raises `ValueError` with fewer than 4 templates.
    """
    if len(templates) < 4:
        raise ValueError(f"an intent has {len(templates)} wordings; 4 or more are needed to hold some out of training")
    test = len(templates) - max(1, len(templates) // 6)
    parts = {"test": templates[test:], "calibration": templates[test - 1 : test], "train": templates[: test - 1]}
    return parts[split]


class Draw:
    """The choices of one task, at a difficulty `level` and for a `split`.

    Content: `pick`, `some`, `shuffled`, `number`, `chance`, `value`, `values`, `invented`. They decide what is asked
    and so the answer. Wording: `phrase`, `style`, `styled`. They must not change the answer.
    """

    __slots__ = ("_content", "_script", "_variety", "_wording", "given", "level", "made", "split")

    def __init__(
        self,
        content: random.Random,
        wording: random.Random,
        level: int,
        split: Split,
        script: Sequence[int] = (),
        variety: Variety = PLAIN,
    ) -> None:
        """`script` replays the content choices of an earlier draw (its `made`); after its end `content` decides.

        Raises `ValueError` for a level that the split does not have (see `check_level`).
        """
        check_level(level, split)
        self._content, self._wording, self._script, self._variety = content, wording, script, variety
        self.level = level
        self.split: Split = split
        self.made: list[int] = []
        """The content choices so far, each a number below the count of its alternatives."""
        self.given: int | None = None
        """How many of them made what is asked about; None until `settled`, and where a question has no such thing."""

    def settled(self) -> None:
        """Says that what is asked about stands, and only the question follows: another may be asked of the same."""
        self.given = len(self.made)

    def _below(self, count: int) -> int:
        place = len(self.made)
        choice = self._script[place] % count if place < len(self._script) else self._content.randrange(count)
        self.made.append(choice)
        return choice

    def pick(self, items: Sequence[T]) -> T:
        """One item, uniformly; every split has all of them. For closed sets: labels, kinds, known words."""
        return items[self._below(len(items))]

    def some(self, items: Sequence[T], count: int) -> list[T]:
        """`count` different items in random order; every split has all of them."""
        rest = list(items)
        return [rest.pop(self._below(len(rest))) for _ in range(count)]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """The items in random order."""
        return self.some(items, len(items))

    def number(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, both included."""
        return low + self._below(high - low + 1)

    def chance(self, probability: float) -> bool:
        """True with that probability, in steps of a thousandth."""
        return self._below(1000) < probability * 1000

    def value(self, vocabulary: tuple[str, ...]) -> str:
        """A word for an open slot (to be copied, not understood): other splits use other words of the vocabulary.

        Now and then it is a made-up word, with a capital if the vocabulary's words have one.
        """
        if self.chance(INVENTED):
            capital = vocabulary[0][0].isupper()
            word = self.invented(capital=capital)
            return word.capitalize() if capital else word
        return self.pick(held(vocabulary, self.split))

    def values(self, vocabulary: tuple[str, ...], count: int) -> list[str]:
        """`count` different words for open slots."""
        chosen: list[str] = []
        while len(chosen) < count:
            word = self.value(vocabulary)
            if word not in chosen:
                chosen.append(word)
        return chosen

    def invented(self, *, capital: bool = False) -> str:
        """A made-up lower-case word of one to three syllables, often ending like a name; no two splits share one.

        With `Variety.pieces` some of them are one to three of these instead, the first of its `heads` where the word is
        to get a `capital`.
        """
        while True:
            if self._variety.pieces and self.chance(PIECED):
                heads, pieces = self._variety.heads, self._variety.pieces
                first = self.pick(heads if capital and heads else pieces)
                word = first + "".join(self.pick(pieces) for _ in range(self.number(0, 2)))
            else:
                syllables = [self.pick(_ONSETS) + self.pick(_VOWELS) for _ in range(self.number(1, 3))]
                word = "".join(syllables) + self.pick(_CODAS) + self.pick(_ENDINGS)
            if len(word) > 2 and split_of("invented", word) == self.split:
                return word

    def phrase(self, templates: Sequence[str]) -> str:
        """One of an intent's wordings that the split may use (see `held_templates`).

        Now and then the first letter is written small, as people do.
        """
        text = self.style(held_templates(templates, self.split))
        if self._variety.loosened and self.styled(self._variety.loosened):
            text = loosened(text, self._wording)
        if self.styled(0.12) and text[:1].isalpha() and text[1:2].islower():
            text = text[0].lower() + text[1:]
        return text

    def style(self, items: Sequence[T]) -> T:
        """One item, uniformly, for something that does not change the answer."""
        return items[self._wording.randrange(len(items))]

    def styled(self, probability: float) -> bool:
        """True with that probability, for something that does not change the answer."""
        return self._wording.random() < probability
