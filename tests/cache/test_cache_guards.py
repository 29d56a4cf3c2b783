import time

import pytest

from headgate.cache.guards import GUARDS, check

NEAR_MISSES = [
    ("What happened in 2019?", "What happened in 2020?", "numbers"),
    ("Write three tips for sleeping", "Write four tips for sleeping", "numbers"),
    ("Convert 90 min to hours", "Convert 9 min to hours", "numbers"),
    ("How long is 5 km?", "How long is 5 miles?", "numbers"),
    ("What is new in Python 3.1", "What is new in Python 3.10", "numbers"),
    ("What is .5 of it", "What is 5 of it", "numbers"),
    ("Who was the first king of Spain?", "Who was the second king of Spain?", "numbers"),
    ("Is the shop open on Monday?", "Is the shop open on Tuesday?", "dates"),
    ("What is the weather like in June", "What is the weather like in July", "dates"),
    ("Move the meeting to 3 pm", "Move the meeting to 3 am", "dates"),
    ("Events of 2024-05-01", "Events of 2024-05-02", "dates"),
    ('Translate "good morning"', 'Translate "good evening"', "quoted"),
    ("What does 'break a leg' mean", "What does 'break the ice' mean", "quoted"),
    ("What does `git reset` do", "What does `git revert` do", "quoted code"),
    ("Explain user_id in the schema", "Explain team_id in the schema", "code"),
    ("How do I learn C++", "How do I learn C#", "code"),
    ("What is 3 + 4", "What is 3 - 4", "code"),
    ("What is 2*(3+4)", "What is 2*3+4", "code"),
    ("What is 5!", "What is 5", "code"),
    ("What does tar -x do", "What does tar -c do", "code"),
    ("What is the capital of France?", "What is the capital of Spain?", "names"),
    ("Did Alice pay Bob?", "Did Bob pay Alice?", "names"),
    ("How do I polish silver names", "How do I say Polish silver names", "names content"),
    ("Is it safe to polish a Polish sword", "Is it safe to Polish a polish sword", "names"),
    ("Is this mushroom safe to eat?", "Is this mushroom not safe to eat?", "negation"),
    ("Recipes with nuts", "Recipes without nuts", "negation"),
    ("Why do cats sleep", "Why don't cats sleep", "negation"),
    ("List every fruit", "List every fruit except apples", "negation"),
    ("I always lock the door, why", "I never lock the door, why", "negation"),
    ("How do I enable dark mode", "How do I disable dark mode", "polarity"),
    ("How to lock my account", "How to unlock my account", "polarity"),
    ("Ways to increase blood pressure", "Ways to decrease blood pressure", "polarity"),
    ("How do I add a user", "How do I remove a user", "polarity"),
    ("Should I buy gold", "Should I sell gold", "polarity"),
    ("What is the largest planet", "What is the smallest planet", "polarity"),
    ("When does the store open", "When does the store close", "polarity"),
    ("Is this claim fair", "Is this claim unfair", "polarity"),
    ("Cities with more than 5 people", "Cities with less than 5 people", "comparators"),
    ("Pick at least 2 colors", "Pick at most 2 colors", "comparators polarity"),
    ("Can all birds fly", "Can some birds fly", "quantifiers"),
    ("Do any snakes swim", "Do all snakes swim", "quantifiers"),
    ("Name a few poets", "Name few poets", "quantifiers"),
    ("train from here to there", "train from there to here", "direction"),
    ("convert miles to feet", "convert feet to miles", "direction"),
    ("is tea better than coffee", "is coffee better than tea", "direction"),
    ("do I brush before breakfast", "do I brush after breakfast", "polarity temporal"),
    ("Who is the mayor", "Who was the mayor", "temporal"),
    ("What did the team win", "What will the team win", "temporal"),
    ("Say hello in german", "Say hello in french", "language"),
    ("sort a list in python", "sort a list in java", "language"),
    ("Give the planets as json", "Give the planets as yaml", "format"),
    ("Explain gravity in one sentence", "Explain gravity in one paragraph", "format"),
    ("Explain gravity briefly", "Explain gravity in detail", "format"),
    ("Write a poem about rain", "Write a story about rain", "format"),
    ("Who built the tower", "When was the tower built", "temporal aspect"),
    ("What is the price of the tower", "What is the height of the tower", "aspect"),
    ("where do penguins live", "why do penguins live", "aspect"),
    ("how many moons does it have", "how much moons does it have", "aspect quantifiers"),
    ("a dog bites a man", "a man bites a dog", "order"),
    ("What do bees do", "What are bees", "content"),
    ("What is the matter", "What is matter", "content"),
    ("what does vitamin a do", "what does vitamin do", "content"),
    ("Tell me a joke", "What is a joke", "content aspect"),
    ("Name a planet", "Name planets", "content"),
    ("What is x²", "What is x2", "code content"),
    ("Convert 100 MB to bits", "Convert 100 Mb to bits", "numbers code"),
    ("How do you feel", "How do I feel", "content"),
    ("How do I look", "How to look", "content direction"),
    ("How can you help me", "How can I help me", "content"),
    ("What is the German word for please", "What is the German word for", "direction"),
    ("Translate thanks to German", "Translate to German", "direction"),
    ("How do you say hello", "How do you say", "content"),
    ("please", "kindly", "content"),
    ("How do I boil eggs", "How do I fry eggs", "content"),
    ("Is my garden big", "Is your garden big", "content"),
    ("What is in my garden", "What is in your garden", "direction"),
    ("You are happy", "You are happy?", "aspect"),
    ("def f():\n    return 1\nfix", "def f():\n  return 1\nfix", "code"),
]

