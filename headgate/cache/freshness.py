"""Texts whose right answer changes by the day: told by their words."""

from __future__ import annotations

import re

from headgate.cache.guards.lexicon import LANGUAGES, NOT_ABOUT_NOW, TIME_SENSITIVE, TIME_SENSITIVE_PHRASES

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
_CODE = re.compile(r"```.*?```|`[^`\n]*`|\b\w+\(\)", re.DOTALL)
_HOW_TO = re.compile(r" (?:how (?:to|do|can|could|should|would)|write|give me|show me) ")
_DATE_IN_CODE = re.compile(
    r" (?:(?:the )?(?:current|today) (?:date|time|day|month|year|week|timestamp|datetime)s?(?: and time)?|today|now"
    r"|tomorrow|yesterday|(?:last|next|this) (?:week|month|year)|(?:the )?(?:date|time)) "
)
_TOOLS = (LANGUAGES - {"english", "french", "german", "spanish", "go", "latin", "polish", "c"}) | {
    *("postgres", "postgresql", "mysql", "sqlite", "excel", "sheets", "linux", "django", "pandas", "react", "node"),
    *("c++", "regex", "shell", "powershell", "numpy", "spark", "oracle", "mongodb", "cron"),
}
"""Where one of these is named, how to get the current date is a question for code, which stays."""


def time_sensitive(text: str) -> bool:
    """Whether a text asks about now: "today's weather", "the latest release", "how old is she".

    What is called current, recent or live without being about now is not: the current directory, the last commit,
    time zones, where pandas live.
    """
    # 's is taken off, so that "today's" is found.
    plain = _CODE.sub(" ", text.lower().replace("’", "'"))
    words = [word.removesuffix("'s") for word in _WORD.findall(plain)]
    spoken = f" {' '.join(words)} "
    if TIME_SENSITIVE.isdisjoint(words) and not any(f" {phrase} " in spoken for phrase in TIME_SENSITIVE_PHRASES):
        return False
    if not _TOOLS.isdisjoint(words) and _HOW_TO.search(spoken) is not None:
        spoken = _DATE_IN_CODE.sub(" ", spoken)
    for otherwise in NOT_ABOUT_NOW:
        spoken = otherwise.sub(" ", spoken)
    if not TIME_SENSITIVE.isdisjoint(spoken.split()):
        return True
    return any(f" {phrase} " in spoken for phrase in TIME_SENSITIVE_PHRASES)
