import random
import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.engine.demo.tasks.classify import _BAD_VERDICTS, _GOOD_VERDICTS, sentiment, topic
from headgate.engine.demo.tasks.draw import BEYOND, SPLITS, Draw
from headgate.engine.demo.tasks.intent import _FRAMES, INTENTS, intent
from headgate.engine.demo.tasks.sample import Task

DRAWS = st.builds(
    lambda seed, case: Draw(random.Random(seed), random.Random(seed + 1), *case),
    st.integers(0, 1 << 40),
    st.sampled_from([*((level, split) for level in (1, 2, 3) for split in SPLITS), (BEYOND, "test")]),
)
FAMILIES = pytest.mark.parametrize("make", [sentiment, topic, intent])


@given(DRAWS)
@settings(max_examples=200, deadline=None)
def test_a_verdict_in_a_review_agrees_with_the_label(draw: Draw) -> None:
    task = sentiment(draw)
    text = task.content.lower()
    good = any(verdict.lower() in text for verdict in _GOOD_VERDICTS)
    bad = any(verdict.lower() in text for verdict in _BAD_VERDICTS)
    assert not (good and bad)
    assert task.answer in ("positive", "negative")
    if good or bad:
        assert task.answer == ("positive" if good else "negative")
    assert task.content in task.prompt


@given(DRAWS)
@settings(max_examples=200, deadline=None)
def test_topics_can_be_told_by_their_typical_words(draw: Draw) -> None:
    typical = {
        "sports": "match|goal|race|game|record|medal|penalty|half",
        "technology": "bug|memory|processor|cloud|software|code|internet|chip",
        "food": "garlic|cake|oil|vegetables|pasta|soup|sauce|butter",
        "travel": "resort|abroad|suitcase|ruins|flight|border|holiday|islands",
        "finance": "rates|dividend|loss|shares|debt|bonds|taxes|profit",
        "health": "infection|fever|medicine|pressure|pills|vaccine|arm|disease",
        "music": "song|album|concert|melody|festival|instruments|duet|waltz",
        "weather": "coast|temperatures|lightning|valley|north|gray|clouds|sunshine",
    }
    task = topic(draw)
    # Places of another topic ("concert hall") come before the first sentence's verb and are no evidence.
    text = re.sub(r"(concert hall|record shop|rain gauge)", "", task.content)
    scores = {label: len(re.findall(rf"\b({words})", text)) for label, words in typical.items()}
    assert scores[task.answer] == max(scores.values()) >= 1


@given(DRAWS)
@settings(max_examples=200, deadline=None)
def test_intents_are_those_of_the_frame_in_the_message(draw: Draw) -> None:
    task = intent(draw)
    found = {
        label
        for label, frames in _FRAMES.items()
        for frame in frames
        if re.search(re.sub(r"\\\{\w+\\\}", r"\\w+", re.escape(frame)) + r"[.?,]", task.content, re.IGNORECASE)
    }
    assert task.answer in found
    # A frame may contain another of its own label only.
    assert found == {task.answer}


def test_intents_have_enough_frames_and_none_twice() -> None:
    frames = [frame for label in INTENTS for frame in _FRAMES[label]]
    assert len(set(frames)) == len(frames)
    assert all(len(_FRAMES[label]) >= 10 for label in INTENTS)
    assert 12 <= len(INTENTS) <= 14


@given(DRAWS)
@settings(max_examples=200, deadline=None)
def test_labels_in_a_prompt_hold_the_right_one(draw: Draw) -> None:
    task = intent(draw)
    lines = [line for line in task.prompt.split("\n") if any(f"{label}, " in line for label in INTENTS)]
    assert all(task.answer in re.split(r"[:,] ", line) for line in lines)


@FAMILIES
def test_other_wording_keeps_content_and_answer(make: Callable[[Draw], Task]) -> None:
    for seed in range(60):
        first = Draw(random.Random(seed), random.Random(1), seed % 3 + 1, "train")
        task = make(first)
        again = make(Draw(random.Random(0), random.Random(2), seed % 3 + 1, "train", first.made))
        assert (again.content, again.answer) == (task.content, task.answer)
