"""Texts whose right answer changes by the day: told by their words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from headgate.cache.freshness_words import NowWords
from headgate.cache.guards.lexicon import LANGUAGES, NOT_ABOUT_NOW, TIME_SENSITIVE, TIME_SENSITIVE_PHRASES

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
_CODE = re.compile(r"```.*?```|`[^`\n]*`|\b\w+\(\)", re.DOTALL)
_QUOTED = re.compile(r'"[^"\n]{12,}"|“[^”\n]{12,}”')
"""A sentence in quotation marks; a word in them may be what is asked about."""
_GIVEN = re.compile(
    r"\b(?:translate|rewrite|rephrase|proofread|paraphrase|passive|correct|summari[sz]e|shorten|shorter|formal)\b[^:?]{0,60}:"
    r"(?=\s).*",
    re.DOTALL,
)
"""A text that something is to be made of: what it tells is not asked."""
_HOW_TO = re.compile(r" (?:how (?:to|do|can|could|should|would)|write|give me|show me) ")
_DATE_IN_CODE = re.compile(
    r" (?:(?:the )?(?:current|today) (?:date|time|day|month|year|week|timestamp|datetime)s?(?: and time)?|today|now"
    r"|tomorrow|yesterday|(?:last|next|this) (?:week|month|year)|(?:the )?(?:date|time)) "
)
_CLAUSE = re.compile(
    r"(?<=[.?!;\n])\s+|,\s+(?=(?:and |so |but )?(?:how|what|where|which)\b)"
    r"|(?<!\s)\s+(?:[-–—]\s+|and\s+(?=(?:is|are|was|has|have|does|did|will|when|who|why)\b))"
)
_ASKS = re.compile(
    r"(?:so |and |but |please |then |also |ok |hi |hello )*(?:how|what|where|which|when|who|whose|whom|why|is|are|am"
    r"|was|were|do|does|did|can|could|will|would|should|shall|may|must|might|has|have|had|tell|show|give|explain|any)\b"
)
_WAY = re.compile(
    r"\b(?:how (?:to|(?:do|can|could|should|would|might|must|shall) (?:i|we|you|one|people))|what (?:do|should|can|must"
    r"|shall|could) (?:i|we) (?:have to |need to |be )?(?:do|doing|try)|what to do|what steps|which steps|the way to"
    r"|where (?:do|can|could|should|would) (?:i|we)|which (?:command|setting|menu|button|keys?|shortcut|option|form"
    r"|tool))\b"
)
"""Asking for a way to do something."""
_TOOLS = (LANGUAGES - {"english", "french", "german", "spanish", "go", "latin", "polish", "c"}) | {
    *("postgres", "postgresql", "mysql", "sqlite", "excel", "sheets", "linux", "django", "pandas", "react", "node"),
    *("c++", "regex", "shell", "powershell", "numpy", "spark", "oracle", "mongodb", "cron"),
}
"""Where one of these is named, how to get the current date is a question for code, which stays."""

_NEEDED = frozenset(max(phrase.split(), key=len) for phrase in TIME_SENSITIVE_PHRASES)
"""A word of each phrase."""
_ELSEWHERE = NowWords()


def time_sensitive(text: str) -> bool:
    """Whether a text asks about now: "today's weather", "the latest release", "how old is she".

    What is called current, recent or live without being about now is not: the current directory, the last commit,
    time zones, where pandas live. In other languages only words and phrases are looked for.
    """
    told = _GIVEN.sub(" ", _QUOTED.sub(" ", _CODE.sub(" ", text.lower().replace("’", "'"))))
    return _in_english(told) or _ELSEWHERE.among(told)


def _in_english(told: str) -> bool:
    plain = _asked(told)
    # 's is taken off, so that "today's" is found.
    words = [word.removesuffix("'s") for word in _WORD.findall(plain)]
    spoken = f" {' '.join(words)} "
    if TIME_SENSITIVE.isdisjoint(words) and not _has_phrase(words, spoken):
        return False
    if not _TOOLS.isdisjoint(words) and _HOW_TO.search(spoken) is not None:
        spoken = _DATE_IN_CODE.sub(" ", spoken)
    for otherwise in NOT_ABOUT_NOW:
        spoken = otherwise.sub(" ", spoken)
    words = spoken.split()
    return not TIME_SENSITIVE.isdisjoint(words) or _has_phrase(words, spoken)


def _has_phrase(words: Sequence[str], spoken: str) -> bool:
    """Whether one of the phrases is among words; most texts have not even a word that one would need."""
    return not _NEEDED.isdisjoint(words) and any(f" {phrase} " in spoken for phrase in TIME_SENSITIVE_PHRASES)


def _asked(text: str) -> str:
    """What asks in a text, where all that asks does so for a way to do something; else the whole text.

    "I woke up ill today. How do I call in sick?" is answered alike on any day: what is told before such a question says
    how it came up. Of other questions it may be what decides: "My flight leaves today. Is it late?"
    """
    clauses = [clause for clause in _CLAUSE.split(text) if clause.strip()]
    asking = [clause for clause in clauses if clause.rstrip().endswith("?") or _ASKS.match(clause)]
    return " ".join(asking) if asking and all(_WAY.search(clause) for clause in asking) else text
