"""Classification: the sentiment of a review, the topic of a text, the intent of a customer's message."""

from __future__ import annotations

from headgate.engine.demo.tasks.sample import Draw, Task
from headgate.engine.demo.tasks.words import listed

_ASPECTS = {
    "restaurant": listed("food service soup menu dessert waiter pizza coffee table atmosphere"),
    "hotel": listed("room bed breakfast pool view staff lobby shower location balcony"),
    "film": listed("plot acting music ending story cast script dialogue camera opening"),
    "product": listed("battery screen sound design price keyboard camera quality case charger"),
    "trip": listed("guide bus tour weather beach museum schedule driver boat walk"),
}
_GOOD = listed("""great excellent wonderful amazing fantastic lovely perfect superb brilliant delightful pleasant
impressive outstanding charming good""")
_BAD = listed("""terrible awful horrible bad poor disappointing dreadful boring unpleasant annoying broken useless dull
ugly disgusting""")
_GOOD_VERDICTS = (
    "I loved it",
    "I would come back any time",
    "highly recommended",
    "it made my day",
    "worth every cent",
    "I am very happy with it",
    "five stars from me",
    "best choice of the year",
)
_BAD_VERDICTS = (
    "I hated it",
    "never again",
    "I want my money back",
    "it ruined my day",
    "a waste of money",
    "I am very unhappy with it",
    "one star from me",
    "worst choice of the year",
)
_DEGREES = ("", "really ", "very ", "quite ", "absolutely ", "simply ", "truly ")
_SENTIMENT = (
    "Is this review positive or negative? {text}",
    "Classify the sentiment as positive or negative: {text}",
    "What is the sentiment of this review? {text}",
    "Sentiment: {text}",
    "{text}\n\nIs this positive or negative?",
    "Review: {text}\nSentiment:",
    'Tell me whether the following review is positive or negative: "{text}"',
    "Is the writer happy or not? Answer positive or negative. {text}",
    "Decide if this text is positive or negative.\n{text}",
    "{text}\nWhat is the sentiment of this text?",
    "Please classify this review as positive or negative: {text}",
)


def sentiment(draw: Draw) -> Task:
    """A short review. Level 1: one plain statement; 2: two, or a negated one; 3: mixed, where the verdict decides."""
    positive = draw.chance(0.5)
    aspects = draw.some(_ASPECTS[draw.pick(tuple(_ASPECTS))], 2)
    if draw.level == 1:
        text = _statement(draw, aspects[0], positive)
        if draw.chance(0.4):
            text += f" {_verdict(draw, positive)}"
    elif draw.level == 2:
        if draw.chance(0.5):
            text = f"{_statement(draw, aspects[0], positive)} {_statement(draw, aspects[1], positive)}"
        else:
            text = f"The {aspects[0]} was not {draw.pick(_BAD if positive else _GOOD)}."
            text += f" {_verdict(draw, positive)}" if draw.chance(0.6) else ""
    else:
        first = f"The {aspects[0]} was {draw.pick(_DEGREES)}{draw.pick(_BAD if positive else _GOOD)}"
        second = f"the {aspects[1]} was {draw.pick(_DEGREES)}{draw.pick(_GOOD if positive else _BAD)}"
        text = f"{first}, but {second}. {_verdict(draw, positive)}"
    label = "positive" if positive else "negative"
    return Task(draw.phrase(_SENTIMENT).format(text=text), label, text)


def _statement(draw: Draw, aspect: str, positive: bool) -> str:
    word = draw.pick(_DEGREES) + draw.pick(_GOOD if positive else _BAD)
    verb = "love" if positive else "hate"
    form = draw.number(0, 4)
    if form == 0:
        return f"The {aspect} was {word}."
    if form == 1:
        return f"The {aspect} is {word}."
    if form == 2:
        return f"I {verb} the {aspect}."
    if form == 3:
        return f"What a {word.split()[-1]} {aspect}!"
    return f"I found the {aspect} {word}."


def _verdict(draw: Draw, positive: bool) -> str:
    text = draw.pick(_GOOD_VERDICTS if positive else _BAD_VERDICTS)
    return text[0].upper() + text[1:] + draw.pick((".", "!", "."))


