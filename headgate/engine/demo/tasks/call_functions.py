"""The functions that the family `calls` knows: what they are made of and how their arguments are drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headgate.engine.demo.tasks.draw import Draw
from headgate.engine.demo.tasks.words import (
    ADJECTIVES,
    CITIES,
    FIRST_NAMES,
    MONTHS,
    NOUNS,
    THINGS,
)

Value = str | int


@dataclass(frozen=True, slots=True)
class Count:
    """Draws a whole number from `low` to `high`."""

    low: int
    high: int

    def __call__(self, draw: Draw) -> int:
        """A number, by content choice."""
        return draw.number(self.low, self.high)


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument: its key in the requests, the names it may have in a schema, and how its values are drawn.

    With a `clause` it is optional: the clause goes to the end of a request, or the argument is left out.
    """

    key: str
    names: tuple[str, ...]
    make: Callable[[Draw], Value]
    clause: str = ""
    options: tuple[str, ...] = ()

    @property
    def type(self) -> str:
        """Its type in the schema."""
        return "integer" if isinstance(self.make, Count) else "string"


@dataclass(frozen=True, slots=True)
class Function:
    """A function: its name is one of `verbs` and one of `nouns`. Functions of one `group` are easily mixed up.

    A request that starts with a small letter is an imperative and gets a polite frame; the others stand alone.
    """

    group: str
    verbs: tuple[str, ...]
    nouns: tuple[str, ...]
    description: str
    parameters: tuple[Parameter, ...]
    requests: tuple[str, ...]


def city_name(draw: Draw) -> str:
    """A city, an open slot."""
    return draw.value(CITIES)


def first_name(draw: Draw) -> str:
    """A first name, an open slot."""
    return draw.value(FIRST_NAMES)


def clock_time(draw: Draw) -> str:
    """A time such as 7:05."""
    return f"{draw.number(0, 23)}:{draw.number(0, 11) * 5:02d}"


def day_of_month(draw: Draw) -> str:
    """A date such as 3 May."""
    return f"{draw.number(1, 28)} {draw.pick(MONTHS)}"


def song_title(draw: Draw) -> str:
    """An adjective and a noun, capitalized."""
    return f"{draw.value(ADJECTIVES)} {draw.value(NOUNS)}".title()


def remark(draw: Draw) -> str:
    """A short sentence to send or to translate."""
    form = draw.pick(("the {} is ready", "bring the {}", "I am at the {}", "I found the {}", "where is the {}"))
    return form.format(draw.value(THINGS))


def chore(draw: Draw) -> str:
    """Something to be reminded of."""
    if draw.chance(0.4):
        return draw.pick(("call {}", "write to {}", "meet {}", "pay {}")).format(draw.value(FIRST_NAMES))
    return draw.pick(("buy the {}", "clean the {}", "bring the {}", "check the {}")).format(draw.value(THINGS))


def from_words(vocabulary: tuple[str, ...]) -> Callable[[Draw], str]:
    """A maker that fills an open slot."""
    return lambda draw: draw.value(vocabulary)


def one_of(options: tuple[str, ...]) -> Callable[[Draw], str]:
    """A maker that picks from a closed list."""
    return lambda draw: draw.pick(options)
