"""Reading fields out of a document, as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headgate.engine.demo.tasks.draw import BEYOND, Draw
from headgate.engine.demo.tasks.sample import Task
from headgate.engine.demo.tasks.words import (
    CITIES,
    COMPANIES,
    FIRST_NAMES,
    LAST_NAMES,
    MONTHS,
    PURCHASES,
)

_DIGITS = "0123456789"
_LETTERS = "ABCDEFGHJKLMNPRSTUVWXYZ"
_CURRENCIES = ("euros", "dollars", "pounds", "francs")


def a(word: str) -> str:
    """The word after its article."""
    vowel = word[0] in "aeiou" and not word.startswith(("uni", "uku", "use", "eu"))
    return f"{'an' if vowel else 'a'} {word}"


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of document: what a reader may call each of its slots, and its texts (8 or more of 4 slots and up)."""

    keys: Mapping[str, tuple[str, ...]]
    frames: tuple[str, ...]


_DATE, _ITEM, _AMOUNT = ("date", "day"), ("item", "product"), ("amount", "price", "total")

_KINDS = (
    _Kind(
        {"person": ("name", "customer", "payer"), "amount": ("amount", "total"), "date": _DATE, "item": _ITEM,
         "id": ("invoice", "invoice_number", "id"), "firm": ("company", "seller")},
        ("{person} paid {amount} for {a_item}.",
         "{person} spent {amount} on {a_item}.",
         "We received {amount} from {person} on {date}.",
         "Invoice {id} over {amount} went to {person}.",
         "{person} must pay {amount} to {firm} by {date}.",
         "On {date} {person} paid {amount} for {a_item}.",
         "{person} bought {a_item} for {amount} from {firm}.",
         "On {date} {person} paid {firm} {amount} for {a_item}.",
         "{firm} sent invoice {id} over {amount} to {person} on {date}.",
         "Invoice {id} of {date}: {person} owes {amount} for {a_item}.",
         "{person} paid invoice {id} on {date}, {amount} for {a_item}.",
         "Payment of {amount} from {person} for invoice {id}, received on {date}.",
         "The {item} was sold to {person} by {firm} on {date} for {amount}.",
         "{firm} got {amount} from {person} for {a_item}, invoice {id}.",
         "Invoice {id}\nDate: {date}\nCustomer: {person}\nTotal: {amount}"),
    ),
    _Kind(
        {"person": ("name", "customer", "buyer"), "count": ("quantity", "count"), "item": ("item", "product"),
         "id": ("order", "order_id", "order_number"), "date": _DATE, "city": ("city", "town"), "amount": _AMOUNT},
        ("{person} ordered {a_item} for {amount}.",
         "Order {id} was placed by {person}.",
         "{person} from {city} wants {count} pieces of the {item}.",
         "Order {id} is for {count} pieces of the {item}.",
         "{person} ordered {a_item} on {date} and paid {amount}.",
         "Order {id} goes to {person} in {city} on {date}.",
         "On {date} {person} from {city} ordered {a_item} for {amount}.",
         "Order {id}: {person} wants {count} pieces of the {item} by {date}.",
         "{person} placed order {id} on {date} for {a_item} at {amount}.",
         "Please send {count} pieces of the {item} to {person} in {city}, order {id}.",
         "The order {id} of {person} from {city} came in on {date}.",
         "We got order {id} for {a_item} from {person} in {city}, price {amount}.",
         "Order: {id}\nCustomer: {person}\nItem: {item}\nQuantity: {count}\nCity: {city}",
         "{person}, {city}, ordered {count} pieces of the {item} for {amount} in total."),
    ),
    _Kind(
        {"person": ("name", "host", "organizer"), "firm": ("company", "client"), "city": ("city", "place"),
         "date": _DATE, "time": ("time", "start"), "room": ("room",)},
        ("{person} meets {firm} on {date}.",
         "The meeting with {firm} is in {city}.",
         "{person} invites you to room {room} at {time}.",
         "The meeting starts at {time} in room {room}.",
         "On {date} {person} meets {firm} in {city}.",
         "{person} set up a meeting in {city} at {time} on {date}.",
         "{person} meets {firm} in {city} on {date} at {time}.",
         "On {date} at {time} {person} talks to {firm} in room {room}.",
         "{person} invites {firm} to a meeting in {city} on {date}.",
         "The meeting of {person} with {firm} is on {date} in {city}, at {time}.",
         "Please come to room {room} on {date} at {time}; {person} will talk about {firm}.",
         "{firm} wants to see {person} in {city} at {time} on {date}.",
         "Meeting\nHost: {person}\nDate: {date}\nTime: {time}\nRoom: {room}",
         "At {time} on {date}, {person} shows room {room} to {firm}."),
    ),
    _Kind(
        {"person": ("name", "traveler", "passenger"), "origin": ("origin", "from_city"), "time": ("time", "departure"),
         "city": ("destination", "to_city"), "date": _DATE, "id": ("ticket", "ticket_number", "booking")},
        ("{person} goes from {origin} to {city}.",
         "{person} flies to {city} on {date}.",
         "The train from {origin} to {city} leaves at {time}.",
         "Ticket {id} is for the trip to {city}.",
         "{person} leaves {origin} on {date} with ticket {id}.",
         "On {date} {person} travels from {origin} to {city}.",
         "{person} flies from {origin} to {city} on {date} at {time}.",
         "Ticket {id}: {person}, from {origin} to {city}, on {date}.",
         "On {date} at {time} {person} takes the train to {city}, ticket {id}.",
         "{person} booked a trip from {origin} to {city} for {date}, number {id}.",
         "The bus of {person} leaves {origin} at {time} on {date} and goes to {city}.",
         "With ticket {id}, {person} goes to {city} from {origin} at {time}.",
         "Ticket: {id}\nPassenger: {person}\nFrom: {origin}\nTo: {city}\nDate: {date}",
         "{person} will travel to {city} on {date}; the flight from {origin} leaves at {time}."),
    ),
    _Kind(
        {"person": ("sender",), "receiver": ("receiver", "recipient"), "item": ("item", "content"),
         "id": ("parcel", "tracking_number"), "city": ("city", "destination"), "date": _DATE,
         "weight": ("weight", "kilograms")},
        ("{person} sends {a_item} to {receiver}.",
         "The parcel {id} goes to {city}.",
         "{receiver} gets {a_item} from {person}.",
         "Parcel {id} weighs {weight} kg.",
         "{person} sent parcel {id} to {receiver}.",
         "{person} sent {a_item} to {receiver} in {city} on {date}.",
         "Parcel {id} from {person} to {receiver} weighs {weight} kg.",
         "On {date} parcel {id} with {a_item} for {receiver} arrived in {city}.",
         "{receiver} in {city} will get {a_item} of {weight} kg from {person}.",
         "On {date} {person} gave us parcel {id} for {receiver} in {city}.",
         "Parcel {id} with {a_item}, {weight} kg, goes to {receiver} on {date}.",
         "From: {person}\nTo: {receiver}\nCity: {city}\nParcel: {id}\nWeight: {weight} kg",
         "The {item} from {person} for {receiver} leaves for {city} on {date}.",
         "{weight} kg from {person} to {receiver}, sent on {date}, parcel {id}."),
    ),
    _Kind(
        {"person": ("name", "customer", "user"), "id": ("ticket", "ticket_id", "case"), "item": ("product", "device"),
         "date": _DATE, "firm": ("company", "employer"), "email": ("email", "address")},
        ("{person} says that the {item} does not work.",
         "Ticket {id} was opened by {person}.",
         "{person} wrote from {email}.",
         "{person} of {firm} has a question about the {item}.",
         "On {date} {person} opened ticket {id}.",
         "{person} of {firm} asks for a new {item}; write to {email}.",
         "On {date} {person} of {firm} told us about a broken {item}.",
         "Ticket {id}: {person} from {firm} cannot start the {item}.",
         "Ticket {id} from {email}: the {item} of {person} is broken.",
         "{person} works at {firm} and opened ticket {id} for the {item}.",
         "{person} reported a broken {item} on {date}, see ticket {id}.",
         "Please answer {person} of {firm} at {email} about ticket {id}.",
         "Ticket: {id}\nDate: {date}\nUser: {person}\nCompany: {firm}\nProduct: {item}",
         "The {item} of {person} stopped on {date}; the email is {email} and the ticket {id}."),
    ),
)  # fmt: skip

