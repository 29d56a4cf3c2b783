"""Pairs that guards once refused wrongly, and beside each the near misses that they still refuse."""

from __future__ import annotations

import pytest
from verdicts import check

from headgate.cache.freshness import time_sensitive


@pytest.mark.parametrize(("stored", "asked"), [
    # Yes or no denies nothing, nor does who does not know.
    ("Do bats hibernate?", "bats hibernating, yes or no"),
    ("Where is the key to the shed?", "I don't know where the key to the shed is"),
    ("How do I find my locker?", "No idea how I find my locker"),
    ("How do a crow and a raven differ?", "What sets a crow apart from a raven?"),
    ("How much cash can I withdraw a day?", "How much cash can I take out per day?"),
    # Apostrophes, dots and signs that others write as words.
    ("What does my parents' policy pay for?", "What does the policy of my parents pay for?"),
    ("How do I open a .docx file?", "How do I open a docx file?"),
    ("Is tea + milk healthier than tea?", "Is tea plus milk healthier than tea?"),
    ("Where is @ on a Swiss keyboard?", "Where is the at sign on a Swiss keyboard?"),
    ("Which train goes Rome → Oslo?", "Which train goes from Rome to Oslo?"),
    # One should, you should; my toddler's hat is his.
    ("Should I soak lentils?", "Should you soak lentils?"),
    ("May I keep a goat in my garden?", "Could I keep a goat in my garden?"),
    ("How often should I wash my jeans?", "How often should you wash your jeans?"),
    ("How do I get my parrot to leave my feathers alone?", "How do I get my parrot to leave its feathers alone?"),
    ("I've got a call from IT, is it genuine?", "Is a call from IT genuine?"),
    ("Is a child of ten too old for naps?", "Is a ten year old too old for naps?"),
    # Words that say what a thing is, or a string of nouns, put nobody in another's place.
    ("How do I create a chart in Excel?", "excel chart create"),
    ("My concert was cancelled. Do I get compensation?", "Do I get compensation for a cancelled concert?"),
    ("How do I repair the zip of my tent if it's torn?", "torn zip on the tent how to repair"),
])  # fmt: skip
def test_what_is_meant_alike_is_not_refused(stored: str, asked: str) -> None:
    assert check(stored, asked) is None
    assert check(asked, stored) is None


@pytest.mark.parametrize(("stored", "asked"), [
    ("Do bats hibernate?", "Do bats not hibernate?"),
    ("Do I know where the key is?", "Why do I not know where the key is?"),
    ("Which birds live there apart from crows?", "Which birds live there?"),
    ("Is tea + milk healthy?", "Is tea - milk healthy?"),
    ("What is 3 + 4?", "What is 3 * 4?"),
    ("Which train goes Rome → Oslo?", "Which train goes from Oslo to Rome?"),
    ("Is my locker open?", "Is your locker open?"),
    ("When does my lease end?", "When does your lease end?"),
    ("How do I wash his jeans?", "How do I wash her jeans?"),
    ("Is it safe to polish a Polish sword?", "Is it safe to Polish a polish sword?"),
    ("Is a child of ten too old for naps?", "Is a child of two too old for naps?"),
    ("Who owns it if it is in my name but my parents paid?", "Who owns it if it is in my parents' name but I paid?"),
    ("Can my boss enter my flat?", "Can I enter my boss's flat?"),
    ("May a teacher report a parent to the police?", "May a parent report a teacher to the police?"),
])  # fmt: skip
def test_what_is_meant_otherwise_still_is(stored: str, asked: str) -> None:
    assert check(stored, asked) is not None
    assert check(asked, stored) is not None


@pytest.mark.parametrize("text", [
    "How old is a child on starting school in Wales?",
    'What is the passive of "The nurse washed the baby yesterday"?',
    "Translate into German: the meeting takes place tomorrow",
])  # fmt: skip
def test_what_is_only_quoted_or_general_is_not_about_now(text: str) -> None:
    assert not time_sensitive(text)


@pytest.mark.parametrize("text", [
    "How old is the king of Spain?",
    "How old is a Tesla share worth now?",
    "What does the nurse do tomorrow?",
    "Tell me more: does the meeting take place tomorrow?",
    'Who sings "Yesterday" on the show tonight?',
])  # fmt: skip
def test_what_is_asked_about_now_still_is(text: str) -> None:
    assert time_sensitive(text)
