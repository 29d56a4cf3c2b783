"""What one text says of each kind, in a form that compares."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache

from headgate.cache.guards.clauses import counts_of
from headgate.cache.guards.contrasts import Sides, sides_of
from headgate.cache.guards.inflection import base_form
from headgate.cache.guards.lexicon import (
    ABOUT_WORDS,
    COMPARATORS,
    FORMAT,
    LANGUAGES,
    NEGATION,
    POLARITY,
    QUANTIFIERS,
    TEMPORAL,
    WH,
)
from headgate.cache.guards.meaning import Meaning, meaning
from headgate.cache.guards.once import once
from headgate.cache.guards.polarity import Polarity, polarity_of
from headgate.cache.guards.questions import grain_of, kinds_of, modal_of
from headgate.cache.guards.reading import Token, read, words_of
from headgate.cache.guards.relations import Comparison, compared, differing, replaced_by
from headgate.cache.guards.statements import FACTS, Counted, Facts, in_table, of_kind
from headgate.cache.guards.tenses import Times, times_of
from headgate.cache.guards.vocabulary import kept, light, part_of_speech, weight
from headgate.cache.guards.wording import core

Verdict = bool | str | None
"""True: both say the same; False: what cannot both be meant; "one side": only one says something; None: none does."""

_ASKING = frozenset({"howto", "whatis", "duration", "exist", "whatdo", "differ"})
_SUBJECTS = frozenset(
    {"i", "you", "he", "she", "it", "we", "they", "this", "that", "these", "those", "there", "my", "your"}
)
_TOLD = frozenset({"got", "been", "became", "happened", "over", "ago"})
_TIMES = {
    **dict.fromkeys(("was", "were", "had"), "past"),
    "did": "past deed",
    **dict.fromkeys(("will", "shall"), "future"),
    **dict.fromkeys(("is", "are", "am"), "present"),
    **dict.fromkeys(("do", "does"), "present deed"),
}
_ARTICLES = frozenset({"a", "an", "the"})
_PLACED = frozenset(
    {"from", "to", "into", "than", "before", "after", "over", "as", "onto", "against", "by", "for", "instead"}
)


@dataclass(frozen=True)
class Reading:
    """What the guards look at in one text, parsed once; what not every pair is asked about is found when it is."""

    tokens: tuple[Token, ...]
    """All tokens that ask."""
    meaning: Meaning
    asks: bool
    """It ends with a question mark."""

    def foreseen(self) -> Reading:
        """Find now what else is found when a guard asks: where there is time, and many will ask."""
        for kind in FACTS:
            _ = self.facts[kind]
        _ = self.spoken, self.said, self.words, self.polarity, self.kinds, self.plain, self.things, self.placed
        _ = self.sides, self.time, self.times, self.grain, self.modal, self.full_names, self.property_of, self.amount_of
        _ = self.capitals, self.comparison, self.replaced, self.differing, self.counts
        return self

    def knowing(self, found: Mapping[str, object], facts: Mapping[str, Counted]) -> Reading:
        """With what was found of it before, by name, and so of its facts, by kind."""
        self.__dict__.update(found)
        self.facts.update(facts)
        return self

    @once
    def facts(self) -> Facts:
        """What it says of the kinds that compare as sets."""
        return Facts(self.tokens, self.meaning)

    @once
    def spoken(self) -> tuple[str, ...]:
        """The forms of its tokens, as they are written."""
        return tuple([token.form for token in self.tokens])

    @once
    def polarity(self) -> Polarity:
        """What it denies, excepts and bounds."""
        return polarity_of(self.tokens, self._worded)

    @once
    def kinds(self) -> frozenset[str]:
        """The kinds of answer it may ask for."""
        return kinds_of(self.tokens, self._worded, self.meaning.atoms)

    @once
    def full_names(self) -> tuple[frozenset[str], ...]:
        """Names of several words in a row."""
        return _full_names(self.tokens) if self.capitals else ()

    @once
    def words(self) -> tuple[str, ...]:
        """Its words in order, as `meaning` has them, without those that say nothing."""
        return tuple([atom for atom in self.meaning.atoms if ":" not in atom and weight(atom)])

    @once
    def placed(self) -> tuple[tuple[str, str], ...]:
        """Directional words and the word behind each."""
        return _placed(self.meaning.atoms, {name for name, _ in self.facts["names"]})

    @once
    def property_of(self) -> tuple[str, tuple[str, ...]] | None:
        """What is asked of what: the word before the first `of`, and the specific words behind it."""
        return _property_of(self.meaning.atoms)

    @once
    def amount_of(self) -> str:
        """What it asks the number or the amount of: the specific noun behind `how many` or `how much`; empty where
        none."""
        return _amount_of(self.tokens) if "how" in self.spoken else ""

    @once
    def time(self) -> str:
        """`past`, `past deed`, `present`, ... by the verb that asks; empty where none does."""
        return _time(self._worded)

    @once
    def times(self) -> Times:
        """The times that it says of its verbs."""
        return times_of(self._worded)

    @once
    def grain(self) -> str:
        """How exactly a time is asked for: `clock`, `day`, `month`, `year`; empty where it is not said."""
        return grain_of(self.tokens)

    @once
    def modal(self) -> str:
        """`can`, `should`, `must` where a yes or no is asked for; empty elsewhere."""
        return modal_of(self.tokens)

    @once
    def told(self) -> bool:
        """Something in it happened or is in a state: `the card got rejected`, where the verb that asks may be
        another."""
        return any(token.kind == "word" and token.form in _TOLD for token in self.tokens)

    @once
    def sides(self) -> Sides:
        """Which side of a pair it asks for: differences or similarities, causes or effects."""
        return sides_of(self.tokens)

    @once
    def _worded(self) -> list[str]:
        return words_of(self.tokens)

    @once
    def _written(self) -> tuple[tuple[str, ...], tuple[bool, ...]]:
        return _plain(self.tokens)

    @once
    def plain(self) -> tuple[str, ...]:
        """Base forms as they are written, without articles; before `than` the word itself."""
        return self._written[0]

    @once
    def things(self) -> tuple[bool, ...]:
        """For each of those, whether it is part of a thing: a noun, a name, a number, a date."""
        return self._written[1]

    @once
    def capitals(self) -> frozenset[str]:
        """The forms of its tokens that are written with a capital letter."""
        return frozenset([token.form for token in self.tokens if token.capital])

    @once
    def comparison(self) -> Comparison | None:
        """What it compares with what."""
        return compared(self.plain, self.things)

    @once
    def replaced(self) -> tuple[Set[str], Set[str]]:
        """What it leaves out and what it takes in its place."""
        return replaced_by(self.plain, self.things)

    @once
    def differing(self) -> tuple[str, str] | None:
        """The two things whose difference it asks for."""
        return differing(self.plain)

    @once
    def counts(self) -> Mapping[str, str]:
        """Numbers by the things that it counts."""
        return counts_of(self.tokens)

    @once
    def initials(self) -> str:
        """First letters of its words, and a space for what is no word: parts of it may be said as an abbreviation."""
        return _initials(self.tokens)

    @once
    def said(self) -> tuple[str, ...]:
        """What it means, in no order: equal for texts that read alike."""
        return tuple(sorted(self.meaning.atoms))

    @once
    def alike(self) -> Hashable:
        """Equal for texts that read alike to the last word."""
        plural = self.facts["plural"] if "number" in self.meaning.atoms else frozenset()
        return self.said, _alike(self.tokens, self.meaning, plural, self.asks)


def reading_of(text: str) -> Reading:
    """A text as the guards look at it."""
    tokens = read(text)
    asking = tuple(core(tokens))
    courtesy = not any(token.form in ABOUT_WORDS for token in tokens)
    return Reading(asking, meaning(asking, courtesy=courtesy), text.rstrip().endswith("?"))


def _plain(tokens: tuple[Token, ...]) -> tuple[tuple[str, ...], tuple[bool, ...]]:
    forms: list[str] = []
    things: list[bool] = []
    for token, behind in itertools.zip_longest(tokens, tokens[1:]):
        form, thing = token.form, token.kind != "symbol"
        if token.kind == "word":
            if form in _ARTICLES:
                continue
            thing = False
            if behind is None or behind.form != "than":
                form, noun, says = _as_thing(form)
                thing = says and (noun or token.capital)
        forms.append(form)
        things.append(thing)
    return tuple(forms), tuple(things)


@lru_cache(maxsize=16384)
def _as_thing(form: str) -> tuple[str, bool, bool]:
    """A word as it is kept, whether it is a noun or not known, and whether it says something of its own."""
    base = kept(form)
    return base, part_of_speech(base) in "n?", weight(base) > 0


def _full_names(tokens: tuple[Token, ...]) -> tuple[frozenset[str], ...]:
    runs: list[list[str]] = [[]]
    for token in tokens:
        if token.kind == "word" and (token.capital or (runs[-1] and token.form in ("van", "da", "de", "von", "of"))):
            runs[-1].append(kept(token.form))
        elif runs[-1]:
            runs.append([])
    return tuple(frozenset(run) for run in runs if len(run) > 1)


def _placed(atoms: tuple[str, ...], names: Set[str]) -> tuple[tuple[str, str], ...]:
    found = []
    for at, atom in enumerate(atoms):
        if atom in _PLACED:
            following = [word for word in atoms[at + 1 : at + 4] if ":" in word or weight(word)]
            if len(following) > 1 and (following[0] == "another" or _describes(following[0])):
                # A real person is a person.
                following = following[1:]
            behind = following[0] if following else None
            if str(behind).startswith("date:") and str(behind).endswith("day"):
                # Thursday, 18 November.
                behind = next((word for word in atoms[at + 2 : at + 3] if word.startswith("date:")), behind)
            # To visit is no place, but to Mark is.
            deed = atoms[at + 1] if at + 1 < len(atoms) else ""
            if atom == "to" and at and atoms[at - 1] == "come" and str(behind).startswith("number:"):
                continue
            counted_off = atom in ("over", "than", "before", "after", "for") and str(behind).startswith("number:")
            if (
                behind is not None
                and not counted_off
                and (atom != "to" or deed in names or part_of_speech(deed) != "v")
            ):
                found.append((atom, behind))
    if not _GIVING.isdisjoint(atoms):
        given = itertools.pairwise(atoms)
        found += [("to", behind) for giving, behind in given if giving in _GIVING and behind in names]
    return tuple(found) if _TURNING.isdisjoint(atoms) else (*found, *_turned_into(atoms))


def _describes(word: str) -> bool:
    return light(word) and part_of_speech(word) == "a"


_WISHED = frozenset({"want", "require", "should", "wish", "like", "would"})
_ASKED_FOR = _WISHED | {"obtain"}
_STATED = frozenset({"be", "have", "write", "display"})
_TAKEN = frozenset({"take", "have", "read"})
_MADE = frozenset({"produce", "require", "want", "output"})
_TURNING = frozenset({"and", "on", *LANGUAGES})
_GIVING = frozenset({"write", "send", "gift", "give", "pay", "lend", "owe", "offer", "display", "tell"})


def _turned_into(atoms: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """`It is in Arabic and I want it in German`: from the one to the other; `I want it on my phone`: to it; `takes
    HTML and produces text`: from the one into the other."""
    for at, atom in enumerate(atoms):
        if atom == "and" and at > 1 and at + 2 < len(atoms) and atoms[at + 1] in _MADE:
            taken = next((i for i in range(at - 2, max(-1, at - 4), -1) if atoms[i] in _TAKEN), None)
            if taken is not None and atoms[at + 2] != "to":
                yield "from", atoms[taken + 1]
                yield "into", atoms[at + 2]
        if atom == "on" and at + 1 < len(atoms) and _WISHED & {*atoms[max(0, at - 6) : at]}:
            yield "to", atoms[at + 1]
        if atom not in LANGUAGES or (atoms[at - 1] not in ("in", "be", "of") if at else True):
            continue
        if atoms[at - 1] == "of":
            if atoms[max(0, at - 2)] in ("instead", "out"):
                yield "from", atom
            continue
        before = {*atoms[max(0, at - 6) : at]}
        if before & _ASKED_FOR and not before & {"from", "to", "into"}:
            yield "into", atom
        elif before & _STATED and _ASKED_FOR & {*atoms[at + 1 :]}:
            yield "from", atom


def _property_of(atoms: tuple[str, ...]) -> tuple[str, tuple[str, ...]] | None:
    at = atoms.index("of") if "of" in atoms else 0
    if not 0 < at < 4 or part_of_speech(atoms[at - 1]) not in "n?":
        return None
    rest = next(
        (end for end, word in enumerate(atoms[at + 1 :], at + 1) if word in _PLACED or word == "in"), len(atoms)
    )
    return atoms[at - 1], tuple(word for word in atoms[at + 1 : rest] if ":" in word or weight(word) == 2)


def _amount_of(tokens: tuple[Token, ...]) -> str:
    for how, much, of in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if how.form == "how" and much.form in ("many", "much") and of.kind == "word":
            noun = kept(of.form)
            return noun if weight(noun) == 2 and part_of_speech(noun) in "n?" else ""
    return ""


def _time(words: Sequence[str]) -> str:
    if _TIMES.keys().isdisjoint(words):
        return ""
    start = next((at for at, word in enumerate(words) if word in WH), 0)
    for at, word in enumerate(words[start : start + 4], start):
        if word in _TIMES and not (word == "had" and at and words[at - 1] in ("have", "has", "'ve")):
            return _TIMES[word]
    return ""


def _initials(tokens: tuple[Token, ...]) -> str:
    return "".join([token.form[0] if token.kind == "word" else " " for token in tokens])


def _alike(tokens: tuple[Token, ...], sense: Meaning, plural: Counted, asks: bool) -> Hashable:
    atoms = sense.atoms
    declares = bool(tokens) and tokens[0].form in _SUBJECTS and atoms[0] not in _ASKING | WH
    return (
        of_kind(tokens, "number"),
        of_kind(tokens, "date"),
        of_kind(tokens, "quoted"),
        of_kind(tokens, "code", "symbol"),
        *(in_table(atoms, table) for table in (NEGATION, POLARITY, COMPARATORS, QUANTIFIERS, TEMPORAL, FORMAT)),
        sense.past,
        grain_of(tokens).replace("clock", ""),
        plural,
        _number_of_one(tokens),
        frozenset(sense.bag.items()),
        sense.groups,
        asks if declares else None,
    )


def _number_of_one(tokens: tuple[Token, ...]) -> bool:
    """The number of the chapter, not that of chapters."""
    forms = [token.form for token in tokens if token.form not in ("a", "an", "the")]
    return any(
        forms[at : at + 2] == ["number", "of"] and base_form(forms[at + 2]) == forms[at + 2]
        for at in range(len(forms) - 2)
    )
