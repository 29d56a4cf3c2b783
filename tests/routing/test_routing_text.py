"""What routing reads of a text, however long and strange it is: everybody waits meanwhile."""

import pytest

from headgate.routing.core import cores
from headgate.routing.lexical import has_code
from headgate.routing.quality_features import surface
from headgate.routing.types import RouteFeatures


@pytest.mark.parametrize("before", ["", "Run this:\n", "\n\n\n", "x\n \t"])
@pytest.mark.parametrize("code", ["def run(x):", "class Runner:", "#include <map>", "import os", "public static int x"])
def test_code_at_the_beginning_of_a_line_is_told(before: str, code: str) -> None:
    assert has_code(f"{before}{code}\n  rest")
    assert not has_code(f"{before}say {code}")


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
