"""What kind of answer a text asks for: a person, a time, a place, a reason, a way, a number, yes or no."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from headgate.cache.guards.inflection import base_form
from headgate.cache.guards.reading import Token
from headgate.cache.guards.vocabulary import part_of_speech
from headgate.cache.guards.words import word_set

OPEN = frozenset({"open"})
"""A text that names no kind: `Recipe for pancakes`. It conflicts with none."""

_WH = word_set("what which who whom whose when where why how")
_BY_HEAD = {
    "howto": "how", "whatdo": "how", "why": "why", "duration": "long", "population": "count", "count": "count",
    "birthdate": "when", "birthplace": "where", "often": "often", "clock": "when", "differ": "differ",
}  # fmt: skip
_EITHER = {
    "author": "who what", "inventor": "who what", "founder": "who what", "director": "who what", "painter": "who what",
    "actor": "who what", "composer": "who what", "producer": "who what", "designer": "who what", "singer": "who what",
    "convert": "count what which how", "distance": "long count degree what which",
    "discoverer": "who what", "can": "yes", "may": "yes", "exist": "yes", "top": "what which who where when",
}  # fmt: skip
_NOUNS = {
    "when": "time hour date year day month week season decade century deadline period schedule weekday",
    "where": "place city country town location address spot site street area region state link page",
    "who": "person people man woman author writer inventor founder director actor president leader artist player team"
    " company king queen ceo owner winner singer scientist",
    "why": "reason cause purpose explanation",
    "how": "way method procedure process step approach technique trick tip command formula instruction thing transport"
    " syntax format route path recipe effect impact influence"
    " function remedy treatment option sign shortcut trick secret",
    "count": "number amount count population quantity percentage share intake calorie",
    "long": "duration length life limit lifespan lifetime period distance",
    "often": "frequency interval",
}  # fmt: skip
_OF_NOUN: dict[str, str] = {word: kind for kind, words in _NOUNS.items() for word in words.split()}
_AUXILIARY = word_set(
    "is are am was were do does did can could may might will would shall should must has have had need"
)
_SPANS = word_set("second minute hour day week month year")
_LENGTHS = word_set("mile kilometer kilometre km meter metre")
_STATES = word_set("feel look seem sound smell taste rank")
_DEEDS = word_set("do try take use")


_TELLING = ("count", "degree", "long", "when", "where", "who", "often", "differ")
_APART = frozenset(
    frozenset((one, other))
    for one, others in {
        "why": ("count", "degree", "long", "when", "who", "yes", "how"),
        "yes": ("count", "degree", "long", "when", "differ", "often"),
        "how": ("count", "long", "often", "who", "differ"),
        "when": ("where", "who"),
        "count": ("who", "differ"),
        "long": ("who",),
    }.items()
    for other in others
)
"""Kinds of answer of which people who mean the same do not ask for the one and the other: of the pairs of written texts
that do, less than one in twelve has one answer, where of all pairs one in three has."""


def apart(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether what answers the one kind never answers the other: a reason and a number, yes or no and a length."""
    mine, yours = _main(one), _main(other)
    return one.isdisjoint(other) and frozenset({mine, yours}) in _APART


def _main(kinds: frozenset[str]) -> str:
    """The kind that a text asks for above all; empty where it may be one of several."""
    if "how" in kinds and len(kinds) > 1:
        return ""
    return next((kind for kind in _TELLING if kind in kinds), next(iter(kinds)) if len(kinds) == 1 else "")


