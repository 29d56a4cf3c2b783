"""Typed guards: may the answer to one text be served for another?

Similarity of embeddings cannot tell "in 2019" from "in 2020" or "enable" from "disable", so every semantic candidate
passes these first. `compare` vetoes what contradicts, and gives the evidence by kind for a decision that is learned.

`reading` turns a text into tokens, `numbers`, `dates` and `series` give quantities one form, `wording` takes
politeness off, `meaning` brings what is left to base forms (`inflection`), one word per synonym and one form per
opening (`phrases`, `synonyms`, `english`). `evidence` collects what one text says of each kind (`statements`,
`polarity`, `questions`, `lexicon`, `distinctions`), `content` matches words by what the `vocabulary` knows of them,
`casing` tells names from words, `contrasts` sides of a pair, `roles`, `exchange`, `relations` and `doers` look at the
order, `temporal` and `tenses` at when, and `rules` compares.
`foreign` tells texts of which all this knows nothing, `spelling` what words in lower case do not show.
`seal` is what an entry keeps of its reading, `folded` beside its text, so that texts that are close need not be read.
"""

from headgate.cache.guards.comparison import KINDS, WEIGHED, Comparison
from headgate.cache.guards.evidence import Reading, reading_of
from headgate.cache.guards.foreign import foreign
from headgate.cache.guards.rules import compare
from headgate.cache.guards.seal import broken, comparable, seal_of, sealed, unsealed
from headgate.cache.guards.spelling import NOTHING_STRANGE, Spelling, spelled_apart, spelling_of

__all__ = [
    "KINDS",
    "NOTHING_STRANGE",
    "WEIGHED",
    "Comparison",
    "Reading",
    "Spelling",
    "broken",
    "comparable",
    "compare",
    "foreign",
    "reading_of",
    "seal_of",
    "sealed",
    "spelled_apart",
    "spelling_of",
    "unsealed",
]
