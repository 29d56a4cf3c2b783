"""When the deeds of two texts happen, and who does them to whom: pairs written by hand, in both directions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from verdicts import check

from headgate.cache.guards import compare, reading_of
from headgate.cache.guards.reading import read, words_of
from headgate.cache.guards.tenses import clash, times_of


@pytest.mark.parametrize(("text", "verb", "time"), [
    ("How much rent did we pay in Lyon?", "pay", "past"),
    ("Which of the invoices from the spring did our office pay?", "pay", "past"),
    ("How much rent do we pay in Lyon?", "pay", "present"),
    ("Will the new office open on Monday?", "open", "future"),
    ("Is Ben going to sell the boat?", "sell", "future"),
    ("Who is working on the logo?", "work", "ongoing"),
    ("Who has been working on the logo?", "work", "lasting"),
    ("Who has worked on the logo?", "work", "done"),
    ("I've already worked on it", "work", "done"),
    ("Was the fence painted?", "paint", "past"),
    ("Has the fence been painted?", "paint", "done"),
    ("Who led the workshop?", "lead", "past"),
    ("Who leads the workshop?", "lead", "present"),
])  # fmt: skip
def test_the_time_of_a_verb_is_read_from_what_governs_it(text: str, verb: str, time: str) -> None:
    assert times_of(words_of(read(text)))[verb] == {time}


@pytest.mark.parametrize("text", [
    "How do I get the fence painted?",
    "Do I have to pay rent in advance?",
    "What should I have sorted out before I move?",
    "Painted fence, best colour",
])  # fmt: skip
def test_what_nothing_puts_into_a_time_is_in_none(text: str) -> None:
    assert not {"past", "done", "ongoing", "lasting", "future"} & {
        time for times in times_of(words_of(read(text))).values() for time in times
    }


@pytest.mark.parametrize(("stored", "asked"), [
    ("Who has worked on the garden plan?", "Who is working on the garden plan?"),
    ("Which designer has worked on our logo?", "Which designer is currently working on our logo?"),
    ("How much rent did we pay for the warehouse?", "How much rent do we pay for the warehouse?"),
    ("How much of the travel budget for Asia did we spend?", "How much of the travel budget for Asia will we spend?"),
    ("Did the plumber come over on Monday?", "Will the plumber come over on Monday?"),
    ("Which of the shops in the old town did close?", "Which of the shops in the old town will close?"),
    ("Has the bakery hired new people?", "Is the bakery hiring new people?"),
    ("Who led the pottery workshop?", "Who leads the pottery workshop?"),
    ("Why did the pump stop running?", "Why is the pump not going to stop running?"),
    ("Have you fed the horses?", "Are you going to feed the horses?"),
    ("Was the bridge being repaired over the winter?", "Is the bridge being repaired over the winter?"),
    ("Have they paid the painter?", "Will they pay the painter?"),
])  # fmt: skip
def test_the_same_deed_at_another_time_is_another_question(stored: str, asked: str) -> None:
    assert check(stored, asked) is not None
    assert check(asked, stored) is not None


@pytest.mark.parametrize(("stored", "asked"), [
    ("Why does my dog scratch the door?", "Why is my dog scratching the door?"),
    ("Have you sent the parcel to Rome?", "Did you send the parcel to Rome?"),
    ("When do we get our bonus?", "When will we get our bonus?"),
    ("I've lost my library card. What now?", "What should I do if I lose my library card?"),
    ("What do I do when I lost my keys?", "I have lost my keys, what do I do?"),
    ("Is it going to rain in Oslo on Sunday?", "Will it rain in Oslo on Sunday?"),
    ("Who painted Guernica?", "By whom was Guernica painted?"),
    ("Why has it been raining in Oslo so long?", "Why is it raining in Oslo so long?"),
    ("My order got rejected, why was it rejected?", "Why has my order been rejected?"),
    ("How do I get a job in Norway?", "I'm moving to Norway, how do I get a job there?"),
])  # fmt: skip
def test_one_time_in_other_words_is_no_conflict(stored: str, asked: str) -> None:
    assert check(stored, asked) is None
    assert check(asked, stored) is None


@given(st.text(max_size=60), st.text(max_size=60))
def test_times_clash_in_either_order_and_never_with_themselves(one: str, other: str) -> None:
    mine, yours = times_of(words_of(read(one))), times_of(words_of(read(other)))
    assert not clash(mine, mine)
    assert clash(mine, yours) == clash(yours, mine)


@pytest.mark.parametrize(("stored", "asked"), [
    ("My cousin is suing me over the fence", "I'm suing my cousin over the fence"),
    ("My dentist keeps calling me. What now?", "I keep calling my dentist. What now?"),
    ("My aunt has sued me, what happens next?", "I have sued my aunt, what happens next?"),
    ("My cousin lied to me. What should I do?", "I lied to my cousin. What should I do?"),
    ("My sister is waiting for me at the airport", "I'm waiting for my sister at the airport"),
    ("My uncle rents a garage from me. Who pays the repairs?", "I rent a garage from my uncle. Who pays the repairs?"),
    ("A neighbour is blackmailing me, what is the penalty?", "I'm blackmailing a neighbour, what is the penalty?"),
    ("Is my boss reading my letters?", "Am I reading my boss's letters?"),
])  # fmt: skip
def test_who_does_it_to_me_is_not_to_whom_i_do_it(stored: str, asked: str) -> None:
    assert check(stored, asked) is not None
    assert check(asked, stored) is not None


@pytest.mark.parametrize(("stored", "asked"), [
    ("My cousin is suing me over the fence. What now?", "What do I do now that my cousin is suing me over the fence?"),
    ("I am being sued by my cousin, what now?", "My cousin is suing me, what now?"),
    ("Is my visa extended?", "Can I get my visa extended?"),
    ("I am waiting for my sister, where can I park?", "Where can I park while waiting for my sister?"),
    ("My dog is barking at the postman", "How do I stop my dog barking at the postman?"),
    ("How do I get my landlord to fix the heating?", "My landlord is not fixing the heating, how do I make him?"),
])  # fmt: skip
def test_one_relation_told_by_the_same_side_is_no_conflict(stored: str, asked: str) -> None:
    assert "order" not in compare(reading_of(stored), reading_of(asked)).conflict
    assert "order" not in compare(reading_of(asked), reading_of(stored)).conflict
