"""Reading a given text: fields to JSON, and answers from a passage."""

from __future__ import annotations

import json

from headgate.engine.demo.tasks.sample import Draw, Task
from headgate.engine.demo.tasks.words import (
    ANIMALS,
    CITIES,
    COLORS,
    FIRST_NAMES,
    FOODS,
    JOBS,
    LAST_NAMES,
    MONTHS,
    PURCHASES,
)

_CURRENCIES = ("euros", "dollars", "pounds", "francs")
_NAME_AMOUNT = (
    "{name} paid {amount} {money} for a {thing}.",
    "{name} spent {amount} {money} on a {thing}.",
    "We received {amount} {money} from {name}.",
    "{name} owes us {amount} {money}.",
    "The {thing} was sold to {name} for {amount} {money}.",
    "An invoice over {amount} {money} was sent to {name}.",
)
_NAME_DATE_AMOUNT = (
    "On {date} {name} paid {amount} {money} for a {thing}.",
    "{name} bought a {thing} for {amount} {money} on {date}.",
    "We received {amount} {money} from {name} on {date}.",
    "On {date} we sent {name} a bill of {amount} {money}.",
    "{name} must pay {amount} {money} by {date}.",
    "The {thing} was sold to {name} on {date} for {amount} {money}.",
)
_NOISE = (
    "The weather was fine that day.",
    "The shop closes at 6 in the evening.",
    "Nobody else was in the store.",
    "The delivery takes 3 days.",
    "The receipt is in the drawer.",
    "Our office is on the second floor.",
)
_ASK = (
    "Extract {fields} as JSON: {text}",
    "Extract the {fields} from this text as JSON. {text}",
    "Return {fields} as a JSON object.\n{text}",
    "{text}\n\nGive me the {fields} as JSON.",
    "Text: {text}\nJSON with {fields}:",
    "Find {fields} in the following sentence and answer in JSON: {text}",
    "Please turn this into JSON with {fields}: {text}",
    "Parse the text into JSON ({fields}): {text}",
)


def extraction(draw: Draw) -> Task:
    """Fields of a payment sentence. Level 1: name and amount; 2: also the date; 3: among other sentences."""
    name = f"{draw.pick(FIRST_NAMES)} {draw.pick(LAST_NAMES)}"
    if draw.chance(0.2):
        name = name.split()[0]
    month, day, year = draw.pick(MONTHS), draw.number(1, 28), draw.number(1998, 2029)
    date = f"{day} {month} {year}" if draw.chance(0.6) else f"{month} {day}, {year}"
    amount = draw.number(2, 99) if draw.level == 1 else draw.number(2, 999)
    slots = {"name": name, "amount": amount, "money": draw.pick(_CURRENCIES), "thing": draw.pick(PURCHASES)}
    if draw.level == 1:
        text = draw.pick(_NAME_AMOUNT).format(**slots)
        values: dict[str, object] = {"name": name, "amount": amount}
        fields = draw.pick(("name and amount", "name, amount"))
    else:
        text = draw.pick(_NAME_DATE_AMOUNT).format(date=date, **slots)
        values = {"name": name, "date": date, "amount": amount}
        fields = draw.pick(("name, date and amount", "name, date, amount"))
    if draw.level == 3:
        noise = draw.some(_NOISE, draw.number(1, 2))
        sentences = [text, *noise]
        draw.rng.shuffle(sentences)
        text = " ".join(sentences)
    return Task(draw.phrase(_ASK).format(fields=fields, text=text), json.dumps(values), text)


_RELATIONS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("{who} lives in {what}.", "Where does {who} live?", CITIES),
    ("{who} works as a {what}.", "What is the job of {who}?", JOBS),
    ("{who} has a {what}.", "Which animal does {who} have?", ANIMALS),
    ("{who} likes the color {what}.", "Which color does {who} like?", COLORS),
    ("{who} bought a {what}.", "What did {who} buy?", PURCHASES),
    ("{who} ordered {what}.", "What did {who} order?", FOODS),
    ("{who} met {what}.", "Whom did {who} meet?", FIRST_NAMES),
    ("{who} travelled to {what}.", "Where did {who} travel to?", CITIES),
    ("{who} was born in {what}.", "Where was {who} born?", CITIES),
)
_PASSAGE = (
    "{text} {question}",
    "{text}\n{question}",
    "{text}\n\n{question}",
    "Read the text and answer the question. {text} {question}",
    "Passage: {text}\nQuestion: {question}",
    "Text: {text}\nQuestion: {question}\nAnswer:",
    "Answer from the passage. {text} {question}",
    "{question} {text}",
    "Context: {text}\n\n{question}",
)


def passage(draw: Draw) -> Task:
    """A question about a given text. Level 1: one sentence; 2: two people; 3: three people with two facts each."""
    people = draw.some(FIRST_NAMES, draw.level)
    facts: list[tuple[str, str, str]] = []
    relations = draw.some(_RELATIONS, 2)
    for who in people:
        for sentence, question, values in relations if draw.level == 3 else relations[: draw.number(1, 2)]:
            what = draw.pick([value for value in values if value not in people])
            facts.append((sentence.format(who=who, what=what), question.format(who=who), what))
    draw.rng.shuffle(facts)
    text = " ".join(sentence for sentence, _, _ in facts)
    _, question, answer = draw.pick(facts)
    return Task(draw.phrase(_PASSAGE).format(text=text, question=question), answer, f"{text}|{question}")
