"""Classification: the sentiment of a review, the topic of a text."""

from __future__ import annotations

from headgate.engine.demo.tasks.draw import BEYOND, Draw
from headgate.engine.demo.tasks.layout import ask
from headgate.engine.demo.tasks.sample import Task
from headgate.engine.demo.tasks.words import FIRST_NAMES, listed

_ASPECTS = {
    "restaurant": listed("food service soup menu dessert waiter pizza coffee salad atmosphere wine bread"),
    "hotel": listed("room bed breakfast pool view staff lobby shower location balcony hotel garden"),
    "film": listed("plot acting music ending story cast script film opening actor director"),
    "product": listed("battery screen sound design price keyboard camera quality case charger phone laptop"),
    "trip": listed("guide bus tour weather beach museum schedule driver boat walk city train"),
    "shop": listed("shop cashier selection website delivery packaging support parking offer advice"),
}
_FACTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "restaurant": (
        ("The soup was hot and fresh", "The waiter was friendly", "We got a free dessert", "The table was clean"),
        ("The soup was cold", "The waiter was rude", "We waited two hours for the food", "The table was dirty"),
    ),
    "hotel": (
        ("The room was clean and quiet", "The staff helped us", "The bed was soft", "We slept well"),
        ("The room was dirty and loud", "The staff ignored us", "The bed was broken", "We could not sleep"),
    ),
    "film": (
        ("I laughed a lot", "I saw it twice", "I liked every minute", "The actors did well"),
        ("I fell asleep", "I left before the end", "The story made no sense", "The actors did badly"),
    ),
    "product": (
        ("It works well", "The battery lasts all day", "The sound is clear", "It is easy to use"),
        ("It does not work", "The battery is empty after an hour", "It broke after a week", "It is hard to use"),
    ),
    "trip": (
        ("The guide knew everything", "The bus was on time", "We saw a lot", "The beach was clean"),
        ("The guide knew nothing", "The bus was late", "We saw almost nothing", "The beach was dirty"),
    ),
    "shop": (
        ("The delivery was fast", "They answered at once", "I found all I needed", "They fixed my problem"),
        ("The delivery was slow", "They never answered", "I found nothing I needed", "They ignored my problem"),
    ),
}
_GOOD = listed("""great excellent wonderful amazing fantastic lovely perfect superb brilliant nice pleasant impressive
outstanding good beautiful""")
_BAD = listed("""terrible awful horrible bad poor disappointing dreadful boring unpleasant annoying dull ugly
disgusting weak stupid""")
_GOOD_VERDICTS = (
    "I loved it",
    "I would come back any time",
    "Highly recommended",
    "It made my day",
    "Worth every cent",
    "I am very happy with it",
    "Five stars from me",
    "Best choice of the year",
    "I will buy here again",
    "I can only recommend it",
    "Thank you for everything",
    "I am so glad I tried it",
)
_BAD_VERDICTS = (
    "I hated it",
    "Never again",
    "I want my money back",
    "It ruined my day",
    "A waste of money",
    "I am very unhappy with it",
    "One star from me",
    "Worst choice of the year",
    "I will not buy here again",
    "I cannot recommend it",
    "Stay away from it",
    "I am so sorry I tried it",
)
_FRIENDS = ("My friend", "My sister", "My brother", "My wife", "My husband", "Everybody else", "My boss", "My son")
_DEGREES = ("", "", "really ", "very ", "quite ", "absolutely ", "simply ", "truly ", "so ")
_SENTIMENT = (
    "Is this review positive or negative?",
    "Classify the sentiment of this review as positive or negative",
    "What is the sentiment of this review?",
    "Sentiment:",
    "Is this positive or negative?",
    "Review: {text}\nSentiment:",
    "Tell me whether this review is positive or negative",
    "Is the writer of this review happy or not? Answer positive or negative.",
    "Decide if this text is positive or negative",
    "Text: {text}\nIs the sentiment positive or negative?",
    "Give the sentiment of this text (positive or negative)",
    "Read the review and name its sentiment. {text}",
    "How does the writer feel, positive or negative?",
    "Label this review as positive or negative",
    "Say whether the following text is positive or negative: {text}",
    "Which sentiment does this text have?",
    "Find the sentiment of this text:",
    "Name the sentiment of this review",
    "Is the sentiment of this text positive or negative?",
    "Read this review: {text}\nIs it positive or negative?",
)