def kinds_of(tokens: Sequence[Token], words: Sequence[str], atoms: Sequence[str]) -> frozenset[str]:
    """The kinds of answer a text may be asking for, `OPEN` if it names none; `words` as `reading.words_of` has them."""
    head = atoms[0] if atoms else ""
    if words[-2:] in (["and", "how"], ["and", "where"], ["and", "when"]):
        # Can it be restored, and how?
        return frozenset({words[-1]})
    asked = _asked_after(tokens, words) if words[:1] in (["i"], ["we"]) else None
    if asked is not None:
        return asked
    if (words[:1] == ["what"] and words[-1:] in (["for"], ["as"])) or (
        words[:2] == ["for", "what"] and words[2:3] in (["use"], ["purpose"], ["reason"])
    ):
        # What is it used for, what was it invented as.
        return frozenset({"why"})
    if head == "why" and words[:1] in (["what"], ["which"]):
        # What makes it float: how does it float.
        return frozenset({"why", "how"})
    if head == "count" and {*atoms[1:3]} & _LENGTHS:
        return frozenset({"count", "long", "degree", "what"})
    if head in _BY_HEAD and words[:1] not in (["counting"], ["count"]):
        return frozenset({_BY_HEAD[head]})
    if head in _EITHER:
        return frozenset(_EITHER[head].split())
    if words[:1] in (["can"], ["could"], ["would"], ["will"]) and base_form(words[0]) != head:
        # Can you explain ...: what is asked follows.
        words = words[2:]
    at = next((i for i, word in enumerate(words) if word in _WH and _interrogates(words, i)), None)
    if at is not None:
        return _of_wh(words, at)
    if words[-1:] == ["how"]:
        return frozenset({"how"})
    if words and words[0] in _AUXILIARY and base_form(words[0]) == head and len(words) > 2:
        return frozenset({"yes"})
    if tokens and tokens[-1].kind == "word" and {"should", "can", "do"} & set(words[-5:-1]) and "what" in words[-6:]:
        return frozenset({"how"})
    return OPEN


def _asked_after(tokens: Sequence[Token], words: Sequence[str]) -> frozenset[str] | None:
    """What a sentence after the first asks: `I want to borrow 5000 euros. What are the instalments?`"""
    start = next((at for at in range(len(tokens) - 1, 0, -1) if tokens[at].opens), None)
    if start is None or len(words) - start < 3:
        return None
    if words[start] in _WH:
        return _of_wh(words[start:], 0) - OPEN or None
    return frozenset({"yes"}) if words[start] in _AUXILIARY and words[start + 1] != "you" else None


_GRAINS = {
    "time": "clock",
    "hour": "clock",
    "day": "day",
    "date": "day",
    "weekday": "day",
    "month": "month",
    "year": "year",
}


def grain_of(tokens: Sequence[Token]) -> str:
    """`year` in `what year did it open`; empty where no grain is named."""
    for token, following in itertools.pairwise(tokens):
        if token.form in ("what", "which") and following.form in _GRAINS:
            return _GRAINS[following.form]
    return ""


_MODALS = {"can": "can", "could": "can", "may": "can", "should": "should", "must": "must", "shall": "should"}


def modal_of(tokens: Sequence[Token]) -> str:
    """`must` in `Do I have to report it`: what a question for yes or no is about besides the deed."""
    words = [token.form for token in tokens[:4]]
    if words[:1] in (["do"], ["does"]) and {"have", "need"} & set(words[2:3]) and words[3:4] == ["to"]:
        return "must"
    return _MODALS.get(words[0], "") if words else ""


def _interrogates(words: Sequence[str], at: int) -> bool:
    """`when I sit` and `people who smoke` ask for nothing."""
    word = words[at]
    following = words[at + 1] if at + 1 < len(words) else ""
    before = words[at - 1] if at else ""
    if at == 0 or word in ("how", "why", "what", "whom", "which"):
        return word != "which" or at == 0 or following not in _AUXILIARY or before in ("in", "by", "at", "on", "from")
    if word in ("when", "where"):
        return following in _AUXILIARY or before in _WANTING_TO_KNOW or at + 1 == len(words)
    return following in _AUXILIARY or before in ("", "and", "know", "me")


_WANTING_TO_KNOW = word_set("me us up know out wonder wondering ask remember sure idea check exactly tell")


def _of_wh(words: Sequence[str], at: int) -> frozenset[str]:
    word = words[at]
    following = words[at + 1] if at + 1 < len(words) else ""
    rest = [base_form(word) for word in words[at + 1 : at + 7]]
    if at == 0 and word == "when" and following not in _AUXILIARY:
        return OPEN
    if word == "how":
        return _of_how(words[at:], rest)
    if word in ("who", "whom", "whose"):
        return frozenset({"who"})
    if word == "when" and following == "will" and rest[1:2] in (["i"], ["we"]) and {"get", "receive"} & {*rest[2:3]}:
        # When will I get it: how long does it take.
        return frozenset({"when", "long"})
    if word in ("when", "why"):
        return frozenset({word})
    if word == "where":
        # Where can I download it: how do I download it.
        asking = words[at + 2 : at + 3] in (["i"], ["you"], ["we"], ["one"]) and following in _AUXILIARY
        return frozenset({"where", "how"} if asking or words[at + 2 : at + 3] == ["my"] else {"where"})
    return _of_what(words[at:], rest)


