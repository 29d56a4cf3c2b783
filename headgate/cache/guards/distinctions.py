"""Words that set two texts apart where both say one of their kind, each with the name of what it says."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType


def _groups(groups: Mapping[str, str]) -> Mapping[str, str]:
    """Word → name of its group."""
    return MappingProxyType({word: group for group, words in groups.items() for word in words.split()})


STRICT_QUANTIFIERS = _groups(
    {
        "all": "all every everyone everything everybody each",
        "some": "some someone something a_few", "only": "only solely",
        "half": "half", "both": "both", "none": "none", "few": "few", "most": "most", "either": "either",
        "any": "any anyone", "several": "several",
    }
)  # fmt: skip
"""How many or which: two texts that say it must say the same."""

DEICTIC = _groups(
    {
        "today": "today tonight", "yesterday": "yesterday", "tomorrow": "tomorrow", "last": "last previous former past",
        "next": "next upcoming", "latest": "latest newest", "ago": "ago", "until": "until till", "since": "since",
        "once": "once", "during": "during while", "before": "before earlier ahead prior back backward backwards",
        "after": "after later afterwards forward forwards",
        "current": "current",
        "daily": "daily", "weekly": "weekly", "monthly": "monthly", "yearly": "yearly annual annually",
        "morning": "morning", "afternoon": "afternoon", "evening": "evening", "night": "night overnight",
        "future": "future", "together": "same simultaneously together",
    }
)  # fmt: skip
"""When, from where one stands; `last` only before one of `SPANS`."""

SPANS = frozenset(
    {"week", "month", "year", "night", "day", "time", "season", "decade", "century", "summer", "winter", "spring"}
)
"""Stretches of time that an every or a last counts off."""

STRICT_FORMAT = _groups(
    {
        "json": "json", "yaml": "yaml", "xml": "xml", "csv": "csv", "html": "html", "markdown": "markdown",
        "latex": "latex", "table": "table tabular", "bullets": "bullet bullets bulleted",
        "numbered": "numbered enumerated", "dialogue": "dialogue dialog conversation", "sentence": "sentence"
        " sentences", "paragraph": "paragraph paragraphs", "brief": "briefly brief concise concisely short tldr",
        "long": "detailed detail thorough lengthy comprehensive thoroughly", "essay": "essay", "poem": "poem",
        "haiku": "haiku", "limerick": "limerick", "song": "song lyrics", "story": "story tale", "joke": "joke",
        "tweet": "tweet", "outline": "outline", "formal": "formal formally", "informal": "informal casual",
        "example": "example examples", "define": "define definition", "synonym": "synonym synonyms",
        "antonym": "antonym antonyms", "page": "page pages",
    }
)  # fmt: skip
"""Asked-for form and length of the answer."""

COUNTED_FORMAT = _groups(
    {
        "lines": "line lines", "words": "word words", "slides": "slide slides", "verses": "verse verses",
        "stanzas": "stanza stanzas", "characters": "character characters",
    }
)  # fmt: skip
"""What an answer is counted in; of a kind that is also asked about, so behind a number only."""

SHAPES = _groups(
    {
        "email": "email e-mail mail", "letter": "letter", "message": "message text sms", "list": "list checklist",
        "speech": "speech", "script": "script screenplay", "interview": "interview", "report": "report",
        "presentation": "presentation slideshow", "memo": "memo", "post": "post", "article": "article",
        "diagram": "diagram drawing sketch chart graph flowchart picture", "timeline": "timeline", "quiz": "quiz",
        "spreadsheet": "spreadsheet", "pdf": "pdf", "rap": "rap", "faq": "faq",
    }
)  # fmt: skip
"""Kinds of text, or of picture, where one is asked for behind `as a`."""

PROPERTIES = _groups(
    {
        "price": "price", "weight": "weight heavy weigh mass", "height": "height tall elevation altitude",
        "length": "length", "width": "width wide", "depth": "depth deep", "age": "age", "area": "area",
        "population": "population", "capital": "capital", "currency": "currency", "colour": "color",
        "author": "author", "director": "director", "inventor": "inventor discoverer", "founder": "founder",
        "painter": "painter", "actor": "actor", "composer": "composer", "producer": "producer", "designer": "designer",
        "singer": "singer", "symptom": "symptom", "treatment": "treatment", "cause": "cause",
        "ingredient": "ingredient", "recipe": "recipe", "duration": "duration", "distance": "distance",
        "birthdate": "birthdate", "birthplace": "birthplace", "history": "history", "frequency": "frequency often",
        "benefit": "benefit", "drawback": "drawback", "temperature": "temperature", "deadline": "deadline",
        "differ": "differ", "pronunciation": "pronounce pronunciation", "spelling": "spell spelling",
    }
)  # fmt: skip
"""Which property of a thing is asked."""
