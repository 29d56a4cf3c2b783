"""Texts about one thing that ask for two sides of it, or for its parts crosswise."""

from __future__ import annotations

import pytest
from verdicts import check


@pytest.mark.parametrize(("stored", "asked"), [
    ("The tour is ahead of schedule, what do we do?", "The tour is behind schedule, what do we do?"),
    ("When is it too early to prune roses?", "From when is it too late to prune roses?"),
    ("Is diesel safer than petrol?", "Is diesel cheaper than petrol?"),
    ("How do rooks and crows differ?", "Which are more common, rooks or crows?"),
    ("What sets a rook apart from a crow?", "Which is more common, a rook or a crow?"),
    ("I broke a borrowed lamp, am I insured?", "I lost a borrowed lamp, am I insured?"),
    ("Can I get a bus pass on Sundays?", "Can I use my bus pass on Sundays?"),
    ("Where do I find a gift code for the shop?", "Where do I enter a gift code in the shop?"),
    ("Good starter telescopes", "Good telescopes for an experienced observer"),
    ("Does lavender attract moths?", "Does lavender repel moths?"),
    ("How do I unhide a row in Excel?", "How do I make a row in Excel invisible?"),
    ("How do I close one tab?", "I have many tabs open, how do I close them all?"),
    ("Who first edited this page?", "Who edited this page most recently?"),
    ("Height of the tower in feet", "Height of the tower cm"),
])  # fmt: skip
def test_the_other_side_of_a_thing_is_another_question(stored: str, asked: str) -> None:
    assert check(stored, asked) is not None
    assert check(asked, stored) is not None


@pytest.mark.parametrize(("stored", "asked"), [
    ("How do I get a VPN to work on my phone?", "How do I use a VPN on my phone?"),
    ("How do I get a splinter out?", "What can I use to get a splinter out?"),
    ("How do I break a lease?", "How do I get out of a lease? I lost my job."),
    ("Is diesel safer than petrol?", "Is it safer to burn diesel or petrol?"),
])  # fmt: skip
def test_words_of_two_sides_that_are_not_asked_for_part_nothing(stored: str, asked: str) -> None:
    assert check(stored, asked) is None


@pytest.mark.parametrize(("stored", "asked"), [
    ("Can I use one voucher on two orders?", "Can I use two vouchers on one order?"),
    ("Can I use one voucher on two orders?", "can i use 2 vouchers on a single order"),
    ("Why does the music stop when the screen goes dark?", "Why does the screen go dark when the music stops?"),
    ("Who taught Epicurus?", "What did Epicurus teach?"),
    ("What eats wasps?", "What do wasps eat?"),
    ("What resolves a deadlock?", "What is a deadlock?"),
    ("What prevents scurvy?", "scurvy meaning"),
    ("May she visit us every day?", "May she visit us one day?"),
    ("Translate into German: I have an appointment.", "Translate into German: I had an appointment."),
])  # fmt: skip
def test_things_that_have_changed_places_are_another_question(stored: str, asked: str) -> None:
    assert check(stored, asked) is not None
    assert check(asked, stored) is not None


@pytest.mark.parametrize(("stored", "asked"), [
    ("Can I use one voucher on two orders?", "Can I use a single voucher on two orders?"),
    ("Why does the music stop when the screen goes dark?", "Why does my music stop when my screen goes dark?"),
    ("What does deadlock mean?", "What is the meaning of deadlock?"),
    ("How much can I draw in one day?", "How much can I draw every day?"),
    ("Translate into German: I had an appointment.", "I had an appointment. Translate that into German."),
])  # fmt: skip
def test_what_keeps_its_place_passes(stored: str, asked: str) -> None:
    assert check(stored, asked) is None