RESTATEMENTS = [
    ("What is the capital of France?", "what is the capital of france"),
    ("What is the capital of France?", "What's the capital of France?"),
    ("What is the capital of France?", "Please tell me what the capital of France is."),
    ("What is the capital of France?", "Tell me the capital of France"),
    ("What is the capital of France?", "Could you tell me the capital of France, please?"),
    ("What is the capital of France?", "Hi! What is the capital of France? Thanks!"),
    ("What is the capital of France?", "What is France's capital?"),
    ("What is the capital of France?", "WHAT IS THE CAPITAL OF FRANCE"),
    ("How do I reset my password?", "How can I reset my password?"),
    ("How do I reset my password?", "how to reset my password"),
    ("How do I reset my password?", "Can you tell me how to reset my password?"),
    ("How do I reset my password?", "I would like to know how to reset my password"),
    ("How does photosynthesis work?", "Tell me how photosynthesis works"),
    ("What does osmosis mean?", "What is the meaning of osmosis?"),
    ("Explain recursion", "Can you explain recursion please"),
    ("Convert 90 minutes to seconds", "convert 1.5 hours to seconds"),
    ("Name 3 colours", "Please name three colors"),
    ("What costs $5,000", "What costs 5000 dollars"),
    ("What is a hundred and five plus two", "what is 105 plus 2"),
    ("List twenty-five animals", "List 25 animals"),
    ("Why don't cats like water?", "Why do not cats like water?"),
    ("Is the shop open at 3 pm on Mondays", "is the shop open at 3:00 PM on Monday"),
    ("What is the biggest ocean on earth", "What is the largest ocean on earth?"),
    ("Write a haiku about the sea", "Write a haiku about sea"),
    ("What is 12 * 7?", "what is 12 * 7"),
    ("Summarise the plot of Hamlet", "Summarize the plot of Hamlet, please"),
]


@pytest.mark.parametrize(("stored", "asked", "guards"), NEAR_MISSES)
def test_near_miss_is_held_back(stored: str, asked: str, guards: str) -> None:
    assert check(stored, asked) in guards.split()
    assert check(asked, stored) in guards.split()


@pytest.mark.parametrize(("stored", "asked"), RESTATEMENTS)
def test_restatement_passes(stored: str, asked: str) -> None:
    assert check(stored, asked) is None
    assert check(asked, stored) is None


def test_every_guard_is_the_one_that_stops_something() -> None:
    named = {check(stored, asked) for stored, asked, _ in NEAR_MISSES}
    assert named == {name for name, _ in GUARDS}


def test_a_check_is_cheap() -> None:
    stored = "Please explain how the 3 largest rivers of France flow from the Alps to the sea in one sentence. " * 3
    asked = stored.replace("rivers", "lakes")
    check(stored, asked)
    best = min(_seconds(stored, asked) for _ in range(20))
    # All sixteen guards and both readings; 0.2 ms each is the budget.
    assert best < 0.0002 * len(GUARDS)


def _seconds(stored: str, asked: str) -> float:
    start = time.perf_counter()
    check(stored, asked)
    return time.perf_counter() - start
