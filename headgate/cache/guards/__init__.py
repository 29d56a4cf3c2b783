"""Typed guards: may the answer to one text be served for another?

Similarity of embeddings cannot tell "in 2019" from "in 2020" or "enable" from "disable", so every semantic candidate
passes these first. `reading` turns a text into tokens, `numbers` gives quantities one form, `lexicon` holds the word
lists, `wording` takes polite and equivalent phrasings off, `rules` compares.
"""

from headgate.cache.guards.rules import GUARDS, check

__all__ = ["GUARDS", "check"]
