"""What routing reads of a text, however long and strange it is: everybody waits meanwhile."""

import numpy as np
import pytest

from headgate.routing.core import cores
from headgate.routing.lexical import has_code
from headgate.routing.quality_features import surface
from headgate.routing.surface import surface as form
from headgate.routing.types import RouteFeatures


@pytest.mark.parametrize("before", ["", "Run this:\n", "\n\n\n", "x\n \t"])
@pytest.mark.parametrize("code", ["def run(x):", "class Runner:", "#include <map>", "import os", "public static int x"])
def test_code_at_the_beginning_of_a_line_is_told(before: str, code: str) -> None:
    assert has_code(f"{before}{code}\n  rest")
    assert not has_code(f"{before}say {code}")


def test_code_far_into_a_long_text_is_not_looked_for() -> None:
    assert has_code("word " * 10_000 + "\ndef run(x):")
    assert not has_code("word " * 100_000 + "\ndef run(x):")


@pytest.mark.parametrize(
    ("asked", "offered"),
    [
        ("red, green or blue", True),
        ("well-known or not known", True),
        ("--all or nothing", True),
        ("yes/no/maybe", True),
        ("one of these (a, b, c)", True),
        ("--- or y", False),
        ("yes/no", False),
        ("b" * 3000, False),
        ("a-" * 1500, False),
    ],
)
def test_a_choice_is_told_wherever_its_words_begin(asked: str, *, offered: bool) -> None:
    (at,) = np.nonzero(form(RouteFeatures(text="."), "red or blue") - form(RouteFeatures(text="."), "red so blue"))
    for before in ("", "(", "- "):
        assert bool(form(RouteFeatures(text=asked), before + asked)[at[0]]) is offered


# Each would take minutes to hours if every blank were where another search begins.
@pytest.mark.parametrize("blank", ["\n", " \n", " ", "\t"])
def test_blanks_without_end_are_read_once(blank: str) -> None:
    text = blank * 500_000
    assert not has_code(text)
    assert not cores(text)
    assert surface(RouteFeatures(text=text)).sum() > 0


def test_the_last_sentence_is_found_behind_many_that_say_nothing() -> None:
    blank = " \n" * 500_000
    assert cores(f"{blank}one two three") == ("one two three",)
