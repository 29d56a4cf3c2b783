"""Wordings said otherwise: other words for the same, more or less polite, other line breaks.

A model that has seen a dozen wordings of a request knows these by heart and stumbles over the next one. Training on
loosened ones teaches it what they have in common.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping

from headgate.engine.demo.tasks.words import listed

_REPLACED = 0.5
"""Share of the words with others for the same that are replaced."""
_POLITE = 0.12
_BROKEN = 0.15
"""Share of line breaks that are doubled, or single where they were double."""
_LED_IN = 0.06

_SAME = tuple(
    tuple(phrase.strip() for phrase in line.split("|"))
    for line in """
        give me | tell me | show me | send me | let me have | I need | I want | get me
        what is | what's | tell me | say
        what are | tell me | say
        which | what
        how many | tell me how many | say how many
        how much is | what is | compute
        can you | could you | would you | will you | are you able to
        please | kindly | would you please
        find | look up | locate | get | identify
        write | put | print | output
        return | output | give back | produce
        make | create | build | produce | form
        turn | change | convert | transform
        extract | pull out | take | collect | read off
        remove | delete | take out | leave out | drop
        sort | arrange | put in order | order
        repeat | say again | echo | copy
        rewrite | write | put | restate
        spell | write out
        split | divide | cut
        join | combine | connect | link
        calculate | compute | work out | figure out | determine
        use | take | work with
        read | look at | see | consider | study | check
        answer | reply | respond
        question | query | my question
        answer with | use | reply with
        text | passage | paragraph | message
        the text | this text | the text below | the following text | my text
        this text | the text | the following text | this passage
        this list | the list | the following list | these items
        table | data | overview | records
        data | table | figures | values | records
        items | things | entries | elements | words
        these | the following | those | all these
        the following | this | these
        below | here | underneath
        here is | this is | below is | I have | see
        word | term
        letters | characters
        last | final
        largest | biggest | greatest | highest
        smallest | lowest | least
        sum | total
        headline | title | heading
        topic | subject | theme
        category | class | kind
        mood | feeling | tone | attitude | sentiment
        between | in between
        without | leaving out | with no
        fields | keys | values | data
        in json | as json | in JSON format | using JSON
        as json | in JSON | in the form of JSON | JSON only
        a json object | JSON | an object in JSON | one JSON object
        with the keys | with the fields | with keys | having
        capital letters | uppercase | capitals
        lowercase | small letters
        backwards | in reverse | from the end
        tell me | say | let me know
        belongs to | is of | goes to
        does not belong | does not fit | is different
        comes next | follows | is next
        people | persons
        big | large
        hyphens | dashes
        item | entry | element
        list | row | sequence | enumeration
        duplicates | repetitions | repeats
        contractions | short forms
        full forms | long forms
        who | which person | what person
        where | in what place | in which place
        polite | friendly | courteous
        each | every
        every | each
        numbers | values | figures
        odd one | one that is different
        do you know | can you say | tell me
    """.strip().splitlines()
)  # fmt: skip
"""Words that may stand for the first of their line; only that one is replaced."""

_LEADS = ("OK, ", "Now ", "So, ", "Hi, ", "Hello, ", "And ", "Next, ", "Well, ", "Then ")
_COMMANDS = frozenset(
    listed(
        """give tell show find write return make turn extract remove sort repeat rewrite spell split join count
        calculate use read answer parse say name put list pick choose decide label classify compute convert
        change continue compare add take order arrange get tag sum copy create replace look combine reverse
        delete"""
    )
)
"""What "please" may stand before."""


def _others() -> Mapping[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for first, *rest in _SAME:
        found[first] = (*found.get(first, ()), *rest)
    return found


_OTHERS = _others()
_KNOWN = re.compile(
    r"\{[^{}]*\}|\b(?:" + "|".join(sorted(map(re.escape, _OTHERS), key=len, reverse=True)) + r")\b", re.IGNORECASE
)
_BREAKS = re.compile(r"\n+")


def loosened(template: str, rng: random.Random) -> str:
    """The template said otherwise; its `{slots}` and the sign it ends with, by which layouts go, stay as they are."""

    def other(match: re.Match[str]) -> str:
        said = match[0]
        if said[0] == "{" or rng.random() >= _REPLACED:
            return said
        chosen = rng.choice(_OTHERS[said.lower()])
        return chosen[0].upper() + chosen[1:] if said[0].isupper() else chosen

    def broken(match: re.Match[str]) -> str:
        if rng.random() >= _BROKEN:
            return match[0]
        return "\n\n" if match[0] == "\n" else "\n"

    text = _BREAKS.sub(broken, _KNOWN.sub(other, template))
    if text[:7].lower() == "please " and rng.random() < _POLITE:
        text = text[7].upper() + text[8:]
    first = re.match(r"[A-Za-z]+", text)
    if first is None:
        return text
    if first[0].lower() in _COMMANDS and rng.random() < _POLITE:
        text = "Please " + text[0].lower() + text[1:]
    if rng.random() < _LED_IN:
        small = text if first[0] == "I" else text[0].lower() + text[1:]
        text = rng.choice(_LEADS) + small
    return text