def sentiment(draw: Draw) -> Task:
    """A short review. Level 1: one plain statement; 2: two, or a negated one; 3: mixed, where the verdict decides.

    Level 4: mixed, with two clauses that speak against the verdict.
    """
    positive = draw.chance(0.5)
    kind, part = draw.pick(tuple(_ASPECTS)), draw.number(0, 1)
    if draw.level == 1:
        text = _statement(draw, kind, part, positive)
        if draw.chance(0.3):
            text += f" {_verdict(draw, positive)}"
    elif draw.level == 2:
        form = draw.number(0, 3)
        if form == 0:
            text = f"{_statement(draw, kind, part, positive)} {_statement(draw, kind, 1 - part, positive)}"
        elif form == 1:
            # "Not terrible" alone is lukewarm, so praise by negation comes with a verdict.
            text = f"The {draw.pick(_ASPECTS[kind])} was not {draw.pick(_BAD if positive else _GOOD)}."
            text += f" {_verdict(draw, positive)}" if positive or draw.chance(0.5) else ""
        elif form == 2:
            text = f"{_verdict(draw, positive)} {_statement(draw, kind, part, positive)}"
        else:
            text = f"{_statement(draw, kind, part, positive)} {_statement(draw, kind, 1 - part, positive)}"
            text += f" {_verdict(draw, positive)}"
    else:
        text = _mixed(draw, kind, part, positive)
    label = "positive" if positive else "negative"
    return Task(ask(draw, _SENTIMENT, text, quotes=True), label, text)


def _mixed(draw: Draw, kind: str, part: int, positive: bool) -> str:
    """A review with both sides. The verdict, the writer's own view or what it turned out to be decides.

    Beyond level 3 it is always the verdict, and one more sentence speaks against it.
    """
    good, bad = draw.pick(_GOOD), draw.pick(_BAD)
    wanted, other = (good, bad) if positive else (bad, good)
    first, second = draw.pick(_ASPECTS[kind][part::2]), draw.pick(_ASPECTS[kind][1 - part :: 2])
    form = draw.number(0, 5) if draw.level < BEYOND else draw.pick((0, 1, 4, 5))
    if draw.level == BEYOND:
        return _against_twice(draw, kind, part, positive, form, (first, second), (wanted, other))
    if form == 0:
        degree = draw.pick(_DEGREES)
        return f"The {first} was {degree}{other}, but the {second} was {wanted}. {_verdict(draw, positive)}"
    if form == 1:
        against = _statement(draw, kind, 1 - part, not positive)
        return f"The {first} was {wanted}. {against} Still, {_small_verdict(draw, positive)}."
    if form == 2:
        return f"I thought the {first} would be {other}, but the {first} was {draw.pick(_DEGREES)}{wanted}."
    if form == 3:
        they = "hated it" if positive else "loved it"
        return f"{draw.pick(_FRIENDS)} {they}, but for me the {first} was {draw.pick(_DEGREES)}{wanted}."
    if form == 4:
        return f"{_verdict(draw, positive)} Only the {first} was {other}, and the {second} was {wanted}."
    return f"{_statement(draw, kind, 1 - part, not positive)} All the same: {_small_verdict(draw, positive)}!"


def _against_twice(
    draw: Draw,
    kind: str,
    part: int,
    positive: bool,
    form: int,
    aspects: tuple[str, str],
    words: tuple[str, str],
) -> str:
    """The forms of `_mixed` with a verdict, and two clauses against it. `words`: the one that agrees comes first."""
    (first, second), (wanted, other) = aspects, words
    against = _elsewhere(draw, kind, part if form == 5 else 1 - part, not positive, aspects)
    if form == 0:
        degree = draw.pick(_DEGREES)
        return f"{against} The {first} was {degree}{other}, but the {second} was {wanted}. {_verdict(draw, positive)}"
    if form == 4:
        return f"{_verdict(draw, positive)} The {first} was {other}, and the {second} was {wanted}. {against}"
    more = _elsewhere(draw, kind, 1 - part, not positive, (*aspects, against))
    if form == 1:
        return f"The {first} was {wanted}. {against} {more} Still, {_small_verdict(draw, positive)}."
    return f"{more} {against} All the same: {_small_verdict(draw, positive)}!"


