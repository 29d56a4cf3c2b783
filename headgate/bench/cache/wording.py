"""Intents, the questions they allow and the many ways each can be put into words.

A template is one line. `{slot}` or `{slot:mode}` stands for a value, `[a|b]` for either wording, and `a(n)` becomes the
article that suits the next word.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass

from headgate.bench.cache.slots import Value, Vocabulary

LEAST_TEMPLATES = 8
"""Every intent can be asked in at least so many ways, alternatives within a template not counted."""

_PIECE = re.compile(r"\{(\w+)(?::(\w+))?\}|\[([^\]]*)\]")
_ARTICLE = re.compile(r"\b([Aa])\(n\) (?=(\w+))")
_BEFORE_MARK = re.compile(r" ([?.,!:])")
_AN = re.compile(r"(?!uber|uk|us\b|uni|eu|one)[aeiou]|8|11\b|18\b|hour|r\b|xbox", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Fixed:
    """Template text, or several texts that mean the same in this place."""

    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """Stands for a slot's value, worded in a mode."""

    name: str
    mode: str


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a rendered text; `slot` says whether it words a slot's value, which noise must not touch."""

    text: str
    slot: bool


@dataclass(frozen=True, slots=True)
class Intent:
    """One thing that users ask for.

    Attributes:
        name: `domain.what`.
        slots: vocabularies by slot name. Two slots with one vocabulary hold different values.
        templates: as written, each naming every slot.
        parts: the templates, taken apart.
        roles: two slots whose exchange changes the question, such as from and to.
        symmetric: two slots whose exchange does not, such as the two ends of a distance.
    """

    name: str
    slots: Mapping[str, Vocabulary]
    templates: tuple[str, ...]
    parts: tuple[tuple[Fixed | Slot, ...], ...]
    roles: tuple[str, str] | None
    symmetric: tuple[str, str] | None

    @property
    def domain(self) -> str:
        """The part of the name before the dot."""
        return self.name.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Question:
    """An intent with its slots filled; what is asked, apart from the words."""

    intent: Intent
    values: Mapping[str, Value]

    @property
    def key(self) -> str:
        """Equal for two questions exactly if one answer is right for both."""
        return key_of(self.intent, {name: value.canonical for name, value in self.values.items()})


def key_of(intent: Intent, canonical: Mapping[str, str]) -> str:
    """The semantic key: the intent's name and every slot's canonical value, symmetric slots in sorted order."""
    filled = dict(canonical)
    if intent.symmetric is not None:
        first, second = intent.symmetric
        filled[first], filled[second] = sorted((filled[first], filled[second]))
    return "|".join([intent.name, *(f"{name}={filled[name]}" for name in intent.slots)])


def intent(
    name: str, templates: str, slots: Mapping[str, Vocabulary], *, roles: str = "", symmetric: str = ""
) -> Intent:
    """An intent from its templates, one a line; `roles` and `symmetric` name two slots each.

    Raises:
        ValueError: a template leaves out a slot, names an unknown one, asks for a mode that a value lacks or occurs
            twice; there are too few templates; `roles` or `symmetric` do not name two slots of one vocabulary.
    """
    lines = tuple(line.strip() for line in templates.splitlines() if line.strip())
    if len(set(lines)) < max(len(lines), LEAST_TEMPLATES):
        raise ValueError(
            f"intent {name!r} has {len(set(lines))} different templates among {len(lines)}; "
            f"{LEAST_TEMPLATES} or more, all different, are accepted"
        )
    parsed = tuple(_parse(line) for line in lines)
    for line, parts in zip(lines, parsed, strict=True):
        named = [part for part in parts if isinstance(part, Slot)]
        if {part.name for part in named} != set(slots):
            raise ValueError(f"intent {name!r}: {line!r} does not name just the slots {', '.join(slots)}")
        for part in named:
            for value in slots[part.name].values:
                if part.mode not in value.forms:
                    raise ValueError(f"intent {name!r}: {value.canonical!r} has no mode {part.mode!r} for {line!r}")
    made = Intent(name, slots, lines, parsed, _pair(roles), _pair(symmetric))
    for pair in (made.roles, made.symmetric):
        if pair is not None and slots[pair[0]] is not slots[pair[1]]:
            raise ValueError(f"intent {name!r}: {pair[0]} and {pair[1]} have two vocabularies; one is accepted")
    return made


def _pair(text: str) -> tuple[str, str] | None:
    if not text:
        return None
    first, second = text.split()
    return first, second


def _parse(template: str) -> tuple[Fixed | Slot, ...]:
    parts: list[Fixed | Slot] = []
    at = 0
    for found in _PIECE.finditer(template):
        if found.start() > at:
            parts.append(Fixed((template[at : found.start()],)))
        slot, mode, texts = found.groups()
        parts.append(Fixed(tuple(texts.split("|"))) if slot is None else Slot(slot, mode or ""))
        at = found.end()
    if at < len(template):
        parts.append(Fixed((template[at:],)))
    return tuple(parts)


@dataclass(frozen=True, slots=True)
class Wording:
    """Which of an intent's ways of asking: the template's number and the seed of the choices within it.

    One wording of two questions that differ in one slot gives two texts that differ in that slot only.
    """

    template: int
    seed: int


def draw_wording(asked: Intent, rng: random.Random) -> Wording:
    """A wording at random."""
    return Wording(rng.randrange(len(asked.templates)), rng.getrandbits(48))


def render(question: Question, wording: Wording) -> str:
    """The question in these words, as a careful writer would put them."""
    return join(pieces(question, wording))


def pieces(question: Question, wording: Wording) -> list[Piece]:
    """The rendered text in parts, before `join` mends articles and the first letter."""
    rng = random.Random(wording.seed)
    made = []
    for part in question.intent.parts[wording.template]:
        # One number for every part, whatever is chosen: so the choices of later parts do not depend on the values.
        at = rng.random()
        slot = isinstance(part, Slot)
        texts = question.values[part.name].forms[part.mode] if isinstance(part, Slot) else part.texts
        made.append(Piece(texts[int(at * len(texts))], slot))
    return made


def join(parts: list[Piece], opening: str = "") -> str:
    """One text: single spaces, `a(n)` resolved, the first letter a capital; `opening` such as "Hi, " goes before it."""
    text = " ".join((opening + "".join(part.text for part in parts)).split())
    text = _BEFORE_MARK.sub(r"\1", text)
    text = _ARTICLE.sub(lambda found: f"{found[1]}{'n' if _AN.match(found[2]) else ''} ", text)
    # Names such as iPhone and eBay keep their small letter.
    if text[1:2].isupper():
        return text
    return text[:1].upper() + text[1:]