_TOPICS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "sports": (
        ("team", "goalkeeper", "coach", "striker", "runner", "tennis player", "swimmer", "referee", "champion"),
        ("won the final match", "scored two goals", "trained for the race", "lost the game", "broke the world record"),
    ),
    "technology": (
        ("software update", "new phone", "programmer", "robot", "server", "chip maker", "web browser", "app"),
        ("fixed a security bug", "doubled the memory", "runs on the new processor", "stores data in the cloud"),
    ),
    "food": (
        ("chef", "recipe", "baker", "soup", "restaurant kitchen", "sauce", "cook", "dinner menu"),
        ("needs fresh garlic", "baked a chocolate cake", "uses olive oil and salt", "served roasted vegetables"),
    ),
    "travel": (
        ("tourist", "airline", "flight", "travel guide", "cruise ship", "passenger", "backpacker", "tour bus"),
        ("arrived at the beach resort", "booked a hotel abroad", "lost a suitcase at the airport", "visited old ruins"),
    ),
    "finance": (
        ("bank", "investor", "stock market", "central bank", "fund", "accountant", "insurance firm", "lender"),
        ("raised interest rates", "paid a dividend", "reported a quarterly loss", "bought shares", "cut its debt"),
    ),
    "health": (
        ("doctor", "patient", "nurse", "hospital", "surgeon", "vaccine", "dentist", "clinic"),
        ("treated the infection", "reduced the fever", "tested a new medicine", "checked the blood pressure"),
    ),
    "music": (
        ("singer", "band", "violinist", "orchestra", "drummer", "pianist", "composer", "choir"),
        ("played a new song", "released an album", "rehearsed the concert", "wrote a slow melody"),
    ),
    "weather": (
        ("storm", "forecast", "cold front", "heat wave", "heavy rain", "snow", "strong wind", "fog"),
        ("will reach the coast tonight", "brings low temperatures", "ends on Sunday", "covers the whole valley"),
    ),
}
_WHEN = ("", " last night", " this morning", " on Monday", " again", " this week", " in spring", " after a long wait")
_TOPIC = (
    "What is the topic of this text? {text}",
    "Classify the topic: {text}",
    "Topic: {text}",
    "{text}\n\nWhat is this text about? Answer with one word.",
    "Which topic fits this sentence best: sports, technology, food, travel, finance, health, music or weather? {text}",
    "Name the topic of the following sentence: {text}",
    "Text: {text}\nTopic:",
    "Assign a topic to this headline: {text}",
    'What topic does "{text}" belong to?',
)
_INTENTS: dict[str, tuple[str, ...]] = {
    "refund": (
        "I want my money back for the {thing}",
        "please refund my {thing}",
        "how do I get a refund for the {thing}",
        "the {thing} was broken and I would like my money back",
    ),
    "cancel": (
        "please cancel my order of the {thing}",
        "I no longer want the {thing}, stop the order",
        "cancel the {thing} I ordered",
        "how can I cancel the purchase of my {thing}",
    ),
    "shipping": (
        "where is my {thing}",
        "when will the {thing} arrive",
        "track the delivery of my {thing}",
        "the {thing} has not been delivered yet",
    ),
    "password": (
        "I forgot the password for my {thing} account",
        "reset my {thing} password",
        "I cannot log in to the {thing} app",
        "my {thing} login does not work",
    ),
    "billing": (
        "I was charged twice for the {thing}",
        "why is the invoice for my {thing} so high",
        "send me the bill for the {thing}",
        "my card was charged for a {thing} by mistake",
    ),
    "praise": (
        "thank you, the {thing} works perfectly",
        "I love my new {thing}",
        "great job with the {thing}",
        "the {thing} is the best I ever had",
    ),
}
_PRODUCTS = listed("""laptop phone camera printer bicycle sofa watch tablet heater keyboard monitor toaster kettle
vacuum lamp scooter drill speaker headset router jacket tent mattress fridge""")
_OPENERS = (
    "Hello, ",
    "Hi team, ",
    "Good morning, ",
    "Hey, quick question: ",
    "I have been a customer for years. ",
    "Sorry to bother you, ",
)
_INTENT = (
    "Classify the intent of this message: {text}",
    "What does the customer want? {text}",
    "Intent: {text}",
    "{text}\n\nWhat is the intent: refund, cancel, shipping, password, billing or praise?",
    "Which intent does this customer message have? {text}",
    "Message: {text}\nIntent:",
    "Label the intent of the following request: {text}",
    "Read the message and name its intent. {text}",
)


def topic(draw: Draw) -> Task:
    """Level 1: the topic of a sentence; 2: the intent of a customer's message; 3: the same behind an opening phrase."""
    if draw.level == 1:
        label = draw.pick(tuple(_TOPICS))
        who, what = _TOPICS[label]
        text = f"The {draw.pick(who)} {draw.pick(what)}{draw.pick(_WHEN)}."
        return Task(draw.phrase(_TOPIC).format(text=text), label, text)
    label = draw.pick(tuple(_INTENTS))
    text = draw.pick(_INTENTS[label]).format(thing=draw.pick(_PRODUCTS))
    if draw.level == 3:
        text = draw.pick(_OPENERS) + text + draw.pick((" please", "", " as soon as possible"))
    text = text[0].upper() + text[1:] + draw.pick((".", "", "!"))
    return Task(draw.phrase(_INTENT).format(text=text), label, text)