def _elsewhere(draw: Draw, kind: str, part: int, positive: bool, taken: tuple[str, ...]) -> str:
    """A statement about none of the aspects that `taken` names, alone or in sentences."""
    named = set(" ".join(taken).lower().rstrip(".").split())
    while named & set(_ASPECTS[kind]) & set((text := _statement(draw, kind, part, positive)).lower()[:-1].split()):
        pass
    return text


def _statement(draw: Draw, kind: str, part: int, positive: bool) -> str:
    """A sentence about one of the aspects of that part: two parts keep two sentences from speaking of the same."""
    form = draw.number(0, 7)
    if form < 2:
        return draw.pick(_FACTS[kind][0 if positive else 1][part::2]) + "."
    aspect, word = draw.pick(_ASPECTS[kind][part::2]), draw.pick(_GOOD if positive else _BAD)
    degree = draw.pick(_DEGREES)
    if form < 4:
        return f"The {aspect} was {degree}{word}."
    if form == 4:
        return f"The {aspect} is {degree}{word}."
    if form == 5:
        return f"I {'love' if positive else 'hate'} the {aspect}."
    if form == 6:
        return f"I found the {aspect} {degree}{word}."
    return f"I think the {aspect} was {degree}{word}."


def _verdict(draw: Draw, positive: bool) -> str:
    return draw.pick(_GOOD_VERDICTS if positive else _BAD_VERDICTS) + draw.pick((".", "!", "."))


def _small_verdict(draw: Draw, positive: bool) -> str:
    text = draw.pick(_GOOD_VERDICTS if positive else _BAD_VERDICTS)
    return text if text.startswith("I ") else text[0].lower() + text[1:]