_SLOT = re.compile(r"{(?:a_)?(\w+)}")
# Each with what it holds; one with a city is left out where a city is asked, and so on.
_NOISE = (
    ("Our building has {n} floors.", "number"),
    ("Bus {n} stops in front of the office.", "number"),
    ("There are {n} places to park.", "number"),
    ("The team has {n} people.", "number"),
    ("It was {n} degrees outside.", "number"),
    ("{other} is on holiday this week.", "person"),
    ("{other} says hello.", "person"),
    ("{other} made coffee for everyone.", "person"),
    ("{other} was not there.", "person"),
    ("Do not tell {other} about it.", "person"),
    ("{other} will be back in {n} weeks.", "person"),
    ("It was raining in {place}.", "city"),
    ("The phone in {place} was busy.", "city"),
    ("{other} is still in {place}.", "city"),
    ("The weather was fine that day.", ""),
    ("Nobody else was in the room.", ""),
    ("Thank you for your help.", ""),
    ("The door was open.", ""),
)
_ASK = (
    "Extract {fields} as JSON: {text}",
    "Extract the {fields} from this text as JSON.\n{text}",
    "Return {fields} as a JSON object.\n{text}",
    "{text}\n\nGive me the {fields} as JSON.",
    "Text: {text}\nJSON with {fields}:",
    "Find {fields} in the following text and answer in JSON: {text}",
    "Please turn this into JSON with {fields}: {text}",
    "Parse the text into JSON ({fields}): {text}",
    "{text}\nWrite the {fields} of this text as a JSON object.",
    'What are the {fields} in this text? Answer as JSON.\n\n"{text}"',
    "I need the {fields} as JSON, please.\n\n{text}",
    "Make a JSON object with the keys {fields} from the text: {text}",
    "Read this text and give me JSON with the keys {fields}.\n\n{text}",
    "Can you get {fields} out of this text? Use JSON.\n{text}",
    '"{text}"\n\nExtract these fields as JSON: {fields}',
    "Fields: {fields}\nText: {text}\nAnswer with JSON.",
    "Show the {fields} as JSON: {text}",
    "Give me a JSON object with {fields} for this text.\n\n{text}",
    '{text}\n\nPlease extract the {fields}. Answer in JSON.',
    'Write JSON with the keys {fields} from this text: "{text}"',
)  # fmt: skip


