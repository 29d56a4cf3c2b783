"""Answers in canonical form: what is the same, what differs, and where form does not tell."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.cache.audits.canonical import canonical, same_answer


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("42", "42.0"),
        ("42", "**42**."),
        ("1,000", "1000"),
        ("+7", "7"),
        ("The answer is 42.", "42"),
        ("Answer: Paris", "paris!"),
        ("“Paris”", "Paris"),
        ("it's  the   Louvre", "The Louvre"),
        ("ﬁle", "file"),
        ('{"a": 1, "b": [2]}', '{"b":[2.0],"a":1}'),
        ('```json\n{"a": "x  y"}\n```', '{"a": "x y"}'),
        ('<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>', '{"arguments": {}, "name": "f"}'),
        ("- red\n- blue", "* Blue\n* Red"),
        ("red, blue", "Blue, red."),
        ("1. mix\n2. bake", "1) Mix\n2) Bake"),
        ("The delivery will come on Monday morning.", "the delivery will come on monday morning"),
    ],
)
def test_the_same_answer_in_another_form(one: str, other: str) -> None:
    assert same_answer(one, other, question="Which ones?") is True


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("42", "43"),
        ("1,000", "1.000"),
        ("Paris", "Lyon"),
        ("north", "not north"),
        ('{"a": 1}', '{"a": "1"}'),
        ('{"a": true}', '{"a": 1}'),
        ('{"a": [1, 2]}', '{"a": [2, 1]}'),
        ('{"a": "Red"}', '{"a": "red"}'),
        ("- red\n- blue", "- red\n- green"),
        ("1. mix\n2. bake", "1. bake\n2. mix"),
        ("red, blue", "red, blue, blue"),
    ],
)
def test_another_answer_of_the_same_form(one: str, other: str) -> None:
    assert same_answer(one, other, question="Which ones?") is False


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("42", "You get 42 if you add them."),
        ("Paris", "The capital of France is the city of Paris."),
        ("The parcel comes on Monday if all goes well.", "If all goes well it will be there on Monday."),
        ("1.5", "1.50"),
        ("", ""),
        ("...", "!"),
        ("{not json at all, just braces}", "{other braces, and words in them}"),
    ],
)
def test_form_does_not_always_tell(one: str, other: str) -> None:
    assert same_answer(one, other) is None


def test_the_question_says_what_matters() -> None:
    assert same_answer("b, a", "a, b", question="Sort these from low to high: b, a") is False
    assert same_answer("- b\n- a", "- a\n- b", question="Name the cities in the order I visited them") is False
    assert same_answer("LOUD", "loud", question="Write it in upper case") is False
    assert same_answer("LOUD", "loud", question="What is the opposite of quiet?") is True


@given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=40))
def test_it_is_symmetric_and_sure_of_equal_texts(one: str, other: str, question: str) -> None:
    assert same_answer(one, other, question=question) == same_answer(other, one, question=question)
    assert same_answer(one, one, question=question) is not False


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda x: st.lists(x, max_size=3)))
def test_json_survives_being_written_another_way(value: object) -> None:
    wrapped = {"b": value, "a": 1}
    other = json.dumps(dict(reversed(wrapped.items())), indent=2)
    assert canonical(json.dumps(wrapped)) == canonical(other)


def test_numbers_too_large_to_write_out_are_compared_all_the_same() -> None:
    assert same_answer("9e999999999", "9e999999998") is False
    assert same_answer('{"a": 9e999999}', '{"a": 9e999998}') is False