_TOPICS: dict[str, tuple[str, str, str]] = {
    "sports": (
        "team, goalkeeper, coach, striker, runner, tennis player, swimmer, referee, champion, football club",
        "won the final match, scored two goals, trained for the race, lost the game, broke the world record,"
        " won a gold medal, missed the penalty, played in the second half",
        "stadium, gym, football field, tennis court",
    ),
    "technology": (
        "programmer, phone maker, software company, robot, server, chip maker, web browser, app, engineer, laptop",
        "fixed a security bug, got more memory, needed a new processor, stored data in the cloud,"
        " got a software update, used the new code, lost the internet connection, tested a faster chip",
        "computer shop, data center, server room, robot factory",
    ),
    "food": (
        "chef, baker, restaurant kitchen, cook, butcher, dinner guest, waiter, grandmother, pastry cook, host",
        "added fresh garlic, baked a chocolate cake, used olive oil and salt, served roasted vegetables,"
        " boiled the pasta, tasted the soup, made a tomato sauce, fried the fish with butter",
        "bakery, restaurant, kitchen, butcher shop",
    ),
    "travel": (
        "tourist, airline, travel guide, cruise ship, passenger, backpacker, tour bus, traveler, tour group, visitor",
        "arrived at the beach resort, stayed at a hotel abroad, lost a suitcase at the airport, visited old ruins,"
        " missed the flight, crossed the border, packed for the holiday, saw the famous islands",
        "airport, train station, hotel, travel agency",
    ),
    "finance": (
        "bank, investor, stock market, central bank, fund, accountant, insurance firm, lender, broker, treasurer",
        "raised interest rates, paid a dividend, reported a quarterly loss, bought shares, cut its debt,"
        " sold the bonds, lowered the taxes, earned a large profit",
        "bank, stock exchange, tax office, insurance office",
    ),
    "health": (
        "doctor, patient, nurse, hospital, surgeon, dentist, clinic, pharmacist, sick child, therapist",
        "treated the infection, reduced the fever, tested a new medicine, checked the blood pressure,"
        " took the pills, got a vaccine, healed the broken arm, cured the disease",
        "hospital, pharmacy, clinic, medical school",
    ),
    "music": (
        "singer, band, violinist, orchestra, drummer, pianist, composer, choir, guitarist, conductor",
        "played a new song, released an album, rehearsed the concert, wrote a slow melody,"
        " sang at the festival, tuned the instruments, recorded a duet, opened the show with a waltz",
        "concert hall, opera, music school, record shop",
    ),
    "weather": (
        "storm, warm front, cold front, heat wave, heavy rain, snow, strong wind, fog, thunder, warm air",
        "reached the coast, brought low temperatures, passed without lightning, covered the whole valley,"
        " moved to the north, turned the sky gray, came with dark clouds, was followed by sunshine",
        "weather station, rain gauge, storm shelter, wind tower",
    ),
}
_PARTS = {label: tuple(tuple(part.split(", ")) for part in parts) for label, parts in _TOPICS.items()}
_WHEN = (
    "",
    "",
    " last night",
    " this morning",
    " on Monday",
    " again",
    " this week",
    " in spring",
    " after a long wait",
)
_SAID = ("{name} says that ", "{name} wrote that ", "According to {name}, ", "{name} heard that ", "In short: ")
_BESIDE = (
    "Not far from the {place}, ",
    "In a house next to the {place}, ",
    "{name} works at the {place} and says that ",
    "{name} left the {place} and read that ",
    "On the way to the {place}, {name} heard that ",
    "In the newspaper at the {place} {name} read that ",
    "{name} from the {place} told us that ",
    "A man at the {place} told {name} that ",
)
_AFTERWARDS = (
    "{name} from the {place} heard it too.",
    "A woman at the {place} asked {name} about it.",
    "Later {name} talked about it at the {place}.",
)
_LABELS = "sports, technology, food, travel, finance, health, music or weather"
_TOPIC = (
    "What is the topic of this text?",
    "Classify the topic of this text",
    "Topic:",
    "What is this text about? Answer with one word.",
    f"Which topic fits this text best: {_LABELS}?",
    "Name the topic of the following sentence: {text}",
    "Text: {text}\nTopic:",
    "Assign a topic to this headline",
    'What topic does "{text}" belong to?',
    f"Choose the topic ({_LABELS}) of this text",
    "Tell me the topic of this text",
    "Which topic does this headline have?",
    "Read the text and name its topic. {text}",
    f"Is this text about {_LABELS}?",
    "Label this text with its topic",
    "Headline: {text}\nWhat is the topic?",
    "Find the topic of this sentence",
    "Name the topic of this text:",
    "Which topic does this text belong to?",
    "Give the topic of this headline",
)


def topic(draw: Draw) -> Task:
    """The topic of a text. Level 1: a sentence; 2: two sentences; 3: two, and a place that has to do with another.

    Level 4: two, and two places that have to do with two others.
    """
    label = draw.pick(tuple(_PARTS))
    who, what, _ = _PARTS[label]
    name = draw.value(FIRST_NAMES)
    first, second = draw.some(who, 2), draw.some(what, 2)
    if draw.level == 1:
        opening = draw.pick(_SAID).format(name=name) if draw.chance(0.3) else ""
        text = f"{opening}the {first[0]} {second[0]}{draw.pick(_WHEN)}."
    elif draw.level == 2:
        link = draw.pick((". The ", ", and the ", ", but the ", ", while the "))
        text = f"the {first[0]} {second[0]}{draw.pick(_WHEN)}{link}{first[1]} {second[1]}."
    else:
        elsewhere = draw.some([other for other in _PARTS if other != label], 2 if draw.level == BEYOND else 1)
        place, *others = [draw.pick(_PARTS[other][2]) for other in elsewhere]
        opening = draw.pick(_BESIDE).format(place=place, name=name)
        text = f"{opening}the {first[0]} {second[0]}{draw.pick(_WHEN)}"
        text += (
            f" and that the {first[1]} {second[1]}."
            if opening.endswith("that ")
            else f", and the {first[1]} {second[1]}."
        )
        for other in others:
            text += f" {draw.pick(_AFTERWARDS).format(place=other, name=draw.value(FIRST_NAMES))}"
    text = text[0].upper() + text[1:]
    return Task(ask(draw, _TOPIC, text, quotes=True), label, text)