def _fields(draw: Draw, keys: list[str]) -> str:
    style = draw.style(("and", "and", "comma", "quoted"))
    if style == "quoted":
        return ", ".join(f'"{key}"' for key in keys)
    return ", ".join(keys) if style == "comma" else f"{', '.join(keys[:-1])} and {keys[-1]}"


def person(draw: Draw) -> str:
    """A first name, mostly with a last name."""
    first = draw.value(FIRST_NAMES)
    return f"{first} {draw.value(LAST_NAMES)}" if draw.chance(0.75) else first


def _date(draw: Draw) -> str:
    month, day, year = draw.number(1, 12), draw.number(1, 28), draw.number(1998, 2029)
    name = MONTHS[month - 1]
    forms = (f"{day} {name} {year}", f"{name} {day}, {year}", f"{day} {name}", f"{name} {day}",
             f"{year}-{month:02}-{day:02}", f"{day:02}.{month:02}.{year}")  # fmt: skip
    return draw.pick(forms)


def _id(draw: Draw) -> str:
    digits = "".join(draw.pick(_DIGITS) for _ in range(draw.number(2, 4)))
    letters = "".join(draw.pick(_LETTERS) for _ in range(draw.number(1, 3)))
    return draw.pick((f"{letters}-{digits}", f"{letters}{digits}", f"{letters[0]}{digits}{letters[-1]}"))


