"""Headlines: who did what, and where, out of a short piece of news."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.engine.demo.tasks.draw import BEYOND, Draw
from headgate.engine.demo.tasks.extract import a
from headgate.engine.demo.tasks.sample import Task
from headgate.engine.demo.tasks.words import CITIES, COMPANIES, FIRST_NAMES, JOBS, LAST_NAMES, listed

_PLACES = listed(
    """library museum hotel bakery school theater stadium hospital market bridge station garden cinema restaurant
    harbor airport gallery bookshop playground pool farm factory clinic zoo tower castle"""
)
_EVENTS = listed(
    """festival race concert conference fair parade tournament workshop auction competition ceremony marathon meeting
    carnival regatta debate seminar course quiz rally party contest dance lecture"""
)
_GOODS = listed(
    """painting boat bicycle robot guitar clock statue lamp camera car map telescope drone piano carpet kite train
    rocket computer violin mirror bell truck scooter"""
)

# Past, participle, present.
_VERBS: tuple[tuple[tuple[tuple[str, str, str], ...], tuple[str, ...]], ...] = (
    (
        (("opened", "opened", "opens"), ("closed", "closed", "closes"), ("built", "built", "builds"),
         ("bought", "bought", "buys"), ("sold", "sold", "sells"), ("visited", "visited", "visits"),
         ("designed", "designed", "designs"), ("repaired", "repaired", "repairs"), ("painted", "painted", "paints"),
         ("planned", "planned", "plans"), ("saved", "saved", "saves"), ("rented", "rented", "rents"),
         ("cleaned", "cleaned", "cleans")),
        _PLACES,
    ),
    (
        (("started", "started", "starts"), ("organized", "organized", "organizes"),
         ("canceled", "canceled", "cancels"), ("hosted", "hosted", "hosts"), ("joined", "joined", "joins"),
         ("led", "led", "leads"), ("announced", "announced", "announces"), ("filmed", "filmed", "films"),
         ("stopped", "stopped", "stops"), ("held", "held", "holds"), ("planned", "planned", "plans"),
         ("visited", "visited", "visits")),
        _EVENTS,
    ),
    (
        (("presented", "presented", "presents"), ("made", "made", "makes"), ("found", "found", "finds"),
         ("lost", "lost", "loses"), ("tested", "tested", "tests"), ("showed", "shown", "shows"),
         ("restored", "restored", "restores"), ("bought", "bought", "buys"), ("sold", "sold", "sells"),
         ("built", "built", "builds"), ("designed", "designed", "designs"), ("broke", "broken", "breaks"),
         ("chose", "chosen", "chooses"), ("repaired", "repaired", "repairs"), ("moved", "moved", "moves")),
        _GOODS,
    ),
)  # fmt: skip
_ADJECTIVES = ("", "", "new ", "new ", "large ", "small ", "old ", "famous ", "modern ", "beautiful ")
_DAYS = listed("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
_WHEN = (*(f"on {day}" for day in _DAYS), "yesterday", "last week", "this morning", "last night", "in spring",
         "this week")  # fmt: skip
_ACTIVE = (
    "{when} {who} {past} {what} in {city}.",
    "{who} {past} {what} in {city} {when}.",
    "In {city}, {who} {past} {what} {when}.",
    "{when}, {who} {past} {what} in {city}.",
    "{who} {past} {what} {when} in {city}.",
    "In {city} {who} {past} {what}.",
    "{who} {past} {what} in {city}.",
)
_PASSIVE = (
    "{what} was {part} by {who} in {city} {when}.",
    "{when} {what} was {part} in {city} by {who}.",
    "In {city}, {what} was {part} by {who} {when}.",
    "{when}, {what} in {city} was {part} by {who}.",
    "{what} was {part} by {who} in {city}.",
)
_SIDE = (
    "Many people came.",
    "The weather was fine.",
    "It rained all day.",
    "About {n} people were there.",
    "It took {n} months to prepare.",
    "Some guests came from {place}.",
    "{other} gave a short speech.",
    "{other} from {place} was also there.",
    "It cost {n} million euros.",
    "The local paper wrote about it.",
    "{other} called it a good day for everyone.",
    "There was music and food.",
    "The streets were full.",
    "More than {n} photos were taken.",
    "A band from {place} played.",
    "{other} asked many questions.",
    "Nobody was surprised.",
    "Children sang {n} songs.",
    "The people of {place} were happy too.",
    "The next big day is in {n} weeks.",
    "{other} did not come.",
    "Two people could not find a seat.",
    "{other} wants to do the same in {place}.",
    "Some people waited for {n} hours.",
)
_MAIN = ("The main news: {}", "Most important: {}", "Top story: {}", "The big news of the day: {}", "Main story: {}")
_OTHER = ("{}", "Also in the news: {}", "A small story: {}", "Less important: {}", "Other news: {}")
_ASK = (
    "Write a headline: {text}",
    "Write a headline for this text.\n\n{text}",
    "Give me a headline for this news: {text}",
    "{text}\n\nWrite a headline for this.",
    "Make a headline from this text: {text}",
    "What is a good headline for this text?\n{text}",
    "Text: {text}\nHeadline:",
    "News: {text}\n\nHeadline:",
    'Please write a headline for "{text}"',
    "Find a headline for the following news.\n\n{text}",
    "{text}\nWhat is the headline?",
    "I need a headline for this news, please.\n{text}",
    "Sum up this news as a headline: {text}",
    "Can you give this text a headline? {text}",
    "Turn this news into a headline.\n\n{text}",
    "{text}\n\nPlease give me a headline for this text.",
    "Please find a good headline for this news: {text}",
    "Write the headline of this news.\n{text}",
)


@dataclass(frozen=True, slots=True)
class _Event:
    sentence: str
    headline: str


def _start(text: str) -> str:
    return text[0].upper() + text[1:]


def _event(draw: Draw, passive: bool) -> _Event:
    if draw.chance(0.3):
        name = draw.value(COMPANIES)
        who = draw.pick((name, name, f"the company {name}"))
    else:
        name = f"{draw.value(FIRST_NAMES)} {draw.value(LAST_NAMES)}"
        job = draw.value(JOBS)
        who = draw.pick((name, name, f"the {job} {name}", f"the mayor {name}"))
    verbs, objects = draw.pick(_VERBS)
    past, participle, present = draw.pick(verbs)
    thing, city = draw.value(objects), draw.value(CITIES)
    adjective = draw.pick(_ADJECTIVES)
    article = draw.pick(("a", "a", "the"))
    what = a(adjective + thing) if article == "a" else f"the {adjective}{thing}"
    sentence = draw.pick(_PASSIVE if passive else _ACTIVE).format(
        who=who, past=past, part=participle, what=what, city=city, when=draw.pick(_WHEN)
    )
    return _Event(_start(sentence), f"{name} {present} {thing} in {city}")


def headline(draw: Draw) -> Task:
    """`<Who> <does> <what> in <City>`, without roles, adjectives and times.

    Level 1: the event and one side sentence; 2: two or three of them in any order; 3: two events, the main one marked,
    or the passive; 4: three events.
    """
    passive = draw.level >= 3 and draw.chance(0.5)
    two = draw.level == BEYOND or (draw.level == 3 and (not passive or draw.chance(0.3)))
    main = _event(draw, passive)
    count = 1 if draw.level == 1 else draw.number(2, 3) - two
    sides = [
        side.format(
            n=draw.number(2, 90),
            place=draw.value(CITIES),
            other=f"{draw.value(FIRST_NAMES)} {draw.value(LAST_NAMES)}"
            if draw.chance(0.5)
            else draw.value(FIRST_NAMES),
        )
        for side in draw.some(_SIDE, count)
    ]
    if two:
        others = [_event(draw, draw.chance(0.3)) for _ in range(draw.level - 2)]
        told = [draw.pick(_MAIN).format(main.sentence)]
        told += [draw.pick(_OTHER).format(other.sentence) for other in others]
        stories = draw.shuffled(told)
        # A side sentence may be about any story, but never stands before all.
        text = " ".join([stories[0], *sides[:1], stories[1], *sides[1:], *stories[2:]])
    elif draw.level == 1:
        text = " ".join([main.sentence, *sides])
    else:
        sides.insert(draw.number(0, len(sides)), main.sentence)
        text = " ".join(sides)
    return Task(draw.phrase(_ASK).format(text=text), main.headline, text)
