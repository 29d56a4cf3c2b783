"""Typed guards: may the answer to one text be served for another?

Similarity of embeddings cannot tell "in 2019" from "in 2020" or "enable" from "disable", so every semantic candidate
passes these first. `reading` turns a text into tokens, `numbers` gives quantities one form, `wording` takes politeness
off, `meaning` brings what is left to base forms (`inflection`), one word per synonym and one form per opening
(`phrases`, `synonyms`, `english`), `lexicon` holds the word lists of the typed guards, and `rules` compares.
"""

from headgate.cache.guards.comparison import KINDS, Comparison
from headgate.cache.guards.rules import GUARDS, Reading, check, compare, reading_of

__all__ = ["GUARDS", "KINDS", "Comparison", "Reading", "check", "compare", "reading_of"]