_BY_DEGREE = {"long": "long", "often": "often", "frequently": "often", "come": "why", "soon": "long", "late": "when",
              "early": "when"}  # fmt: skip


def _of_how(words: Sequence[str], rest: Sequence[str]) -> frozenset[str]:
    following = words[1] if len(words) > 1 else ""
    if following in ("do", "does", "did") and (
        set(rest[1:5]) & _STATES
        or (len(words) == 4 and rest[1:2] in (["i"], ["you"], ["we"], ["they"], ["he"], ["she"]))
    ):
        # How do I look, how do you sleep: it asks for no way to do it.
        return frozenset({"state"})
    if following == "many" and set(rest[1:3]) & _LENGTHS and {"between", "from", "to", "apart"} & {*words}:
        return frozenset({"count", "long", "what"})
    if following == "many":
        return frozenset({"count", "long", "what"} if set(rest[1:2]) & _SPANS else {"count"})
    if following == "much" and rest[1:2] == ["time"]:
        return frozenset({"long", "count"})
    if following == "much":
        return frozenset({"count", "degree", "what"})
    if {"know", "tell"} & set(rest[:4]) and {"if", "whether"} & set(rest):
        return frozenset({"how", "what", "which"})
    if following == "long" and {"until", "before", "till"} & set(rest):
        return frozenset({"long", "when"})
    if "compare" in rest[1:5]:
        return frozenset({"differ", "how"})
    if following in ("do", "can") and {"find", "get", "see", "locate"} & set(rest[2:3]):
        return frozenset({"how", "where"})
    if following in _BY_DEGREE:
        return frozenset({_BY_DEGREE[following]})
    if following not in _AUXILIARY and following != "to" and part_of_speech(following) in "ar":
        # How likely, how dangerous.
        return frozenset({"degree", "what"})
    return frozenset({"how", "differ"})


def _of_what(words: Sequence[str], rest: Sequence[str]) -> frozenset[str]:
    following = words[1] if len(words) > 1 else ""
    if words[0] == "what" and following in ("do", "does", "did") and words[-1] == "do" and "i" not in rest:
        # What bees do is not what they are.
        return frozenset({"deed"})
    kinds = {"what", "which"} | {_OF_NOUN[word] for word in rest if word in _OF_NOUN}
    verb = bool(rest) and part_of_speech(rest[0]) == "v" and rest[0] not in ("be", "do")
    if following in ("can", "should", "could") or verb or rest[:1] == ["now"]:
        # What can I take, what prevents it: how do I, how is it.
        kinds |= {"how", "why"}
    if following in _AUXILIARY and "i" in rest and set(rest[:5]) & _DEEDS:
        kinds.add("how")
    if {"difference", "differ"} & {*rest}:
        kinds.add("differ")
    last = _OF_NOUN.get(base_form(words[-1]), "")
    if last and words[-2:-1] == ["in"]:
        # What does it burn in calories.
        kinds.add(last)
    if any(word == "time" and _lasting(before) for before, word in itertools.pairwise(rest)):
        # The flight time is how long the flight takes.
        kinds.add("long")
    return frozenset(kinds)


def _lasting(word: str) -> bool:
    return word in _COURSES or (word.endswith("ing") and len(word) > 5)


_COURSES = word_set(
    "travel flight drive cook bake roast boil wait train journey ride transit deliver delivery process run"
)


def defined_or_done(defining: Sequence[str], doing: Sequence[str]) -> bool:
    """Whether the one text asks what a thing is and the other what does something to it: what a deadlock is, what
    resolves a deadlock.

    Args:
        defining: the words of the one text as they are written.
        doing: those of the other.
    """
    if doing[:1] != ("what",) or len(doing) < 3 or doing[1] not in _DONE_TO_IT:
        return False
    is_it = defining[:1] == ("what",) and defining[1:2] in (("is",), ("are",)) and defining[2:3] != ("the",)
    said = is_it or not _DEFINITION.isdisjoint(defining)
    return said and not any(base_form(word) == base_form(doing[1]) for word in defining)


_DEFINITION = frozenset({"meaning", "definition", "define"})
_DONE_TO_IT = word_set(
    "resolves prevents fixes stops cures removes kills triggers causes breaks heals treats solves avoids helps attracts"
)


def agree(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether some kind of answer would do for both."""
    return one == OPEN or other == OPEN or bool(one & other)
