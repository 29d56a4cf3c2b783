"""What a text asks, in a form that equal questions share: base forms, one word per synonym, one form per phrase."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from headgate.cache.guards.inflection import base_form
from headgate.cache.guards.phrases import rewritten
from headgate.cache.guards.reading import Token
from headgate.cache.guards.synonyms import WORDS
from headgate.cache.guards.vocabulary import part_of_speech
from headgate.cache.guards.words import word_set

_PAST = frozenset({"was", "were", "did", "had"})
_FILLERS = word_set(
    "really actually basically please kindly perhaps maybe possibly exactly there myself yourself"
    " the currently presently nowadays usually normally typically generally specifically"
)
_PREPOSITIONS = word_set(
    "from to into onto toward towards on at by with without for about over under above below through via against"
    " between among before after during since until till within inside outside near behind beside as per off up"
    " out except versus than"
)
_NAMED_BY_LETTER = word_set(
    "vitamin plan hepatitis type group option grade class section exhibit series part point team influenza"
    " formula appendix level schedule model block unit gate terminal hall room building category letter answer"
    " choice column node version side string note vertex angle"
)
_ALSO_DEEDS = word_set("plan schedule block model note answer exhibit group")
_TIMELESS = word_set(
    "actor composer producer designer singer author inventor founder director painter discoverer birthplace birthdate"
)
"""Who wrote a book is who is its author."""
_ASKS_FOR = word_set("list name give suggest recommend write tell show create")
_WEAK = frozenset({"of", "in"})
"""Prepositions that are exchanged freely: grammar of a sentence, grammar in a sentence."""
_FREE = frozenset({"and", "or"})


@dataclass(frozen=True, slots=True)
class Meaning:
    """`atoms` in the order of the text, and whether it is told as past."""

    atoms: tuple[str, ...]
    past: bool

    @property
    def bag(self) -> Counter[str]:
        """How often each atom occurs."""
        return Counter(self.atoms)

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """First the atoms before the first preposition, then the rest by preposition."""
        groups: list[list[str]] = [[]]
        for atom in self.atoms:
            if atom in _PREPOSITIONS:
                groups.append([atom])
            elif atom not in _WEAK:
                groups[-1].append(atom)
        main, *others = [_sorted_choices(group) for group in groups]
        return main, *sorted(others)


def meaning(tokens: Sequence[Token], *, courtesy: bool = True) -> Meaning:
    """The meaning of a text that was read.

    Without `courtesy` polite words may be what it is about, and stay.
    """
    past = any(token.kind == "word" and token.form in _PAST for token in tokens)
    bases = [_atom(tokens, at) for at in range(len(tokens)) if not _is_article(tokens, at)]
    atoms = [WORDS.get(atom, atom) for atom in rewritten(bases, courtesy=courtesy) if atom not in _FILLERS]
    if atoms[:1] in (["howto"], ["can"], ["whatdo"]):
        # What is done to my password is done to a password; what my password is, is another matter.
        atoms = [atom for atom in atoms if atom not in ("my", "our")]
    atoms = (atoms or bases) + _articles_that_count(tokens, atoms)
    if atoms[:1] and atoms[0] in _TIMELESS:
        past = False
    return Meaning(tuple(atoms), past)


def _articles_that_count(tokens: Sequence[Token], atoms: Sequence[str]) -> list[str]:
    """`What is the matter` is not `what is matter`, and `name a planet` is not `name planets`."""
    forms = [token.form for token in tokens if token.kind == "word"]
    if len(atoms) == 2 and atoms[0] == "whatis" and forms[-2:-1] == ["the"]:
        return ["the"]
    return ["one"] if atoms[:1] and atoms[0] in _ASKS_FOR and {"a", "an"} & set(forms[:4]) else []


def _sorted_choices(group: list[str]) -> tuple[str, ...]:
    """`tea and coffee` is `coffee and tea`, for one word on either side at the end of a group."""
    if len(group) >= 3 and group[-2] in _FREE:
        ends = sorted((group[-3], group[-1]))
        group = [*group[:-3], ends[0], group[-2], ends[1]]
    return tuple(group)


def _atom(tokens: Sequence[Token], at: int) -> str:
    token = tokens[at]
    if token.kind != "word":
        return f"{token.kind}:{token.form}".replace(" ", "·")
    word = token.form
    if word == "'s":
        return "'s"
    return base_form(word)


def _is_article(tokens: Sequence[Token], at: int) -> bool:
    token = tokens[at]
    if token.kind != "word" or token.form not in ("a", "an", "the"):
        return False
    if at + 1 == len(tokens) or tokens[at + 1].kind not in ("word", "number", "date", "code", "quoted"):
        return False
    # Vitamin a, plan a: there it is a name. But: plan a trip.
    before = tokens[at - 1].form if at else ""
    if token.form != "a" or before not in _NAMED_BY_LETTER:
        return True
    return before in _ALSO_DEEDS and part_of_speech(base_form(tokens[at + 1].form)) in "na"
