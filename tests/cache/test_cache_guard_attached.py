"""What is said of one thing here and of another there, what is compared by another scale or with something else, and
how often: near misses that once passed, and beside them what means the same."""

from __future__ import annotations

import pytest
from verdicts import check


@pytest.mark.parametrize(("kind", "stored", "asked"), [
    # Which of two does not.
    ("order", "Why does my kiln glow but not heat?", "my kiln heats but doesn't glow, why"),
    ("order", "The buzzer works but the lamp doesn't light", "Why is my buzzer not sounding when the lamp lights?"),
    ("order", "Do you sell the reel for this kite without the kite?", "Can I buy the kite without the reel?"),
    # Who asks.
    ("order", "What can I ask the parents as a teacher?", "What questions should I ask the teacher?"),
    # Another scale.
    ("aspect", "Which is the deepest lake in Chile?", "what's the largest lake in Chile"),
    ("aspect", "Is the Rhone longer than the Loire?", "Is the Rhone wider than the Loire?"),
    # The difference from something else.
    ("aspect", "What is the difference between a crow and a raven?", "raven vs rook"),
    ("aspect", "loom vs spindle difference", "What's the difference between a spindle and a distaff?"),
    # How many there are, which they are.
    ("answer", "How many lakes feed the Nile?", "Which lakes feed the Nile?"),
    # Every day, every Monday.
    ("dates", "Run the script every day at 4 am", "Run the script every Monday at 4 am"),
    ("dates", "water the ferns daily, please", "water the ferns each Sunday, please"),
])  # fmt: skip
def test_what_is_said_of_something_else_is_refused(kind: str, stored: str, asked: str) -> None:
    assert check(stored, asked) == kind
    assert check(asked, stored) == kind


@pytest.mark.parametrize(("stored", "asked"), [
    # One thing is denied of one thing, wherever the denial stands.
    ("Why does my dough not rise?", "why doesn't my dough rise"),
    ("which breeds of goat don't climb", "which goat breeds don't climb"),
    ("On my phone I can't paste what I copied", "copy and paste not working on my phone"),
    ("Is it better to eat a pear with or without the skin?", "Pear with skin or without, which is better?"),
    # Nobody is a tourist visa, nor a date.
    ("Can I work in Peru on a tourist visa?", "May I work in Peru during a stay as a tourist?"),
    ("I type a part number and Excel makes a date out of it", "Excel shows the part number I enter as a date"),
    # One scale in other words; what is compared with nothing.
    ("Which is the tallest peak in Chile?", "highest peak in Chile"),
    ("How do I make a deck with pictures smaller in file size?", "lighter deck file with pictures"),
    ("Why is the list no longer empty?", "Why does the list keep values from earlier?"),
    # The same two in other words.
    ("difference between a marathon and an ultramarathon", "ultra vs marathon how do they differ"),
    ("PO vs invoice, what sets them apart", "difference between purchase order and invoice"),
    ("How many frames per second for a slow film?", "which frame rate for a slow film"),
    ("What happens every Monday of each month?", "Every Monday, what happens?"),
])  # fmt: skip
def test_what_is_said_of_the_same_is_not_refused(stored: str, asked: str) -> None:
    assert check(stored, asked) is None
    assert check(asked, stored) is None
