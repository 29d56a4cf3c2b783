"""When the deeds of a text happen, by their verbs: did we pay, do we pay; has worked on it, is working on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from headgate.cache.guards.inflection import base_form
from headgate.cache.guards.vocabulary import kept, parts_of_speech, weight
from headgate.cache.guards.words import word_set

Times = Mapping[str, frozenset[str]]


_PLAIN_AFTER: Mapping[str, str] = {"did": "past", "do": "present", "does": "present", "will": "future"}
"""Auxiliaries with a base form behind the subject."""
_BEING: Mapping[str, str] = {"is": "ongoing", "are": "ongoing", "am": "ongoing", "was": "past", "were": "past"}
_HAVING: Mapping[str, str] = {"have": "done", "has": "done", "had": "past"}
_TELLING = word_set("did do does will is are am was were have has had who")
_GOVERNED = word_set("to do does did can could should would will must may might shall")
_STOPS = word_set(
    "who what which when where why how that if because while until since before after in on at for with from by about"
    " into of and or but to can could should would will must may might shall is are am was were be do does did have"
    " has had"
)
_SUBJECTS = word_set("i you he she it we they")
_REACH = 6
_CLASHES = frozenset(
    frozenset(pair)
    for pair in (
        *(("past", "present"), ("past", "future"), ("past", "ongoing")),
        *(("done", "ongoing"), ("done", "future"), ("lasting", "future")),
    )
)


def times_of(words: Sequence[str]) -> Times:
    """For each verb whose time is said the times it is said of: `past`, `present`, `ongoing`, `done`, `lasting` (it has
    been working) or `future`.

    Nouns between an auxiliary and its verb may be taken for verbs; in texts that ask alike they are in both. `words` as
    `reading.words_of` has them.
    """
    found: dict[str, set[str]] = {}
    for at, word in enumerate(words):
        if word in _TELLING:
            for verb, time in _said_at(words, at, word):
                found.setdefault(verb, set()).add(time)
    return {verb: frozenset(times) for verb, times in found.items()}


def _said_at(words: Sequence[str], at: int, word: str) -> Iterator[tuple[str, str]]:
    """The verbs that a word at a place governs, each with its time."""
    if word in _PLAIN_AFTER:
        for verb in _base_forms(words, at + 1):
            yield verb, _PLAIN_AFTER[word]
    elif word in _BEING:
        there = _behind(words, at, "ing")
        if there and words[there] == "going" and words[there + 1 : there + 2] == ["to"]:
            for verb in _base_forms(words, there + 2):
                yield verb, "future"
        elif there:
            yield kept(words[there]), _BEING[word]
        elif passive := _behind(words, at, "ed"):
            yield kept(words[passive]), "present" if _BEING[word] == "ongoing" else "past"
    elif word in _HAVING and words[at + 1 : at + 2] != ["to"] and _GOVERNED.isdisjoint(words[max(0, at - 3) : at]):
        there = _behind(words, at, "ed")
        going = _behind(words, there, "ing") if there and words[there] == "been" else 0
        if there and words[there] == "been" and not going:
            there = _behind(words, there, "ed")
        if going:
            yield kept(words[going]), "lasting" if _HAVING[word] == "done" else "past"
        elif there:
            yield kept(words[there]), _HAVING[word]
    elif word == "who" and at + 1 < len(words) and _is_past(words[at + 1]):
        yield kept(words[at + 1]), "past"
    elif word == "who" and at + 1 < len(words) and words[at + 1].endswith("s") and _is_verb(words[at + 1]):
        yield kept(words[at + 1]), "present"


def _base_forms(words: Sequence[str], start: int) -> Iterator[str]:
    """Verbs in their base form, up to the next clause or phrase; behind a pronoun the first only."""
    for at in range(start, min(start + _REACH, len(words))):
        word = words[at]
        if word in _STOPS:
            return
        if base_form(word) == word and _is_verb(word):
            yield kept(word)
            if at > start and words[at - 1] in _SUBJECTS:
                return


def _behind(words: Sequence[str], at: int, ending: str) -> int:
    """Where the first -ing form, or the first past form, stands behind an auxiliary and its subject; 0 if none does."""
    for there in range(at + 1, min(at + _REACH, len(words))):
        word = words[there]
        if ending == "ing":
            if word.endswith("ing") and _is_verb(word) and base_form(word) != word:
                return there
        elif word == "been" or _is_past(word):
            return there
        if word in _STOPS:
            return 0
    return 0


def _is_verb(word: str) -> bool:
    return weight(kept(word)) > 0 and "v" in parts_of_speech(base_form(word))


def _is_past(word: str) -> bool:
    """A past form or a past participle."""
    return not word.endswith(("s", "ing")) and base_form(word) != word and _is_verb(word)


def clash(one: Times, other: Times) -> bool:
    """Whether what the one says of a verb's time is never what the other says of it."""
    return any(
        all(frozenset((mine, yours)) in _CLASHES for mine in one[verb] for yours in other[verb])
        for verb in one.keys() & other.keys()
    )