def distinct(draw: Draw, vocabulary: tuple[str, ...], avoid: set[str]) -> str:
    """A word for an open slot that is none of `avoid`."""
    while (word := draw.value(vocabulary)) in avoid:
        pass
    return word


def _text(draw: Draw, name: str, taken: set[str]) -> str:
    """What a slot of that name holds, other than a number; none of `taken`."""
    if name in ("person", "receiver"):
        while (value := person(draw)) in taken:
            pass
        return value
    if name in ("city", "origin"):
        return distinct(draw, CITIES, taken)
    if name == "email":
        return f"{draw.value(FIRST_NAMES).lower()}@{draw.value(COMPANIES).split()[0].lower()}.com"
    if name == "time":
        return f"{draw.number(7, 20)}:{draw.pick(('00', '15', '30', '45'))}"
    return _MAKERS[name](draw)


def _slots(draw: Draw, names: list[str]) -> tuple[dict[str, str], dict[str, str | int]]:
    """Each slot as the text writes it, and as the answer does."""
    written: dict[str, str] = {}
    values: dict[str, str | int] = {}
    for name in names:
        value: str | int
        if name in ("amount", "count", "room", "weight"):
            value = draw.number(2, 999 if name in ("amount", "room") else 99)
            written[name] = str(value)
            if name == "amount":
                written[name] = draw.pick((f"{value} {draw.pick(_CURRENCIES)}", f"{value} euros", f"${value}"))
        else:
            value = written[name] = _text(draw, name, set(written.values()))
        values[name] = value
    if "item" in written:
        written["a_item"] = a(written["item"])
    return written, values


_MAKERS: Mapping[str, Callable[[Draw], str]] = {
    "date": _date,
    "id": _id,
    "item": lambda draw: draw.value(PURCHASES),
    "firm": lambda draw: draw.value(COMPANIES),
}


def extraction(draw: Draw) -> Task:
    """Fields of a document. Level 1: two of a sentence; 2: three; 3: four, among other sentences; 4: five, likewise."""
    kind = draw.pick(_KINDS)
    count = draw.level + 1
    # A short sentence leaves no choice of what to ask; a very long one does not belong to the first level.
    frames = [frame for frame in kind.frames if count <= len(_SLOT.findall(frame)) <= count + 2]
    frame = draw.pick(frames)
    names = _SLOT.findall(frame)
    written, values = _slots(draw, names)
    text = frame.format(**written)
    asked = draw.some(names, count)
    # Next to other people a plain "name" would be ambiguous, so from the third level on the role is asked for.
    keys = [draw.pick([k for k in kind.keys[name] if draw.level < 3 or k != "name"]) for name in asked]
    if draw.level >= 3:
        text = _among_noise(draw, text, written)
    answer = json.dumps(dict(zip(keys, (values[name] for name in asked), strict=True)))
    return Task(draw.phrase(_ASK).format(fields=_fields(draw, keys), text=text), answer, f"{text}|{', '.join(keys)}")


def _among_noise(draw: Draw, text: str, written: Mapping[str, str]) -> str:
    fitting = [noise for noise, holds in _NOISE if not (holds == "city" and {"city", "origin"} & written.keys())]
    sentences = [
        noise.format(
            n=draw.number(2, 30),
            other=distinct(draw, FIRST_NAMES, {word for value in written.values() for word in value.split()}),
            place=draw.value(CITIES),
        )
        for noise in draw.some(fitting, draw.number(1, 2) + (draw.level == BEYOND))
    ]
    sentences.insert(draw.number(0, len(sentences)), text)
    # A form of several lines stays a form: sentences around it get lines of their own.
    return ("\n" if "\n" in text else " ").join(sentences)
