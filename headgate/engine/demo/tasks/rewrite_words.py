"""The closed word lists of rewriting: words whose forms are to be known."""

from __future__ import annotations

from headgate.engine.demo.tasks.words import listed

# Their upper and title case is learned word by word, so there are not many.
CASE_ADJECTIVES = listed(
    """small big old new quiet loud bright dark warm cold soft hard happy sad quick slow heavy light clean young brave
    red blue green yellow black white brown gray"""
)
CASE_NOUNS = listed(
    """cat dog horse cow sheep goat pig duck fox wolf bear lion table chair lamp book door window train car boat house
    school bridge river mountain forest village apple bread cheese cake"""
)
CASE_VERBS = listed("sees finds likes wants takes brings sells paints cleans opens follows loves")

COMMANDS = (
    "send me the {thing}",
    "bring the {thing}",
    "show me the {thing}",
    "clean the {thing}",
    "open the {thing}",
    "give {name} the {thing}",
    "call {name}",
    "move the {thing}",
    "tell {name} about the {thing}",
    "put the {thing} next to the {other}",
    "buy the {thing} for {name}",
    "check the {thing}",
    "write to {name}",
    "meet {name} in {city}",
    "wait for {name}",
    "take the {thing} to {city}",
    "look for the {thing}",
    "return the {thing}",
    "help {name}",
    "fix the {thing}",
)

CONTRACTIONS: tuple[tuple[str, str, str], ...] = (
    ("I {} find the {thing}", "can't", "cannot"),
    ("we {} see the {thing}", "can't", "cannot"),
    ("{name} {} like the {thing}", "doesn't", "does not"),
    ("it {} work with the {thing}", "doesn't", "does not"),
    ("I {} know {name}", "don't", "do not"),
    ("they {} need the {thing}", "don't", "do not"),
    ("{name} {} buy the {thing}", "didn't", "did not"),
    ("we {} call {name}", "didn't", "did not"),
    ("the {thing} {} here", "isn't", "is not"),
    ("{name} {} ready", "isn't", "is not"),
    ("they {} in the {thing}", "aren't", "are not"),
    ("we {} friends of {name}", "aren't", "are not"),
    ("the {thing} {} new", "wasn't", "was not"),
    ("they {} with {name}", "weren't", "were not"),
    ("I {} sell the {thing}", "won't", "will not"),
    ("{name} {} come", "won't", "will not"),
    ("I {} help {name}", "couldn't", "could not"),
    ("we {} touch the {thing}", "shouldn't", "should not"),
    ("they {} pay for the {thing}", "wouldn't", "would not"),
    ("we {} met {name}", "haven't", "have not"),
    ("{name} {} seen the {thing}", "hasn't", "has not"),
    ("{} waiting for {name}", "I'm", "I am"),
    ("{} looking for the {thing}", "we're", "we are"),
    ("{} talking to {name}", "they're", "they are"),
    ("{} bring the {thing}", "I'll", "I will"),
    ("{} ask {name}", "we'll", "we will"),
    ("{} clean the {thing}", "they'll", "they will"),
    ("{} bought the {thing}", "we've", "we have"),
    ("{} lost the {thing}", "I've", "I have"),
)
"""Clauses with one gap, its contracted and its full form."""

SENTENCES: tuple[tuple[str, str, str], ...] = (
    ("{} to {city}", "walks", "walked"),
    ("{} to {city}", "travels", "traveled"),
    ("{} to {city}", "goes", "went"),
    ("{} in {city}", "lives", "lived"),
    ("{} in {city}", "stays", "stayed"),
    ("{} the {thing}", "sees", "saw"),
    ("{} the {thing}", "finds", "found"),
    ("{} the {thing}", "buys", "bought"),
    ("{} the {thing}", "sells", "sold"),
    ("{} the {thing}", "takes", "took"),
    ("{} the {thing}", "brings", "brought"),
    ("{} the {thing}", "cleans", "cleaned"),
    ("{} the {thing}", "opens", "opened"),
    ("{} the {thing}", "likes", "liked"),
    ("{} the {thing}", "wants", "wanted"),
    ("{} the {thing}", "loses", "lost"),
    ("{} the {thing}", "draws", "drew"),
    ("{} the {thing}", "keeps", "kept"),
    ("{} the {thing}", "paints", "painted"),
    ("{} the {thing}", "gets", "got"),
    ("{} the {thing}", "holds", "held"),
    ("{} about the {thing}", "writes", "wrote"),
    ("{} about the {thing}", "speaks", "spoke"),
    ("{} about the {thing}", "thinks", "thought"),
    ("{} for the {thing}", "looks", "looked"),
    ("{} for the {thing}", "pays", "paid"),
)
"""What somebody does: a frame with one verb, its present and its past form."""
